//! Random damage to an image that gets past every checksum: fields are overwritten and checksums renewed. One
//! seed, one damage.

use amphi_fs_bytefs::format::*;
use amphi_rt::hash::mix;
use zerocopy::IntoBytes;

use super::{FILE, Image};

/// A small generator (SplitMix64), so that a seed means the same damage everywhere and for ever.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Damages one to six structures of the image.
pub fn corrupt(image: &mut Image, random: &mut Random) {
    let used: Vec<u32> = (1..image.layout.inodes).filter(|&ino| image.inode_bit(ino)).collect();
    for _ in 0..1 + random.below(6) {
        let ino = used[random.below(used.len())];
        match random.below(9) {
            0 => {
                let bit = random.below(image.layout.inodes as usize) as u32;
                image.set_inode_bit(bit, random.below(2) == 0);
            }
            1 => {
                let bit = random.below(image.layout.pages as usize) as u32;
                image.set_block_bit(bit, random.below(2) == 0);
            }
            2 => {
                let slot = random.below(Layout::orphan_slots() as usize) as u32;
                let ino = interesting(image, random) as u32;
                image.set_orphan(slot, ino);
            }
            3 => {
                let mut half = image.lower(ino);
                scribble(image, random, half.as_mut_bytes());
                image.edit_lower(ino, |lower| *lower = half);
            }
            4 => {
                let mut half = image.upper(ino);
                scribble(image, random, half.as_mut_bytes());
                image.edit_upper(ino, |upper| *upper = half);
            }
            5 => corrupt_node(image, random),
            6 => corrupt_directory(image, random, ino),
            7 => {
                let page = image.upper(FILE).xattr.get();
                if (u64::from(image.data())..image.layout.pages).contains(&u64::from(page)) {
                    image.page_mut(page)[random.below(64)] = random.next() as u8;
                }
            }
            _ => {
                // An inode takes the place of another.
                let other = used[random.below(used.len())];
                let (lower, upper) = (image.lower(other), image.upper(other));
                image.edit_lower(ino, |l| *l = lower);
                image.edit_upper(ino, |u| *u = upper);
            }
        }
    }
}

/// A number that is likely to mean something where it is put.
fn interesting(image: &Image, random: &mut Random) -> u64 {
    match random.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => random.below(image.layout.inodes as usize) as u64,
        3 => random.below(image.layout.pages as usize) as u64,
        4 => image.layout.pages,
        5 => 1 << random.below(64),
        6 => random.below(8) as u64,
        _ => random.next(),
    }
}

/// Overwrites one to eight aligned bytes with something interesting.
fn scribble(image: &Image, random: &mut Random, bytes: &mut [u8]) {
    let width = 1 << random.below(4);
    let at = random.below(bytes.len() / width) * width;
    let value = interesting(image, random).to_le_bytes();
    bytes[at..at + width].copy_from_slice(&value[..width]);
}

/// Changes the header or an entry of an extent node.
fn corrupt_node(image: &mut Image, random: &mut Random) {
    let nodes: Vec<u32> =
        (image.data()..image.layout.pages as u32).filter(|&page| image.is_node(page)).collect();
    if nodes.is_empty() {
        return;
    }
    let mut entries = Vec::new();
    let page = nodes[random.below(nodes.len())];
    let Some((mut ino, mut depth)) = image.read_node(page, &mut entries) else { return };
    for _ in 0..1 + random.below(3) {
        match random.below(6) {
            0 => depth = random.below(6) as u16,
            1 => ino = interesting(image, random) as u32,
            2 => entries.truncate(random.below(entries.len() + 1)),
            _ if entries.is_empty() => {}
            3 => {
                let at = random.below(entries.len());
                entries[at].lba = nodes[random.below(nodes.len())].into();
            }
            _ => {
                let at = random.below(entries.len());
                let mut entry = entries[at];
                scribble(image, random, entry.as_mut_bytes());
                entries[at] = entry;
            }
        }
    }
    NodeHeader::encode(image.page_mut(page), ino, depth, &entries);
}

/// Changes bytes of a directory's contents, mostly of entry headers.
fn corrupt_directory(image: &mut Image, random: &mut Random, ino: u32) {
    let root = image.upper(ino).root[0];
    if image.lower(ino).mode.get() & mode::TYPE != mode::DIRECTORY
        || u64::from(root.lba.get()) >= image.layout.pages
        || root.lba.get() < image.data()
    {
        return;
    }
    for _ in 0..1 + random.below(4) {
        let line = random.below(PAGE / LINE) * LINE;
        let len = if random.below(4) == 0 { LINE } else { DIRENT_HEADER };
        let mut bytes = image.page(root.lba.get())[line..line + len].to_vec();
        scribble(image, random, &mut bytes);
        image.page_mut(root.lba.get())[line..line + len].copy_from_slice(&bytes);
    }
}
