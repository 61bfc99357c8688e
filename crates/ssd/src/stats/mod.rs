//! What a device counts and measures: counters that live in its image, meters that live as long as its power,
//! and the report of both.

mod account;
mod counters;
mod histogram;
mod meters;
mod report;
mod wear;

pub(crate) use counters::{Cause, Counter, Counters, Path};
pub use histogram::{Bucket, Latency};
pub(crate) use meters::{Activity, Command, FlashOperation, Meters};
pub use report::{
    ActivityStats, CommandLatency, FlashLatency, FlashTraffic, PathTraffic, Queue, Stats, StructureTraffic,
};
pub use wear::EraseBucket;
pub(crate) use wear::Wear;
