//! Whatever the device holds, mounting, using and checking it ends in an answer or an error: no panic, no
//! loop, no memory without bounds. `AMPHI_SEED` replays one case.

mod small;

use std::sync::Arc;

use amphi_conformance::damaged;
use amphi_device::{BytePort, BytePortExt, Structure};
use amphi_fs_novalike::NovaLike;
use amphi_rt::random::Generator;
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};
use amphi_volume::{FormatOptions, MountOptions, Volume};

type Nova = NovaLike<Ssd>;

const DEVICE: u64 = 2 << 20;
const PAGE: u64 = 4096;

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a valid name")
}

/// A file system with one of everything, after a crash or an unmount.
fn made(crashed: bool) -> Arc<Ssd> {
    let ssd = small::ssd(DEVICE);
    let format = FormatOptions { inodes: Some(64), ..FormatOptions::default() };
    <Nova as Volume<Ssd>>::format(&ssd, &format).expect("it can be made");
    let fs = small::mount(&ssd, 100, false);
    let make = |text: &str| {
        let made = fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
        made.expect("there is room").attr.ino
    };
    let put = |ino, offset, bytes: &[u8]| {
        fs.write(ino, offset, bytes, WriteMode::default(), &Cred::ROOT).expect("there is room");
    };
    let (small, large) = (make("small"), make("large"));
    put(small, 10, &[1; 300]);
    put(large, 0, &vec![2; 100_000]);
    put(large, 100, &[3; 5000]);
    (0..80).for_each(|page| put(large, (3 << 20) + page * PAGE, &[5; 70]));
    fs.mkdir(Ino::ROOT, name("dir"), 0o755, &Cred::ROOT).expect("there is room");
    fs.symlink(Ino::ROOT, name("link"), &[b'x'; 200], &Cred::ROOT).expect("there is room");
    fs.setxattr(small, b"user.a", b"value", amphi_vfs::XattrMode::Set).expect("there is room");
    if crashed {
        drop(fs)
    } else {
        Volume::unmount(fs).expect("it is idle")
    }
    ssd
}

fn run(seed: u64) {
    let mut dice = Generator::new(seed);
    let ssd = made(dice.below(2) == 0);
    for _ in 0..=dice.below(6) {
        // Mostly where something is: the journals, the first inodes, the starts of logs.
        let page = match dice.below(4) {
            0 => dice.below(DEVICE / PAGE),
            _ => dice.below(60),
        };
        let at = page * PAGE + [dice.below(512), dice.below(64), 504][dice.below(3) as usize] * 8;
        let mut bytes = [0; 8];
        ssd.load(at, &mut bytes, Structure::Other).expect("it is inside");
        let old = u64::from_le_bytes(bytes);
        let word = match dice.below(6) {
            0 => 0,
            1 => u64::MAX,
            2 => dice.below(600),
            3 => old ^ 1 << dice.below(64),
            4 => dice.below(DEVICE / 64) * 64,
            _ => dice.next(),
        };
        ssd.persist(at, &word.to_le_bytes(), None, Structure::Other).expect("it is inside");
    }
    let _any = <Nova as Volume<Ssd>>::check(&ssd, &mut |_| {});
    if let Ok(fs) = <Nova as Volume<Ssd>>::mount(&ssd, &MountOptions::default()) {
        damaged::use_all(&fs, (3 << 20) - 100);
        let _any = Volume::unmount(fs);
    }
    let _any = <Nova as Volume<Ssd>>::check(&ssd, &mut |_| {});
}

#[test]
fn damaged_images_are_answered_or_refused() {
    damaged::each_seed("amphi-fs-novalike", 600, 50_000, run);
}
