//! One planted corruption per finding about the superblock, inodes, extents and bitmaps, its checksum
//! renewed, and exactly the findings that follow from it. Those about names are in `fsck_names`.

use amphi_device::Error as DeviceError;
use amphi_fs_bytefs::format::*;
use amphi_fs_bytefs::fsck::{self, FindingKind as F, FsckError, Half, Severity};
use zerocopy::{FromBytes, IntoBytes};

use crate::fsck_image::*;

#[test]
fn a_sound_image_is_clean_and_counted() {
    let report = Image::sample().check();
    assert!(report.is_clean(), "{:?}", report.findings);
    assert_eq!(report.findings, []);
    assert_eq!(report.label, "sample");
    assert_eq!((report.files, report.directories), (5 + u64::from(SMALL_FILES), 4));
    assert_eq!((report.symlinks, report.special, report.orphans), (2, 1, 1));
    let pages = u64::from(Image::sample().data()) + 3 + 302 + 7 + 1 + 1 + 2 + 1 + 2 + 1;
    assert_eq!(report.pages_used, pages);
}

#[test]
fn what_is_no_bytefs_is_refused() {
    let mut image = Image::sample();
    image.bytes[0] = b'x';
    let found = fsck::check(&image.device(), &mut |_| ()).expect_err("not a file system");
    assert_eq!(found, FsckError::Format(FormatError::NotByteFs));
    let mut image = Image::sample();
    image.bytes[8] = 77;
    let found = fsck::check(&image.device(), &mut |_| ()).expect_err("another version");
    assert_eq!(found, FsckError::Format(FormatError::Version(77)));
}

#[test]
fn superblock() {
    let mut image = Image::sample();
    image.bytes[16] ^= 1;
    let report = image.check();
    assert!(!report.is_clean());
    assert!(matches!(report.findings[0].kind, F::SuperblockUnreadable { .. }), "{:?}", report.findings);
    expect(|i| i.bytes[SUPER_STATE_OFFSET] ^= 1, |_| vec![F::SuperStateDamaged]);
}

#[test]
fn an_unclean_unmount_is_information() {
    let mut image = Image::sample();
    let page = *image.page(0);
    let mut state = SuperState::decode(&page);
    state.clean = 0.into();
    image.bytes[SUPER_STATE_OFFSET..SUPER_STATE_OFFSET + LINE].copy_from_slice(&state.encode());
    let report = image.check();
    assert!(report.is_clean());
    assert_eq!(report.findings[0].severity, Severity::Info);
    assert_eq!(report.findings[0].kind, F::NotCleanlyUnmounted);
}

#[test]
fn mount_options() {
    let options = |image: &mut Image, text: &str| {
        let (mut sb, _) = Superblock::read_from_prefix(&image.bytes[..]).expect("a page is long enough");
        sb.options[..text.len()].copy_from_slice(text.as_bytes());
        sb.crc = sb.checksum().into();
        image.bytes[..size_of::<Superblock>()].copy_from_slice(sb.as_bytes());
    };
    expect(|i| options(i, "data=journal,threshold=4"), |_| vec![]);
    let mut image = Image::sample();
    options(&mut image, "data=sideways");
    let found = image.findings();
    assert!(
        matches!(&found[..], [F::MountOptionsBad { reason }] if reason.contains("sideways")),
        "{found:?}"
    );
}

/// A record of page `target` with these contents, and its slot.
fn journal_record(image: &mut Image, slot: usize, target: u32, contents: u8) {
    let journal = image.layout.journal;
    JournalHeader::encode(image.page_mut(journal + 1), 7, FILE, &[target.into()]);
    image.page_mut(journal + 2).fill(contents);
    let line = JournalSlot::encode(1, 1, 7, FILE);
    image.page_mut(journal)[slot * LINE..][..LINE].copy_from_slice(&line);
}

