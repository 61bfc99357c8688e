//! ByteFS on a device whose contents were overwritten, behind renewed checksums if the input wants that:
//! checked, mounted, walked, changed, mended.

use std::sync::Arc;

use amphi_device::{BlockPort, Device, Lpa, PAGE_BYTES, Structure};
use amphi_fs_bytefs::format::{
    InodeLower, InodeUpper, LINE, Layout, NODE_MAGIC, SUPER_STATE_OFFSET, SuperState, Superblock, XATTR_MAGIC,
};
use amphi_fs_bytefs::{ByteFs, DataMode, FormatOptions, MountOptions};
use amphi_rt::sync::OnceCell;
use amphi_ssd::{OpenOptions, Ssd};
use amphi_volume::Result;
use zerocopy::{FromBytes, IntoBytes};

use crate::input::Input;
use crate::used::{Damaged, change, furnish};

const PAGES: u64 = 640;
const PAGE: usize = PAGE_BYTES;

/// A device with a file system that has a little of everything. Forked, never used.
fn origin() -> &'static Ssd {
    static ORIGIN: OnceCell<Ssd> = OnceCell::new();
    ORIGIN.get_or_init(|| {
        let mut profile = crate::tiny();
        profile.flash.pages_per_block = 16;
        let options = OpenOptions { free: true, ..OpenOptions::default() };
        let device = Ssd::try_in_memory(&profile, PAGES * PAGE as u64, &options).expect("a valid profile");
        ByteFs::format(&device, &FormatOptions { inodes: Some(256), ..FormatOptions::default() })
            .expect("the device is large enough");
        let device = Arc::new(device);
        let fs =
            ByteFs::mount(Arc::clone(&device), mount_options(true)).expect("what was just formatted mounts");
        furnish(&fs).expect("an empty file system has room");
        fs.unmount().expect("an idle file system unmounts");
        let device = Arc::into_inner(device).expect("nobody else has it");
        device.forkable().expect("memory")
    })
}

fn mount_options(journal: bool) -> MountOptions {
    let data = if journal { DataMode::Journal } else { DataMode::Ordered };
    MountOptions {
        data,
        write_back_interval_ns: 0,
        page_cache_pages: 64,
        inode_cache: 32,
        ..MountOptions::default()
    }
}

/// Damages the file system as the input says, then does with it what people do with file systems.
pub fn bytefs_image(input: &[u8]) {
    let device = origin().fork().expect("memory");
    let journal = input.len() % 2 == 1;
    damage(&device, &mut Input::new(input));
    let mount: fn(&Arc<Ssd>) -> Result<ByteFs<Ssd>> = if journal {
        |device| Ok(ByteFs::mount(Arc::clone(device), mount_options(true))?)
    } else {
        |device| Ok(ByteFs::mount(Arc::clone(device), mount_options(false))?)
    };
    let damaged = Damaged { mount, is_sound: |report| report.errors == 0, change: |fs| drop(change(fs)) };
    damaged.on(&Arc::new(device));
}

fn damage(device: &Ssd, input: &mut Input<'_>) {
    let page = read(device, 0);
    let superblock = Superblock::decode(&page, PAGES).expect("the origin is sound");
    let layout = superblock.layout();
    for _ in 0..48 {
        if input.is_empty() {
            return;
        }
        let kind = input.u8();
        let number = match kind % 8 {
            0 => 0,
            1 => layout.inode_bitmap(0),
            2 => layout.block_bitmap(0),
            3 => u64::from(layout.orphans),
            // The inodes that are in use come first.
            4 | 5 => layout.inode_table(0) + input.below(2),
            6 => layout.ag_data(0) + input.below(PAGES - layout.ag_data(0)),
            // The data pages that are in use come first.
            _ => layout.ag_data(0) + input.below(64),
        };
        let mut page = read(device, number);
        let at = usize::from(input.u16()) % PAGE;
        let width = 1_usize << (input.u8() % 4);
        let at = at / width * width;
        let value = input.telling(PAGES).to_le_bytes();
        page[at..at + width].copy_from_slice(&value[..width]);
        if kind < 224 {
            renew_checksums(&mut page, number, &layout);
        }
        device.write(Lpa(number), &page, Structure::Other).expect("writes");
    }
}

