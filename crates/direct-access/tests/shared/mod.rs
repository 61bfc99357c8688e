//! Small SSDs whose firmware caches pages, file systems on them, and what the tests of each such file system
//! do with them.

use std::sync::Arc;

use amphi_conformance::damaged;
use amphi_device::{BytePort, BytePortExt, Structure};
use amphi_direct_access::DirectAccess;
use amphi_rt::random::Generator;
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};
use amphi_volume::{FormatOptions, MountOptions, Volume};

const PAGE: u64 = 4096;

/// What is tested here.
pub trait Tested: DirectAccess<Device = Ssd> + Volume<Ssd> {}

impl<F: DirectAccess<Device = Ssd> + Volume<Ssd>> Tested for F {}

/// An SSD that takes no time.
pub fn ssd(bytes: u64) -> Arc<Ssd> {
    ssd_of("free", bytes)
}

/// The same with what a profile promises.
pub fn ssd_of(profile: &str, bytes: u64) -> Arc<Ssd> {
    let mut profile = Profile::named(profile).expect("the profile exists");
    profile.firmware.kind = Firmware::PageCache;
    (profile.flash.channels, profile.flash.ways, profile.flash.pages_per_block) = (1, 1, 16);
    profile.firmware.memory_bytes = 1 << 20;
    let options = OpenOptions { free: true, ..OpenOptions::default() };
    Arc::new(Ssd::try_in_memory(&profile, bytes, &options).expect("an SSD in memory"))
}

pub fn format<F: Tested>(ssd: &Arc<Ssd>, inodes: u32) {
    let format = FormatOptions { inodes: Some(inodes), ..FormatOptions::default() };
    <F as Volume<Ssd>>::format(ssd, &format).expect("it is large enough");
}

pub fn mount<F: Tested>(ssd: &Arc<Ssd>, cached_inodes: usize, read_only: bool) -> F {
    let options = MountOptions { inode_cache: Some(cached_inodes), read_only, ..MountOptions::default() };
    Volume::mount(ssd, &options).expect("what was made can be mounted")
}

pub fn make<F: Tested>(bytes: u64, inodes: u32, cached_inodes: usize) -> F {
    let ssd = ssd(bytes);
    format::<F>(&ssd, inodes);
    mount(&ssd, cached_inodes, false)
}

pub fn roomy<F: Tested>() -> F {
    make(128 << 20, 12_000, 10_000)
}

/// So few inodes in memory that they come and go all the time, and are read again.
pub fn cramped<F: Tested>() -> F {
    make(24 << 20, 3000, 3)
}

/// Unmounts, checks, and mounts again.
pub fn remount<F: Tested>(fs: F, read_only: bool) -> F {
    let ssd = Arc::clone(&fs.ground().medium.device);
    Volume::unmount(fs).expect("an idle file system unmounts");
    assert_clean::<F>(&ssd);
    mount(&ssd, 3, read_only)
}

/// As after the program was killed.
pub fn crash<F: Tested>(fs: F) -> F {
    let ssd = Arc::clone(&fs.ground().medium.device);
    drop(fs);
    assert_clean::<F>(&ssd);
    mount(&ssd, 3, false)
}

pub fn assert_clean<F: Tested>(ssd: &Arc<Ssd>) {
    let report = <F as Volume<Ssd>>::check(ssd, &mut |_| {}).expect("it can be checked");
    assert!(report.is_clean(), "{:?}", report.findings);
}

pub fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a valid name")
}

pub fn create(fs: &impl FileSystem, text: &str) -> Ino {
    let made = fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
    made.expect("there is room").attr.ino
}

pub fn write(fs: &impl FileSystem, ino: Ino, offset: u64, bytes: &[u8]) {
    let written = fs.write(ino, offset, bytes, WriteMode::default(), &Cred::ROOT);
    assert_eq!(written, Ok(bytes.len()));
}

/// Bytes stored and loaded by the byte port, and barriers. Nothing goes by blocks.
pub fn cost<F: Tested, T>(fs: &F, body: impl FnOnce() -> T) -> (u64, u64, u64) {
    let medium = &fs.ground().medium;
    let before = (medium.device.stats(), medium.barriers());
    body();
    let after = (medium.device.stats(), medium.barriers());
    assert_eq!(after.0.block_write.bytes(), before.0.block_write.bytes(), "no block is written");
    assert_eq!(after.0.block_read.bytes(), before.0.block_read.bytes(), "no block is read");
    let barriers = after.1 - before.1;
    assert_eq!(after.0.verify_reads - before.0.verify_reads, barriers);
    (
        after.0.byte_write.bytes() - before.0.byte_write.bytes(),
        after.0.byte_read.bytes() - before.0.byte_read.bytes(),
        barriers,
    )
}

const DAMAGED_BYTES: u64 = 2 << 20;

/// A file system with one of everything, after a crash or an unmount.
fn made<F: Tested>(crashed: bool) -> Arc<Ssd> {
    let ssd = ssd(DAMAGED_BYTES);
    format::<F>(&ssd, 64);
    let fs: F = mount(&ssd, 100, false);
    damaged::one_of_everything(&fs, 200, |put| {
        put(0, &vec![2; 100_000]);
        put(100, &[3; 5000]);
        (0..80).for_each(|page| put((3 << 20) + page * PAGE, &[5; 70]));
    });
    if crashed {
        drop(fs)
    } else {
        Volume::unmount(fs).expect("it is idle")
    }
    ssd
}

/// Changes some words of a device, and uses what is left.
pub fn damage_and_use<F: Tested>(seed: u64) {
    let mut dice = Generator::new(seed);
    let ssd = made::<F>(dice.below(2) == 0);
    for _ in 0..=dice.below(6) {
        // Mostly where something is: the log or the journals, the first inodes, the first pages behind them.
        let page = match dice.below(4) {
            0 => dice.below(DAMAGED_BYTES / PAGE),
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
            4 => dice.below(DAMAGED_BYTES / 64) * 64,
            _ => dice.next(),
        };
        ssd.persist(at, &word.to_le_bytes(), None, Structure::Other).expect("it is inside");
    }
    let _any = <F as Volume<Ssd>>::check(&ssd, &mut |_| {});
    if let Ok(fs) = <F as Volume<Ssd>>::mount(&ssd, &MountOptions::default()) {
        damaged::use_all(&fs, (3 << 20) - 100);
        let _any = Volume::unmount(fs);
    }
    let _any = <F as Volume<Ssd>>::check(&ssd, &mut |_| {});
}
