//! A small emulated SSD with a memory area, and a small store on it.

use std::sync::Arc;

use amphi_device::Lpa;
use amphi_lsm::{Options, Place, Store};
use amphi_ssd::{Firmware, Profile, Ssd};

/// Where the store is. Its log has two halves of 8 KB.
pub const PLACE: Place =
    Place { log_at: 4096, log_bytes: 4096 + 2 * 8192, first: Lpa(2), pages: 900, backing_pages: 0 };

/// As [`PLACE`], with a backing for four files of the log.
pub const SMALL_LOG: Place = Place { backing_pages: 12, ..PLACE };

/// With a small log, several files of it for each memtable.
pub fn options(place: &Place) -> Options {
    let memtable_bytes = if place.backing_pages > 0 { 25_000 } else { OPTIONS.memtable_bytes };
    Options { memtable_bytes, ..OPTIONS }
}

/// A memtable that is full after a few writes, tables of a few blocks.
pub const OPTIONS: Options = Options {
    memtable_bytes: 3000,
    table_bytes: 8192,
    level0_tables: 2,
    level1_bytes: 16 << 10,
    block_cache_bytes: 64 << 10,
    log_tasks: 2,
    grouped: false,
    groups: 1,
    merges: true,
};

/// A device of 4 MB. Only with a profile that takes time do tasks of a Sim get in each other's way.
pub fn device(profile: &str) -> Ssd {
    let mut profile = Profile::named(profile).expect("built in");
    (profile.flash.channels, profile.flash.ways, profile.flash.pages_per_block) = (1, 1, 16);
    profile.log.region_bytes = 64 << 10;
    profile.log.txlog_bytes = 4096;
    profile.firmware.kind = Firmware::Memory;
    profile.firmware.memory_bytes = 1 << 20;
    Ssd::in_memory(&profile, 4 << 20)
}

/// An empty store.
pub fn store(profile: &str, place: &Place, options: Options) -> (Arc<Ssd>, Store<Ssd>) {
    let device = Arc::new(device(profile));
    Store::format(&device, place).expect("formats");
    let store = Store::open(Arc::clone(&device), place.first, options).expect("opens");
    (device, store)
}

/// The device after it has lost and got power.
#[allow(dead_code, reason = "not every test cuts the power")]
pub fn restart(device: Arc<Ssd>) -> Arc<Ssd> {
    Arc::new(Arc::into_inner(device).expect("nobody else has it").restart().expect("powers up"))
}
