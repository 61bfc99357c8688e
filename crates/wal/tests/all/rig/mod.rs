//! A small emulated SSD with a BA-buffer, and a small log on it.

use std::sync::Arc;

use amphi_device::{EntryId, Lpa};
use amphi_ssd::{Firmware, Profile, Ssd};
use amphi_wal::{Log, Mode, Options, Place, Record, Recovery};

/// A header page and nine pages of records: four halves and a half of one.
pub const PLACE: Place = Place { at: Lpa(5), pages: 10 };
/// Bytes that records can take in it.
#[allow(dead_code, reason = "not every test fills it")]
pub const CAPACITY: usize = 9 * 4096;

/// Halves of two pages, not at the window's start.
pub fn options(mode: Mode) -> Options {
    Options { mode, window: 4096, half_bytes: 8192, entries: [EntryId(3), EntryId(9)] }
}

/// A device of 256 KB. It takes time, so that tasks of a Sim get in each other's way.
pub fn device(firmware: Firmware) -> Ssd {
    let mut profile = Profile::named("2b-ssd").expect("built in");
    (profile.flash.channels, profile.flash.ways, profile.flash.pages_per_block) = (1, 1, 16);
    profile.log.region_bytes = 64 << 10;
    profile.log.txlog_bytes = 4096;
    profile.firmware.kind = firmware;
    (profile.ba_buffer.bytes, profile.ba_buffer.entries) = (64 << 10, 3);
    Ssd::in_memory(&profile, 256 << 10)
}

/// An empty log that is open.
#[allow(dead_code, reason = "not every test begins with one")]
pub fn log(mode: Mode) -> (Arc<Ssd>, Log<Ssd>) {
    let device = Arc::new(device(Firmware::BaBuffer));
    amphi_wal::create(&*device, &PLACE).expect("makes a log");
    let (records, log) = open(&device, mode).expect("opens");
    assert_eq!(records, []);
    (device, log)
}

/// What is in the log, and the log.
pub fn open(device: &Arc<Ssd>, mode: Mode) -> amphi_wal::Result<(Vec<Record>, Log<Ssd>)> {
    let mut recovery = Recovery::begin(Arc::clone(device), PLACE, options(mode))?;
    let records = recovery.by_ref().collect::<amphi_wal::Result<_>>()?;
    Ok((records, recovery.open()?))
}

/// The device after it has lost and got power.
pub fn restart(device: Arc<Ssd>) -> Arc<Ssd> {
    Arc::new(Arc::into_inner(device).expect("nobody else has it").restart().expect("powers up"))
}