#[test]
fn journal() {
    let first_page = |i: &Image| i.data() + 1;
    // A sound record is put in place, which is nothing to find.
    let mut image = Image::sample();
    let target = image.layout.pages as u32 - 1;
    journal_record(&mut image, 5, target, b'j');
    let device = image.device();
    assert_eq!(fsck::check(&device, &mut |_| ()).expect("the device does not fail").findings, []);
    let after = device.contents();
    assert_eq!(after[target as usize * PAGE..][..PAGE], [b'j'; PAGE]);
    assert_eq!(after[image.layout.journal as usize * PAGE..][5 * LINE..][..8], [0; 8], "the slot is empty");

    let bad = |slot, reason: &str| vec![F::JournalSlotBad { slot, reason: reason.into() }];
    let slot_at = |i: &Image, slot: usize| i.layout.journal as usize * PAGE + slot * LINE;
    expect(
        |i| {
            journal_record(i, 5, first_page(i), 0);
            let at = slot_at(i, 5);
            i.bytes[at + 9] ^= 1;
        },
        |_| bad(5, "a journal slot has a wrong checksum"),
    );
    expect(
        |i| {
            let at = slot_at(i, 63);
            i.bytes[at..at + LINE].copy_from_slice(&JournalSlot::encode(10, 2, 7, FILE));
        },
        |_| bad(63, "a journal slot has an impossible place"),
    );
    // Records that make no sense change nothing.
    for spoil in [
        (|i: &mut Image| i.page_mut(i.layout.journal + 1)[9] ^= 1) as fn(&mut Image),
        |i| i.page_mut(i.layout.journal + 1)[25] ^= 1,
        |i| journal_record(i, 5, 0, 0),
        |i| journal_record(i, 5, i.layout.pages as u32, 0),
        |i| JournalHeader::encode(i.page_mut(i.layout.journal + 1), 7, FILE, &[600.into(), 601.into()]),
    ] {
        expect(
            |i| {
                journal_record(i, 5, first_page(i), 0);
                spoil(i);
            },
            |_| bad(5, "its record makes no sense"),
        );
    }
}

#[test]
fn inode_halves() {
    let bad_half = |half: Half, reason: &str| F::InodeHalfBad { ino: LEAF, half, reason: reason.into() };
    expect(
        |i| {
            let at = i.layout.inode_address(LEAF) as usize;
            i.bytes[at] ^= 1;
        },
        |_| vec![bad_half(Half::Lower, "an inode's lower half has a wrong checksum")],
    );
    expect(
        |i| {
            let at = i.layout.inode_address(LEAF) as usize + LINE;
            i.bytes[at + 20] ^= 1;
        },
        |_| vec![bad_half(Half::Upper, "an inode's upper half has a wrong checksum")],
    );
    expect(
        |i| i.edit_lower(LEAF, |l| l.mode = 0o030_644.into()),
        |_| vec![bad_half(Half::Lower, "an inode has an impossible file type")],
    );
    expect(
        |i| i.edit_upper(LEAF, |u| u.depth = 6.into()),
        |_| vec![bad_half(Half::Upper, "an inode has an impossible extent tree depth")],
    );
}

#[test]
fn inode_fields() {
    let field = |ino, field| vec![F::InodeFieldBad { ino, field }];
    expect(|i| i.edit_lower(LEAF, |l| l.flags = 2.into()), |_| field(LEAF, "set of flags"));
    expect(|i| i.edit_lower(LEAF, |l| l.size = u64::MAX.into()), |_| field(LEAF, "size"));
    expect(|i| i.edit_upper(LEAF, |u| u.count = 4.into()), |_| field(LEAF, "number of extents"));
    expect(|i| i.edit_upper(LEAF, |u| u.depth = 1.into()), |_| field(LEAF, "number of extents"));
}

#[test]
fn special_files_have_no_contents() {
    expect(|i| i.edit_lower(PIPE, |l| l.size = 1.into()), |_| vec![F::SpecialHasContents { ino: PIPE }]);
}

#[test]
fn inode_bitmap() {
    expect(|i| i.set_inode_bit(0, false), |_| vec![F::InodeZeroFree]);
    expect(|i| i.set_inode_bit(FILE, false), |_| vec![F::InodeMarkedFree { ino: FILE }]);
    // A directory marked free takes what is below it along; it is found again entry by entry.
    expect(|i| i.set_inode_bit(DOCS, false), |_| vec![F::InodeMarkedFree { ino: DOCS }]);
}

#[test]
fn root() {
    let mut image = Image::sample();
    image.set_inode_bit(ROOT_INO, false);
    let found = image.findings();
    assert!(found.contains(&F::RootMissing), "{found:?}");
    assert!(found.contains(&F::InodeUnreachable { ino: FILE, what: "a file" }), "{found:?}");
}

#[test]
fn page_counts() {
    expect(
        |i| i.edit_lower(BIG, |l| l.pages = 300.into()),
        |_| vec![F::PageCountWrong { ino: BIG, stored: 300, actual: 302 }],
    );
    expect(
        |i| {
            i.put_attributes(LEAF, &[("user.a", "b")]);
            i.edit_lower(LEAF, |l| l.pages = 0.into());
        },
        |_| vec![F::PageCountWrong { ino: LEAF, stored: 0, actual: 1 }],
    );
}

