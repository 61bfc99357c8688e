//! Where everything is: each page is one thing, each bit lies in its line, and what cannot be is refused.

use amphi_fs_bytefs::format::{AG_PAGES, GROUP_BITS, INODE_BYTES, LINE, Layout, PAGE};

/// Three groups, of which the last is short, with more inodes than one page of a bitmap has bits for.
fn three() -> Layout {
    let layout = Layout::plan(2 * AG_PAGES + 5000, 33_280, 100);
    assert_eq!(layout.check(), Ok(()));
    layout
}

#[test]
fn every_page_is_one_thing() {
    let layout = three();
    assert_eq!((layout.ags(), layout.inode_bitmap_pages(), layout.header_pages()), (3, 2, 1 + 2 + 1040));
    let mut fixed = 0;
    for page in 0..layout.pages {
        let ag = page / AG_PAGES;
        let table = layout.first_inode(page);
        let data = layout.holds_data(page as u32, 1);
        assert_eq!(table.is_some(), page >= layout.inode_table(ag) && page < layout.ag_data(ag), "{page}");
        assert_eq!(data, page >= layout.ag_data(ag), "{page}");
        fixed += u64::from(!data);
        if let Some(ino) = table {
            assert_eq!(layout.inode_page(ino), (page, 0));
            assert_eq!(layout.inode_page(ino + 31), (page, 31 * INODE_BYTES));
            assert!(layout.in_inode_table(layout.inode_address(ino + 31) + LINE as u64));
        }
    }
    let by_line: u64 = (0..layout.pages.div_ceil(GROUP_BITS)).map(|line| layout.fixed_in_line(line)).sum();
    assert_eq!((fixed, by_line), (layout.metadata_pages(), layout.metadata_pages()));
}

#[test]
fn a_bit_lies_in_its_line() {
    let layout = three();
    for ino in (0..layout.inodes).step_by(100).chain([layout.inodes - 1]) {
        let (page, bit) = layout.inode_bit(ino);
        let line = layout.inode_line(u64::from(ino) / GROUP_BITS);
        assert_eq!(line, page * PAGE as u64 + bit / GROUP_BITS * LINE as u64, "inode {ino}");
        assert_eq!(bit % GROUP_BITS, u64::from(ino) % GROUP_BITS);
        assert!(page < layout.inode_table(u64::from(ino / layout.ag_inodes)));
    }
    for page in (0..layout.pages).step_by(100) {
        let (at, bit) = layout.block_bit(page);
        assert_eq!(layout.block_line(page / GROUP_BITS), at * PAGE as u64 + bit / GROUP_BITS * LINE as u64);
    }
}

#[test]
fn no_run_of_a_file_leaves_its_group() {
    let layout = three();
    let end = AG_PAGES as u32;
    assert!(layout.holds_data(end - 10, 10) && !layout.holds_data(end - 10, 11));
    assert!(!layout.holds_data(end, 1));
    assert!(!layout.holds_data(layout.pages as u32 - 1, 2));
    assert!(!layout.holds_data(u32::MAX, u32::MAX));
}

#[test]
fn what_is_too_short_for_a_group_is_left() {
    let header = Layout::plan(AG_PAGES, 512, 0).header_pages();
    for (rest, used) in [(0, 0), (1, 0), (header + 63, 0), (header + 64, header + 64)] {
        let layout = Layout::plan(AG_PAGES + rest, 512, 0);
        assert_eq!((layout.pages, layout.check()), (AG_PAGES + used, Ok(())));
        assert_eq!(u64::from(layout.inodes), 512 * layout.ags());
    }
    assert_eq!(Layout::plan(600, 512, 0).pages, 600, "the only group is as short as it is");
}

#[test]
fn layouts_that_cannot_be_are_refused() {
    for (pages, ag_inodes, journal_pages) in [
        (511, 512, 0),
        (u64::from(u32::MAX) + 1, 512, 0),
        (640, 0, 0),
        (640, 500, 0),
        (640, 512, 640),
        (640, 1 << 20, 0),
        (1 << 20, 1 << 20, 0),
        (1 << 20, 512, 40_000),
        (1 << 20, 512, u32::MAX),
    ] {
        let layout = Layout::plan(pages, ag_inodes, journal_pages);
        assert!(layout.check().is_err(), "{layout:?}");
    }
    let moved = Layout { orphans: 2, ..three() };
    assert!(moved.check().is_err());
}
