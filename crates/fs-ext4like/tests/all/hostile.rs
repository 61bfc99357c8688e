//! Images damaged at random behind renewed checksums: checking, mounting and using them ends with an answer
//! or a typed error, never in a panic, and a check changes nothing. `AMPHI_SEEDS=1000000` runs more seeds,
//! `AMPHI_SEED=n` replays one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use amphi_device::PAGE_BYTES;
use amphi_fs_ext4like::format::{DiskInode, GroupDescriptor, INODE_BYTES, Layout, Superblock, seal_block};
use amphi_fs_ext4like::{Ext4Like, fsck};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, RenameMode, WriteMode};
use zerocopy::FromBytes;

use crate::image::{self, Blocks, contents, device, furnished, quiet, walk};

/// A small generator: the tests' own chance.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Changes some bytes of one or two blocks, and renews every checksum over them.
fn corrupt(blocks: &mut Blocks, layout: &Layout, dice: &mut Dice) {
    let numbers: Vec<u64> = blocks.keys().copied().collect();
    for _ in 0..=dice.below(2) {
        let number = numbers[dice.below(numbers.len() as u64) as usize];
        let block = blocks.get_mut(&number).expect("one of them");
        // Where something is: near another byte that is not zero.
        let used: Vec<usize> = (0..PAGE_BYTES).filter(|at| block[*at] != 0).collect();
        for _ in 0..=dice.below(3) {
            let at = used[dice.below(used.len() as u64) as usize];
            let value = [0, 1, 0xFF, 0x7F, dice.below(256) as u8][dice.below(5) as usize];
            block[(at + dice.below(3) as usize).min(PAGE_BYTES - 1)] = value;
        }
    }
    renew(blocks, layout);
}

fn renew(blocks: &mut Blocks, layout: &Layout) {
    let tables = u64::from(layout.inode_tables)..u64::from(layout.journal);
    for (number, block) in blocks.iter_mut() {
        if *number == 0 {
            Superblock::seal(block);
        } else if tables.contains(number) {
            for (slot, bytes) in block.chunks_exact_mut(INODE_BYTES).enumerate() {
                let ino = ((number - tables.start) * 16) as u32 + slot as u32;
                let (inode, _) = DiskInode::read_from_prefix(bytes).expect("256 bytes");
                if bytes.iter().any(|byte| *byte != 0) {
                    bytes.copy_from_slice(&inode.encode(ino));
                }
            }
        } else if *number >= u64::from(layout.data) {
            // File data have none, and a changed byte more or less.
            seal_block(*number, block);
        }
    }
    let bitmaps = [layout.block_bitmaps, layout.inode_bitmaps]
        .map(|at| blocks.get(&u64::from(at)).map_or(0, |block| crc32c::crc32c(block)));
    let table = blocks.get_mut(&u64::from(layout.descriptors)).expect("there is one group");
    let (mut descriptor, _) = GroupDescriptor::read_from_prefix(&table[..]).expect("64 bytes");
    [descriptor.block_bitmap_crc, descriptor.inode_bitmap_crc] = bitmaps.map(Into::into);
    table[..64].copy_from_slice(&descriptor.encode(0));
}

/// Uses everything; errors are answers.
fn abuse(fs: &dyn FileSystem) {
    let name = |text: &'static str| Name::new(text.as_bytes()).expect("valid");
    let _damaged_or_not = walk(fs);
    let made = fs.create(Ino::ROOT, name("new"), FileType::Regular, 0o644, 0, &Cred::ROOT);
    if let Ok(entry) = made {
        let _ = fs.write(entry.attr.ino, 3000, &[1; 20_000], WriteMode::default(), &Cred::ROOT);
        let _ = fs.fsync(entry.attr.ino, false);
    }
    for text in ["docs", "sparse", "large too"] {
        let Ok(found) = fs.lookup(Ino::ROOT, name(text)) else { continue };
        let _ = fs.write(found.attr.ino, 100_000, &[2; 5000], WriteMode::default(), &Cred::ROOT);
        let _ = fs.rename(Ino::ROOT, name("new"), found.attr.ino, name("moved"), RenameMode::Replace);
        let _ = fs.unlink(Ino::ROOT, name(text));
        let _ = fs.rmdir(Ino::ROOT, name(text));
        fs.forget(found.attr.ino, 1);
    }
    let _ = fs.sync();
}

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    match number("AMPHI_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("AMPHI_SEEDS").unwrap_or(800),
    }
}

#[test]
fn random_damage_ends_in_a_report_and_in_errors() {
    let sample = contents(&furnished());
    let layout = Layout::of(&Superblock::decode(&sample[&0], image::BLOCKS).expect("it is sound"));
    let mut damaged = 0;
    for seed in seeds() {
        let mut blocks = sample.clone();
        corrupt(&mut blocks, &layout, &mut Dice(seed));
        let device = device(&blocks);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let report = fsck::check(&device);
            assert!(contents(&device) == blocks, "a check has changed the image");
            if let Ok(fs) = Ext4Like::mount(Arc::clone(&device), quiet()) {
                abuse(&fs);
                let _ = fs.unmount();
            }
            let _ = fsck::check(&device);
            report.is_ok_and(|report| report.is_clean())
        }));
        match outcome {
            Ok(clean) => damaged += u64::from(!clean),
            Err(_) => panic!("a panic: replay with AMPHI_SEED={seed}"),
        }
    }
    println!("{damaged} images found damaged");
}
