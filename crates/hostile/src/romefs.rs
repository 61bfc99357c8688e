//! RomeFS on a memory zone that was overwritten, behind renewed checksums if the input wants that: checked,
//! mounted, walked, changed, mended. The block zone has nothing that could be damaged but files' contents.

use std::sync::Arc;

use amphi_device::{BytePort, BytePortExt, PAGE_BYTES, Structure};
use amphi_fs_romefs::format::{
    CHECKPOINT_AT, HEADS_AT, JOURNAL_ALIGN, Layout, Map, RecordHeader, RecordTail, Superblock, header_crc,
};
use amphi_fs_romefs::{FormatOptions, MountOptions, RomeFs};
use amphi_rt::sync::OnceCell;
use amphi_ssd::{Firmware, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};
use amphi_volume::Report;
use zerocopy::{FromBytes, IntoBytes};

use crate::input::Input;
use crate::used::{Damaged, change, furnish};

const MEMORY: u64 = 512 << 10;
const PAGES: u64 = 640;
const BLOCK: u64 = 16 << 10;

/// A device with a file system that has a little of everything, and a journal that holds transactions which
/// a mount applies. Forked, never used.
fn origin() -> &'static Ssd {
    static ORIGIN: OnceCell<Ssd> = OnceCell::new();
    ORIGIN.get_or_init(|| {
        let device = crate::with_memory(Firmware::Memory, MEMORY, PAGES);
        let format = FormatOptions { inodes: Some(96), block_bytes: BLOCK, ..FormatOptions::default() };
        RomeFs::format(&device, &format).expect("the device is large enough");
        let mount = || RomeFs::mount(&device, mount_options()).expect("what was just formatted mounts");
        let fs = mount();
        furnish(&fs).expect("an empty file system has room");
        fs.unmount().expect("an idle file system unmounts");
        // A crash: these stay in the journal.
        let fs = mount();
        both_zones(&fs).expect("there is room");
        drop(fs);
        let device = Arc::into_inner(device).expect("nobody else has it");
        device.forkable().expect("memory")
    })
}

/// A file with data blocks, logs over them, and mapping pages.
fn both_zones(fs: &dyn FileSystem) -> amphi_vfs::Result<()> {
    let (cred, how) = (&Cred::ROOT, WriteMode::default());
    let large = fs.create(Ino::ROOT, Name::new(b"large")?, FileType::Regular, 0o644, 0, cred)?.attr.ino;
    fs.write(large, 0, &[2; 5 * BLOCK as usize], how, cred)?;
    fs.write(large, 100, &[3; 5000], how, cred)?;
    fs.write(large, 3 * BLOCK + 40, &[4; 50], how, cred)?;
    fs.write(large, 40 * BLOCK, &[5; BLOCK as usize + 100], how, cred)?;
    Ok(())
}

fn mount_options() -> MountOptions {
    MountOptions {
        checkpoint_interval_ns: 0,
        page_cache_pages: 64,
        inode_cache: 32,
        ..MountOptions::default()
    }
}

/// Damages the memory zone as the input says, then does with the file system what people do with one.
pub fn romefs_image(input: &[u8]) {
    let device = origin().fork().expect("memory");
    damage(&device, &mut Input::new(input));
    let device = Arc::new(device);
    let damaged = Damaged {
        mount: |device| RomeFs::mount(device, mount_options()),
        is_sound: Report::is_clean,
        change: |fs| drop(change(fs)),
    };
    damaged.on(&device);
}

fn layout(device: &Ssd) -> Layout {
    let mut superblock = [0; size_of::<Superblock>()];
    device.load(0, &mut superblock, Structure::Other).expect("reads");
    let superblock = Superblock::read_from_bytes(&superblock).expect("a superblock's bytes");
    Layout::of(&superblock, MEMORY, PAGES * 4096).expect("the origin is sound")
}

fn damage(device: &Ssd, input: &mut Input<'_>) {
    let layout = layout(device);
    for _ in 0..48 {
        if input.is_empty() {
            return;
        }
        let kind = input.u8();
        // What is in use comes first in each area.
        let (start, bytes) = match kind % 12 {
            0 => (0, size_of::<Superblock>() as u64),
            1 => (CHECKPOINT_AT, 8),
            2 => (HEADS_AT, 64 * layout.plan.lanes),
            3 => {
                let map = Map::ALL[input.below(Map::ALL.len() as u64) as usize];
                (layout.map(map).at, layout.map(map).bytes.min(64))
            }
            4..=6 => (layout.inode(1), 64 * 256),
            7 | 8 => (layout.leaves.at, layout.leaves.bytes.min(16 * 256)),
            9 => (layout.pages.at, layout.pages.bytes.min(16 << 12)),
            10 => (layout.lane(input.below(layout.plan.lanes)), 8 << 10),
            _ => (0, layout.bytes()),
        };
        let width = 1_u64 << (input.u8() % 4);
        let at = (start + input.below(bytes)) / width * width;
        let value = input.telling(PAGES).to_le_bytes();
        device.persist(at, &value[..width as usize], None, Structure::Other).expect("it is inside");
        if kind < 224 {
            renew_checksums(device, &layout, at);
        }
    }
}