fn read(device: &Ssd, number: u64) -> [u8; PAGE] {
    let mut page = [0; PAGE];
    assert!(number < device.capacity_pages(), "page {number} is outside");
    device.read(Lpa(number), &mut page, Structure::Other).expect("reads");
    page
}

/// Makes the checksums of whatever is on a page those of what is there now.
fn renew_checksums(page: &mut [u8; PAGE], number: u64, layout: &Layout) {
    if number == 0 {
        let (mut superblock, _) = Superblock::read_from_prefix(&page[..]).expect("a page holds it");
        superblock.crc = superblock.checksum().into();
        page[..size_of::<Superblock>()].copy_from_slice(superblock.as_bytes());
        let state = SUPER_STATE_OFFSET..SUPER_STATE_OFFSET + LINE;
        let (line, _) = SuperState::read_from_prefix(&page[state.clone()]).expect("a page holds it");
        page[state].copy_from_slice(&line.encode());
    } else if let Some(first) = layout.first_inode(number) {
        for (slot, inode) in page.chunks_exact_mut(2 * LINE).enumerate() {
            let ino = first + slot as u32;
            let (lower, upper) = inode.split_at_mut(LINE);
            // An inode never used has no checksum either.
            if let Ok(half) = InodeLower::read_from_bytes(lower)
                && half.mode.get() != 0
            {
                lower.copy_from_slice(&half.encode(ino));
                let half = InodeUpper::read_from_bytes(upper).expect("a line holds it");
                upper.copy_from_slice(&half.encode(ino));
            }
        }
    } else {
        // Extent nodes and pages of extended attributes have headers alike: 16 bytes, the checksum last, over
        // those before and the body.
        let word = |at: usize, page: &[u8; PAGE]| usize::from(page[at]) | usize::from(page[at + 1]) << 8;
        let end = match page[..4].try_into().map(u32::from_le_bytes) {
            Ok(NODE_MAGIC) => 16 + word(6, page) * 16,
            Ok(XATTR_MAGIC) => word(6, page),
            _ => return,
        };
        if (16..=PAGE).contains(&end) {
            let crc = crc32c::crc32c_append(crc32c::crc32c(&page[..12]), &page[16..end]);
            page[12..16].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use amphi_fs_bytefs::fsck;

    use super::*;

    /// If the format moves, this says so, instead of the damage missing its aim for ever.
    #[test]
    fn renewing_the_checksums_of_a_sound_file_system_changes_nothing() {
        let device = origin().fork().expect("memory");
        let layout = Superblock::decode(&read(&device, 0), PAGES).expect("sound").layout();
        let (mut nodes, mut attributes) = (0, 0);
        for number in 0..PAGES {
            let before = read(&device, number);
            let mut after = before;
            renew_checksums(&mut after, number, &layout);
            assert!(before == after, "page {number}");
            let magic = u32::from_le_bytes(before[..4].try_into().expect("four bytes"));
            nodes += u32::from(number >= layout.ag_data(0) && magic == NODE_MAGIC);
            attributes += u32::from(number >= layout.ag_data(0) && magic == XATTR_MAGIC);
        }
        assert!(nodes > 0 && attributes > 0, "{nodes} extent nodes, {attributes} pages of attributes");
        bytefs_image(&[]);
    }

    #[test]
    fn damage_behind_renewed_checksums_is_found() {
        let device = origin().fork().expect("memory");
        let layout = Superblock::decode(&read(&device, 0), PAGES).expect("sound").layout();
        let number = layout.inode_table(0);
        let mut page = read(&device, number);
        // The root's number of names.
        let at = 2 * LINE + std::mem::offset_of!(InodeLower, nlink);
        page[at] = 77;
        renew_checksums(&mut page, number, &layout);
        device.write(Lpa(number), &page, Structure::Other).expect("writes");
        let report = fsck::check(&device, &mut |_| ()).expect("the device is sound");
        assert!(
            report.findings.iter().any(|finding| format!("{finding:?}").contains("77")),
            "{:?}",
            report.findings
        );
    }
}
