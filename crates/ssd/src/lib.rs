//! The emulated SSD: a device that speaks bytes and blocks, keeps its contents and its battery-backed memory
//! in one sparse file, takes the time a profile says, and loses power on demand.
//!
//! It implements the mechanisms of ByteFS (ASPLOS'25): a byte-mappable address space beside the block
//! interface (§4.2), a transactional write log with a three-layer index (§4.3), reads and writes that merge
//! and void it (§4.4), cleaning, and recovery (§4.7), above a page-mapped flash translation layer with
//! garbage collection.
//!
//! ```
//! use amphi_device::{BlockPort, BytePortExt, Lpa, Structure};
//! use amphi_ssd::{Profile, Ssd};
//!
//! let ssd = Ssd::in_memory(&Profile::named("free")?, 16 << 20);
//! ssd.write(Lpa(3), &[7; 4096], Structure::Data)?;
//! ssd.persist(Lpa(3).byte(64), b"hello", None, Structure::Data)?;
//! ssd.power_cut(1);
//! let ssd = ssd.restart()?;
//! let mut page = [0; 4096];
//! ssd.read(Lpa(3), &mut page, Structure::Data)?;
//! assert_eq!((&page[64..69], page[69]), (&b"hello"[..], 7));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(not(target_endian = "little"))]
compile_error!("the image is mapped as little-endian words");

mod ba_buffer;
mod calibrate;
mod core;
mod dice;
mod dispatch;
mod error;
mod flash;
mod format;
mod image;
mod info;
mod log;
mod media;
mod memory;
mod overlay;
mod page_cache;
mod personality;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod ports;
mod power;
mod power_fork;
mod powerup;
mod profile;
mod protected;
mod ssd;
mod stats;
mod store;
mod timing;
mod worker;

pub use calibrate::{Calibration, RealTime, calibrate, real_time};
pub use error::{ImageError, ProfileError};
pub use flash::{Fate, GcPolicy, MediaProfile};
pub use info::{Info, Shutdown};
pub use ports::Ticket;
pub use profile::{
    BaBufferProfile, BlockDurabilityName, ByteDurabilityName, CompletionKind, Firmware, FirmwareProfile,
    FlashProfile, LinkKind, LinkProfile, LogProfile, PersistenceProfile, Profile, Published, QueueProfile,
};
pub use ssd::{OpenOptions, Ssd};
pub use stats::{
    ActivityStats, Bucket, CommandLatency, EraseBucket, FlashLatency, FlashTraffic, Latency, PathTraffic,
    Queue, Stats, StructureTraffic,
};