#[test]
fn extents_out_of_range() {
    let outside =
        |ino, what, file_page, page, pages| F::ExtentOutOfRange { ino, what, file_page, page, pages };
    let leak = |i: &Image, n: usize| {
        let lost = i.upper(FILE).root[n];
        F::BlocksLeaked { page: lost.lba.get(), pages: lost.pages.get() }
    };
    expect(
        |i| i.edit_upper(FILE, |u| u.root[1].lba = 3.into()),
        |i| vec![outside(FILE, "the extent", 2, 3, 1), leak(i, 1)],
    );
    expect(
        |i| i.edit_upper(FILE, |u| u.root[1].lba = (PAGES as u32).into()),
        |i| vec![outside(FILE, "the extent", 2, PAGES as u32, 1), leak(i, 1)],
    );
    expect(
        |i| i.edit_upper(FILE, |u| u.root[1].pages = (u32::MAX >> 1).into()),
        |i| vec![outside(FILE, "the extent", 2, i.upper(FILE).root[1].lba.get(), u32::MAX >> 1), leak(i, 1)],
    );
    expect(
        |i| i.edit_upper(FILE, |u| u.root[1].file_page = u64::MAX.into()),
        |i| vec![outside(FILE, "the extent", u64::MAX, i.upper(FILE).root[1].lba.get(), 1), leak(i, 1)],
    );
    expect(
        |i| i.edit_upper(LEAF, |u| u.xattr = 1.into()),
        |_| vec![outside(LEAF, "the attribute page", 0, 1, 1)],
    );
    let mut image = Image::sample();
    image.edit_upper(DEEP, |u| u.root[0].lba = 0.into());
    let found = image.findings();
    assert_eq!(found[0], outside(DEEP, "the extent node", 0, 0, 1));
    assert!(matches!(found[1], F::BlocksLeaked { pages: 7, .. }), "{found:?}");
}

#[test]
fn extent_lengths() {
    let leak = |i: &Image, n: usize| {
        let lost = i.upper(FILE).root[n];
        F::BlocksLeaked { page: lost.lba.get(), pages: lost.pages.get() }
    };
    expect(
        |i| i.edit_upper(FILE, |u| u.root[0].pages = 0.into()),
        |i| vec![F::ExtentLengthBad { ino: FILE, what: "the extent", file_page: 0, pages: 0 }, leak(i, 0)],
    );
    let mut image = Image::sample();
    image.edit_upper(DEEP, |u| u.root[0].pages = 2.into());
    let found = image.findings();
    assert_eq!(found[0], F::ExtentLengthBad { ino: DEEP, what: "the child pointer", file_page: 0, pages: 2 });
}

#[test]
fn extent_order() {
    expect(
        |i| i.edit_upper(FILE, |u| u.root.swap(0, 1)),
        |_| vec![F::ExtentsUnsorted { ino: FILE, file_page: 0 }],
    );
    expect(
        |i| i.edit_upper(FILE, |u| u.root[1].file_page = 1.into()),
        |_| vec![F::ExtentsOverlap { ino: FILE, file_page: 1 }],
    );
    // The last extent of the first leaf reaches into the second leaf's keys: pages 254*2 + 3 > 255*2.
    let mut image = Image::sample();
    let leaf = image.upper(BIG).root[0].lba.get();
    image.edit_node(leaf, |entries| entries[254].pages = 3.into());
    let found = image.findings();
    assert_eq!(found[0], F::ExtentsOverlap { ino: BIG, file_page: 510 });
    // Pointers to leaves in the wrong order.
    let mut image = Image::sample();
    image.edit_upper(BIG, |u| u.root.swap(0, 1));
    assert_eq!(image.findings()[0], F::ExtentsUnsorted { ino: BIG, file_page: 0 });
}

#[test]
fn extent_nodes() {
    let leaf = Image::sample().upper(BIG).root[1].lba.get();
    let bad = |reason: &str| F::NodeBad { ino: BIG, page: leaf, reason: reason.into() };
    let mut image = Image::sample();
    image.page_mut(leaf)[40] ^= 1;
    assert_eq!(image.findings()[0], bad("an extent node has a wrong checksum"));
    let mut image = Image::sample();
    let entries = NodeHeader::decode(image.page(leaf), BIG, 0).expect("sound").to_vec();
    NodeHeader::encode(image.page_mut(leaf), BIG, 1, &entries);
    assert_eq!(image.findings()[0], bad("an extent node has an impossible owner or depth"));
    let mut image = Image::sample();
    image.edit_node(leaf, |entries| entries.clear());
    assert_eq!(image.findings()[0], bad("an extent node has an impossible entry count"));
    let mut image = Image::sample();
    image.edit_node(leaf, |entries| entries[0].file_page = 511.into());
    assert_eq!(image.findings(), [F::NodeKeyWrong { ino: BIG, file_page: 510, found: 511 }]);
}

