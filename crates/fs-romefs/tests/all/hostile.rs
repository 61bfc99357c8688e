//! Whatever the memory area holds, mounting, using and checking it ends in an answer or an error: no panic,
//! no loop, no memory without bounds. `AMPHI_SEED` replays one case.

use std::sync::Arc;

use amphi_conformance::damaged;
use amphi_device::{BytePortExt, Structure};
use amphi_fs_romefs::{FormatOptions, RomeFs, fsck};
use amphi_rt::random::Generator;
use amphi_ssd::Ssd;

use crate::small::{roomy, ssd};

const MEMORY: u64 = 1 << 20;

/// A file system with one of everything, after a crash or an unmount.
fn made(crashed: bool) -> Arc<Ssd> {
    let ssd = ssd(MEMORY, 16 << 20);
    let format = FormatOptions { inodes: Some(64), block_bytes: 16 << 10, ..FormatOptions::default() };
    RomeFs::format(&ssd, &format).expect("it can be formatted");
    let fs = RomeFs::mount(&ssd, roomy()).expect("it can be mounted");
    damaged::one_of_everything(&fs, 200, |put| {
        put(0, &vec![2; 300_000]);
        put(100, &[3; 5000]);
        put(40_000, &[4; 50]);
        put(3 << 20, &[5; 70_000]);
    });
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
        ssd.persist(at, &damaged::word(&mut dice).to_le_bytes(), None, Structure::Other)
            .expect("it is inside");
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