/// Makes the checksum of what lies around `at` that of what is there now.
fn renew_checksums(device: &Ssd, layout: &Layout, at: u64) {
    let load = |at: u64, into: &mut [u8]| device.load(at, into, Structure::Other).expect("reads");
    // A record goes on in the next page.
    let store = |mut at: u64, mut from: &[u8]| {
        while !from.is_empty() {
            let here = PAGE_BYTES - at as usize % PAGE_BYTES;
            let (part, rest) = from.split_at(here.min(from.len()));
            device.persist(at, part, None, Structure::Other).expect("it is inside");
            (at, from) = (at + part.len() as u64, rest);
        }
    };
    if at < size_of::<Superblock>() as u64 {
        let mut bytes = [0; size_of::<Superblock>()];
        load(0, &mut bytes);
        let mut superblock = Superblock::read_from_bytes(&bytes).expect("a superblock's bytes");
        superblock.crc = superblock.checksum().into();
        store(0, superblock.as_bytes());
    }
    if at < layout.journal.at || at >= layout.journal.end() {
        return;
    }
    let lane = (at - layout.journal.at) / layout.plan.lane_bytes;
    let (base, end) = (layout.lane(lane), layout.lane(lane) + layout.plan.lane_bytes);
    // The record that it lies in: records follow each other from the lane's first byte on.
    let mut next = base;
    while next + JOURNAL_ALIGN <= end {
        let mut head = [0; size_of::<RecordHeader>()];
        load(next, &mut head);
        let mut header = RecordHeader::read_from_bytes(&head).expect("a header's bytes");
        let bytes = u64::from(header.bytes.get()).max(JOURNAL_ALIGN).min(end - next);
        if at < next + bytes {
            header.crc = header_crc(&header).into();
            store(next, header.as_bytes());
            let mut record = vec![0; bytes as usize];
            load(next, &mut record);
            let marks = header.marks_at() as usize;
            let tail_at = header.tail_at() as usize;
            let (Some(body), Some(behind)) = (record.get(head.len()..marks), record.get(tail_at..)) else {
                return;
            };
            let Ok((tail, ops)) = RecordTail::read_from_prefix(behind) else { return };
            let Some(ops) = ops.get(..tail.bytes.get() as usize) else { return };
            let renewed = RecordTail::new(header.position.get(), tail.sequence.get(), body, ops);
            store(next + tail_at as u64, renewed.as_bytes());
            return;
        }
        next += bytes;
    }
}

#[cfg(test)]
mod tests {
    use amphi_fs_romefs::fsck;

    use super::*;

    /// If the format moves, this says so, instead of the damage missing its aim for ever.
    #[test]
    fn renewing_the_checksums_of_a_sound_file_system_changes_nothing() {
        let device = origin().fork().expect("memory");
        let layout = layout(&device);
        let all = |device: &Ssd| {
            let mut bytes = vec![0; layout.bytes() as usize];
            device.load(0, &mut bytes, Structure::Other).expect("reads");
            bytes
        };
        let before = all(&device);
        let mut records = 0;
        for lane in 0..layout.plan.lanes {
            let first = layout.lane(lane) as usize;
            let is_used = before[first..first + 64].iter().any(|byte| *byte != 0);
            if is_used {
                records += 1;
                renew_checksums(&device, &layout, layout.lane(lane));
                renew_checksums(&device, &layout, layout.lane(lane) + 70);
            }
        }
        renew_checksums(&device, &layout, 0);
        assert!(records > 0, "the journal is empty");
        assert!(before == all(&device), "a checksum was another one");
        romefs_image(&[]);
    }

    #[test]
    fn damage_behind_renewed_checksums_is_found_and_mended() {
        let device = origin().fork().expect("memory");
        let layout = layout(&device);
        // What the journal applies comes over this; inode 2 was made before.
        let at = layout.inode(2) + std::mem::offset_of!(amphi_fs_romefs::format::InodeHead, nlink) as u64;
        device.persist(at, &77_u32.to_le_bytes(), None, Structure::Other).expect("it is inside");
        let device = Arc::new(device);
        let repaired = fsck::repair(&device).expect("the device is sound");
        let found = format!("{:?}", repaired.before.findings);
        assert!(found.contains("77"), "{found}");
        assert_eq!(repaired.after.findings, []);
    }
}