#[test]
fn blocks_claimed_twice() {
    let shared = Image::sample().upper(FILE).root[0].lba.get();
    let twice = |ino, owner, page, pages| F::BlocksClaimedTwice { ino, owner: Some(owner), page, pages };
    // Two files share two data pages.
    expect(
        |i| {
            i.edit_upper(LEAF, |u| {
                u.count = 1.into();
                u.root[0] = extent(0, shared, 2);
            });
            i.edit_lower(LEAF, |l| {
                l.pages = 2.into();
                l.size = 8192.into();
            });
        },
        |_| vec![twice(LEAF, FILE, shared, 2)],
    );
    // An attribute page that is another file's data.
    expect(
        |i| {
            i.edit_upper(LEAF, |u| u.xattr = shared.into());
            i.edit_lower(LEAF, |l| l.pages = 1.into());
        },
        |_| vec![twice(LEAF, FILE, shared, 1)],
    );
    // Two pointers to one node, and a node that is its own child.
    let mut image = Image::sample();
    image.edit_upper(BIG, |u| u.root[1].lba = u.root[0].lba);
    let first = image.upper(BIG).root[0].lba.get();
    assert_eq!(image.findings()[0], twice(BIG, BIG, first, 1));
    let mut image = Image::sample();
    let middle = image.upper(DEEP).root[0].lba.get();
    image.edit_node(middle, |entries| entries[0].lba = middle.into());
    assert_eq!(image.findings()[0], twice(DEEP, DEEP, middle, 1));
}

#[test]
fn endless_shared_claims_end() {
    let mut image = Image::sample();
    let data = image.data();
    for ino in FIRST_SMALL..FIRST_SMALL + SMALL_FILES {
        image.edit_upper(ino, |u| {
            u.count = 1.into();
            u.root[0] = extent(0, data, PAGES as u32 - data);
        });
    }
    assert!(image.findings().contains(&F::ClaimsNotListed));
}

#[test]
fn block_bitmap() {
    let first = Image::sample().upper(FILE).root[0].lba.get();
    expect(
        |i| (first..first + 3).for_each(|page| i.set_block_bit(page, false)),
        |_| vec![F::BlocksMarkedFree { page: first, pages: 3 }],
    );
    expect(|i| i.set_block_bit(4, false), |_| vec![F::BlocksMarkedFree { page: 4, pages: 1 }]);
    expect(
        |i| {
            let page = i.free_page();
            i.set_block_bit(page, true);
            i.set_block_bit(page - 1, true);
        },
        |i| vec![F::BlocksLeaked { page: i.free_page() - 1, pages: 2 }],
    );
    // Bits beyond the last page mean nothing.
    expect(|i| i.set_block_bit(PAGES as u32, true), |_| vec![]);
}

#[test]
fn data_beyond_the_end() {
    expect(
        |i| i.edit_lower(FILE, |l| l.size = 8192.into()),
        |_| vec![F::DataBeyondEnd { ino: FILE, file_page: 2 }],
    );
    // Allowed where a truncation was cut short: the next mount finishes it.
    expect(
        |i| {
            i.edit_lower(FILE, |l| l.size = 8192.into());
            i.set_orphan(0, FILE);
        },
        |_| vec![],
    );
}

#[test]
fn extended_attributes() {
    let page = Image::sample().upper(FILE).xattr.get();
    let bad = |reason: &str| vec![F::AttributesBad { ino: FILE, page, reason: reason.into() }];
    expect(|i| i.page_mut(page)[20] ^= 1, |_| bad("a page of extended attributes has a wrong checksum"));
    expect(
        |i| i.write_attributes(page, LEAF, &[("user.a", "b")]),
        |_| bad("a page of extended attributes has an impossible owner"),
    );
    expect(|i| i.write_attributes(page, FILE, &[]), |_| bad("it holds no attribute"));
    expect(
        |i| i.write_attributes(page, FILE, &[("user.a", "b"), ("user.a", "c")]),
        |_| bad("a name occurs twice"),
    );
}

#[test]
fn unreadable_pages_are_findings() {
    let image = Image::sample();
    let (leaf, docs) = (image.upper(BIG).root[0].lba.get(), image.upper(DOCS).root[0].lba.get());
    let structures = [
        (image.layout.inode_bitmap(0) as u32, "the inode bitmap"),
        (image.layout.block_bitmap(0) as u32, "the block bitmap"),
        (image.layout.orphans + 2, "the orphan table"),
        (image.layout.inode_table(0) as u32 + 3, "inodes"),
        (leaf, "an extent node"),
        (docs, "a directory"),
        (image.upper(FILE).xattr.get(), "extended attributes"),
        (image.upper(LONG_LINK).root[0].lba.get(), "a symbolic link's target"),
    ];
    for (page, structure) in structures {
        let device = image.device();
        device.spoil(u64::from(page));
        let report = fsck::check(&device, &mut |_| ()).expect("a media error is a finding");
        let reason = DeviceError::Media(amphi_device::Lpa(u64::from(page))).to_string();
        let expected = F::PageUnreadable { page, structure, reason };
        assert!(report.findings.iter().any(|f| f.kind == expected), "{structure}: {:?}", report.findings);
    }
}
