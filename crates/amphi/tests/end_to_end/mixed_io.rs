//! One file through direct and buffered descriptors at once, with ranges punched, zeroed, copied, reserved
//! and cut off, against an array of bytes: what `fsx` does not do, for it cannot open with `O_DIRECT`. One to
//! four processes' worth of threads, each on its own file.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags, copy_file_range, fallocate};

use crate::rig::{Rig, can_mount};

/// Largest size of a file, and operations on it.
const SIZE_MAX: usize = 256 << 10;
const OPERATIONS: u32 = 5_000;

/// Alignment of direct I/O: offsets and lengths, and where the memory lies.
const SECTOR: usize = 512;

/// A function of the seed and nothing else (SplitMix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

/// Memory that direct I/O may use.
struct Room(Vec<u8>);

impl Room {
    fn new() -> Self {
        Self(vec![0; SIZE_MAX + 4096])
    }

    fn bytes(&mut self, length: usize) -> &mut [u8] {
        let start = self.0.as_ptr().align_offset(4096);
        &mut self.0[start..start + length]
    }
}

/// The file, opened both ways, and what it must hold.
struct Subject {
    buffered: File,
    direct: File,
    expected: Vec<u8>,
    room: Room,
}

impl Subject {
    fn new(path: &Path) -> Self {
        let open = |flags: OFlags| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            options.custom_flags(flags.bits() as i32).open(path).unwrap()
        };
        Self {
            buffered: open(OFlags::empty()),
            direct: open(OFlags::DIRECT),
            expected: Vec::new(),
            room: Room::new(),
        }
    }

    /// A range below the largest size, aligned for direct I/O or not.
    fn range(numbers: &mut Numbers, direct: bool) -> (usize, usize) {
        let unit = if direct { SECTOR } else { 1 };
        let offset = numbers.below(SIZE_MAX / unit) * unit;
        let longest = [64, 5_000, 70_000][numbers.below(3)].max(unit);
        let length = (1 + numbers.below(longest / unit)) * unit;
        (offset, length.min(SIZE_MAX - offset))
    }

    fn hold(&mut self, end: usize) {
        if self.expected.len() < end {
            self.expected.resize(end, 0);
        }
    }

    fn read(&mut self, offset: usize, length: usize, direct: bool) -> Result<(), String> {
        let file = if direct { &self.direct } else { &self.buffered };
        let into = self.room.bytes(length);
        into.fill(0xEE);
        let mut done = 0;
        while done < length {
            let read =
                file.read_at(&mut into[done..], (offset + done) as u64).map_err(|error| error.to_string())?;
            done += read;
            // A direct read that meets the end is short, and the next one would not be aligned.
            if read == 0 || direct {
                break;
            }
        }
        let end = (offset + length).min(self.expected.len()).max(offset);
        let right = self.expected.get(offset..end).unwrap_or(&[]);
        if done != right.len() {
            return Err(format!("{done} bytes read at {offset}, not {}", right.len()));
        }
        match (0..done).find(|&at| into[at] != right[at]) {
            Some(at) => Err(format!("{:#04x} at {}, not {:#04x}", into[at], offset + at, right[at])),
            None => Ok(()),
        }
    }

    fn step(&mut self, numbers: &mut Numbers, step: u32) -> Result<(), String> {
        let kind = numbers.below(20);
        let direct = kind < 12 && numbers.below(2) == 0;
        let (offset, length) = Self::range(numbers, direct);
        let end = offset + length;
        let said = |error: std::io::Error| error.to_string();
        let called = |error: rustix::io::Errno| error.to_string();
        match kind {
            0..=5 => return self.read(offset, length, direct),
            6..=11 => {
                let byte = step as u8 | 1;
                let from = self.room.bytes(length);
                from.iter_mut().enumerate().for_each(|(at, to)| *to = byte.wrapping_add(at as u8));
                let file = if direct { &self.direct } else { &self.buffered };
                file.write_all_at(from, offset as u64).map_err(said)?;
                self.hold(end);
                let room = self.room.bytes(length);
                self.expected[offset..end].copy_from_slice(room);
            }
            12 => {
                self.buffered.set_len(offset as u64).map_err(said)?;
                self.expected.resize(offset, 0);
            }
            13..=14 => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.buffered, flags, offset as u64, length as u64).map_err(called)?;
                let end = end.min(self.expected.len());
                self.expected.get_mut(offset..end).unwrap_or_default().fill(0);
            }
            15 => {
                fallocate(&self.buffered, FallocateFlags::ZERO_RANGE, offset as u64, length as u64)
                    .map_err(called)?;
                self.hold(end);
                self.expected[offset..end].fill(0);
            }
            16 => {
                fallocate(&self.buffered, FallocateFlags::empty(), offset as u64, length as u64)
                    .map_err(called)?;
                self.hold(end);
            }
            17..=18 => {
                let to = numbers.below(SIZE_MAX - length);
                // The kernel refuses to copy a range onto itself.
                if to < end && offset < to + length {
                    return Ok(());
                }
                let (mut from, mut into) = (offset as u64, to as u64);
                let length = length.min(self.expected.len().saturating_sub(offset));
                let mut left = length;
                while left > 0 {
                    let copied = copy_file_range(
                        &self.buffered,
                        Some(&mut from),
                        &self.buffered,
                        Some(&mut into),
                        left,
                    )
                    .map_err(called)?;
                    if copied == 0 {
                        return Err(format!("nothing copied of {left} bytes at {from}"));
                    }
                    left -= copied;
                }
                if length > 0 {
                    self.hold(to + length);
                    self.expected.copy_within(offset..offset + length, to);
                }
            }
            _ => self.direct.sync_data().map_err(said)?,
        }
        let size = self.buffered.metadata().map_err(said)?.len();
        if size == self.expected.len() as u64 {
            Ok(())
        } else {
            Err(format!("{size} bytes long, not {}", self.expected.len()))
        }
    }
}

/// Changes the file at `path` as `seed` says, and returns what it holds in the end.
fn change(path: &Path, seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    let mut subject = Subject::new(path);
    for step in 0..OPERATIONS {
        if let Err(what) = subject.step(&mut numbers, step) {
            panic!("seed {seed}, operation {step}: {what}");
        }
    }
    subject.expected
}

#[test]
fn direct_buffered_and_ranges_agree_on_every_byte() {
    if !can_mount() {
        return;
    }
    let mut seed = 0;
    for at_once in 1..=4_u64 {
        let rig = Rig::new("256M");
        rig.mount();
        let path = |seed: u64| rig.on_mount(&format!("file-{seed}"));
        let changing: Vec<_> = (0..at_once)
            .map(|_| {
                seed += 1;
                let (path, seed) = (path(seed), seed);
                (seed, std::thread::spawn(move || change(&path, seed)))
            })
            .collect();
        let expected: Vec<_> = changing
            .into_iter()
            .map(|(seed, thread)| (seed, thread.join().expect("the seed is above")))
            .collect();
        rig.umount();
        rig.fsck().unwrap();
        rig.mount();
        for (seed, contents) in expected {
            assert!(fs::read(path(seed)).unwrap() == contents, "seed {seed}: differs after a new mount");
        }
        rig.umount();
    }
    println!("{} operations with {seed} seeds", u64::from(OPERATIONS) * seed);
}
