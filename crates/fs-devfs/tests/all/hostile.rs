//! Whatever flash and protected memory hold, mounting, using and checking it ends in an answer or an error:
//! no panic, no loop, no memory without bounds. `AMPHI_SEED` replays one case.

use std::sync::Arc;

use amphi_conformance::damaged;
use amphi_device::{BlockPort, BytePort, BytePortExt, Device, Lpa, PAGE_BYTES, Structure};
use amphi_fs_devfs::{DevFs, FormatOptions, MountOptions};
use amphi_rt::random::Generator;
use amphi_ssd::Ssd;
use amphi_volume::Volume;

use crate::small::ssd;

const MEMORY: u64 = 256 << 10;

/// A file system with one of everything, after a loss of power or an unmount.
fn made(crashed: bool) -> Arc<Ssd> {
    let ssd = ssd(MEMORY, 16 << 20);
    let format = FormatOptions { inodes: Some(100), ..FormatOptions::default() };
    DevFs::format(&ssd, &format).expect("it can be formatted");
    let fs = DevFs::mount(&ssd, &MountOptions::default()).expect("it can be mounted");
    damaged::one_of_everything(&fs, 200, |put| {
        put(0, &vec![2; 300_000]);
        put(40_000, &[4; 50]);
        put(30 << 20, &[5; 7000]);
    });
    if crashed {
        drop(fs);
    } else {
        fs.unmount().expect("it is idle");
    }
    ssd
}

/// Changes bytes of a metadata page, which has a right checksum again.
fn damage_page(ssd: &Ssd, dice: &mut Generator) {
    // Metadata lie at the front, and among the first blocks.
    let number = dice.below(200.min(ssd.capacity_pages()));
    let mut page = [0; PAGE_BYTES];
    ssd.read(Lpa(number), &mut page, Structure::Other).expect("it is inside");
    let at = if dice.below(2) == 0 { dice.below(64) } else { dice.below(510) } as usize * 8;
    page[at..at + 8].copy_from_slice(&damaged::word(dice).to_le_bytes());
    if number > 0 && dice.below(8) > 0 {
        page[4092..].fill(0);
        let crc = crc32c::crc32c(&page);
        page[4092..].copy_from_slice(&crc.to_le_bytes());
    }
    ssd.write(Lpa(number), &page, Structure::Other).expect("it is inside");
}

/// Changes bytes of the first entry of a slot, which has a right checksum again.
fn damage_slot(ssd: &Ssd, dice: &mut Generator) {
    let at = dice.below(8) * PAGE_BYTES as u64;
    let mut slot = [0; PAGE_BYTES];
    ssd.load(at, &mut slot, Structure::Other).expect("it is inside");
    let bytes = usize::from(u16::from_le_bytes([slot[56], slot[57]])).min(4032);
    let within = 32 + dice.below(32 + bytes as u64) as usize;
    let bytes_there = (PAGE_BYTES - within).min(8);
    slot[within..within + bytes_there].copy_from_slice(&damaged::word(dice).to_le_bytes()[..bytes_there]);
    if dice.below(8) > 0 {
        let bytes = usize::from(u16::from_le_bytes([slot[56], slot[57]])).min(4032);
        slot[60..64].fill(0);
        let crc = crc32c::crc32c(&slot[32..64 + bytes]);
        slot[60..64].copy_from_slice(&crc.to_le_bytes());
    }
    ssd.persist(at, &slot, None, Structure::Other).expect("it is inside");
}

fn run(seed: u64) {
    let mut dice = Generator::new(seed);
    let ssd = made(dice.below(2) == 0);
    for _ in 0..=dice.below(6) {
        if dice.below(3) == 0 { damage_slot(&ssd, &mut dice) } else { damage_page(&ssd, &mut dice) }
    }
    let check = || <DevFs<Ssd> as Volume<Ssd>>::check(&ssd, &mut |_| ());
    let _any = check();
    if let Ok(fs) = DevFs::mount(&ssd, &MountOptions::default()) {
        damaged::use_all(&fs, (30 << 20) - 100);
        let _any = fs.unmount();
    }
    let _any = check();
}

#[test]
fn damaged_devices_are_answered_or_refused() {
    damaged::each_seed("amphi-fs-devfs", 400, 100_000, run);
}
