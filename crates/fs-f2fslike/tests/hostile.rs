//! Whatever the device holds, mounting, using and checking it ends in an answer or an error: no panic, no
//! loop, no memory without bounds. `AMPHI_SEED` replays one case.

mod small;

use std::sync::Arc;

use amphi_conformance::damaged;
use amphi_device::{BlockPort, Lpa, Structure};
use amphi_fs_f2fslike::F2fsLike;
use amphi_rt::random::Generator;
use amphi_ssd::Ssd;
use amphi_vfs::FileSystem;
use amphi_volume::{FormatOptions, MountOptions, Volume};

type F2fs = F2fsLike<Ssd>;

const DEVICE: u64 = 4 << 20;
const PAGE: u64 = 4096;

/// A file system with one of everything, after a crash or an unmount.
fn made(crashed: bool) -> Arc<Ssd> {
    let ssd = small::ssd(DEVICE);
    <F2fs as Volume<Ssd>>::format(&ssd, &FormatOptions::default()).expect("it can be made");
    let fs = small::mount(&ssd, 100, false);
    let large = damaged::one_of_everything(&fs, 4000, |put| {
        put(0, &vec![2; 100_000]);
        put(100 << 20, &[3; 5000]);
    });
    fs.fsync(large, false).expect("memory does not fail");
    fs.sync().expect("memory does not fail");
    if crashed {
        drop(fs)
    } else {
        fs.unmount().expect("it is idle")
    }
    ssd
}

/// Puts a checksum right, where the block that is changed has one in the house's place, so that what is said
/// is believed.
fn reseal(page: &mut [u8]) {
    let crc = crc32c::crc32c(&page[8..]);
    page[4..8].copy_from_slice(&crc.to_le_bytes());
}

fn run(seed: u64) {
    let mut dice = Generator::new(seed);
    let ssd = made(dice.below(2) == 0);
    for _ in 0..=dice.below(6) {
        let lpa = Lpa(dice.below(DEVICE / PAGE));
        let mut page = vec![0; PAGE as usize];
        ssd.read(lpa, &mut page, Structure::Other).expect("it is inside");
        if page.iter().all(|byte| *byte == 0) {
            continue;
        }
        let at = [dice.below(512), dice.below(16), 452 + dice.below(60)][dice.below(3) as usize] as usize * 8;
        let old = u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
        let word = match dice.below(5) {
            0 => 0,
            1 => u64::MAX,
            2 => dice.below(600),
            3 => old ^ 1 << dice.below(64),
            _ => dice.next(),
        };
        page[at..at + 8].copy_from_slice(&word.to_le_bytes());
        if lpa.0 > 0 && dice.below(4) > 0 {
            reseal(&mut page);
        }
        ssd.write(lpa, &page, Structure::Other).expect("it is inside");
    }
    let _any = <F2fs as Volume<Ssd>>::check(&ssd, &mut |_| {});
    if let Ok(fs) = <F2fs as Volume<Ssd>>::mount(&ssd, &MountOptions::default()) {
        damaged::use_all(&fs, (100 << 20) - 100);
        let _any = fs.unmount();
    }
    let _any = <F2fs as Volume<Ssd>>::check(&ssd, &mut |_| {});
}

#[test]
fn damaged_images_are_answered_or_refused() {
    damaged::each_seed("amphi-fs-f2fslike", 300, 20_000, run);
}
