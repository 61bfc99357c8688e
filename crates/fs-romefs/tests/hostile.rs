//! Whatever the memory area holds, mounting, using and checking it ends in an answer or an error: no panic,
//! no loop, no memory without bounds. `AMPHI_SEED` replays one case.

mod small;

use std::sync::Arc;

use amphi_conformance::damaged;
use amphi_device::{BytePortExt, Structure};
use amphi_fs_romefs::{FormatOptions, RomeFs, fsck};
use amphi_rt::random::Generator;
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};
use small::{roomy, ssd};

const MEMORY: u64 = 1 << 20;

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a valid name")
}

/// A file system with one of everything, after a crash or an unmount.
fn made(crashed: bool) -> Arc<Ssd> {
    let ssd = ssd(MEMORY, 16 << 20);
    let format = FormatOptions { inodes: Some(64), block_bytes: 16 << 10, ..FormatOptions::default() };
    RomeFs::format(&ssd, &format).expect("it can be formatted");
    let fs = RomeFs::mount(&ssd, roomy()).expect("it can be mounted");
    let make = |text: &str| {
        let made = fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
        made.expect("there is room").attr.ino
    };
    let put = |ino, offset, bytes: &[u8]| {
        fs.write(ino, offset, bytes, WriteMode::default(), &Cred::ROOT).expect("there is room");
    };
    let (small, large) = (make("small"), make("large"));
    put(small, 10, &[1; 300]);
    put(large, 0, &vec![2; 300_000]);
    put(large, 100, &[3; 5000]);
    put(large, 40_000, &[4; 50]);
    put(large, 3 << 20, &[5; 70_000]);
    fs.mkdir(Ino::ROOT, name("dir"), 0o755, &Cred::ROOT).expect("there is room");
    fs.symlink(Ino::ROOT, name("link"), &[b'x'; 200], &Cred::ROOT).expect("there is room");
    fs.setxattr(small, b"user.a", b"value", amphi_vfs::XattrMode::Set).expect("there is room");
    if crashed {
        drop(fs)
    } else {
        fs.unmount().expect("it is idle")
    }
    ssd
}

fn run(seed: u64) {
    let mut dice = Generator::new(seed);
    let ssd = made(dice.below(2) == 0);
    for _ in 0..=dice.below(6) {
        // Mostly where something is: what is used lies at the front of each area.
        let at = match dice.below(4) {
            0 => dice.below(MEMORY / 8) * 8,
            1 => dice.below(4096 / 8) * 8,
            _ => dice.below(MEMORY / 4096) * 4096 + dice.below(64) * 8,
        };
        let word = match dice.below(5) {
            0 => 0,
            1 => u64::MAX,
            2 => dice.below(600),
            3 => dice.below(600) << 32,
            _ => dice.next(),
        };
        ssd.persist(at, &word.to_le_bytes(), None, Structure::Other).expect("it is inside");
    }
    let _any = fsck::check(&ssd);
    if let Ok(fs) = RomeFs::mount(&ssd, roomy()) {
        damaged::use_all(&fs, (3 << 20) - 100);
        let _any = fs.unmount();
    }
    let _any = fsck::check(&ssd);
}

#[test]
fn damaged_memory_zones_are_answered_or_refused() {
    damaged::each_seed("amphi-fs-romefs", 1500, 100_000, run);
}
