//! The other firmware: device memory as a cache of whole flash pages, least recently used first out, with write-back.
//!
//! It is what ByteFS compares its write log with (§5.1: peers run "with SSD cache managed in page granularity"). A byte access to a page that is not
//! cached brings in the whole page; a dirty page goes to flash when it is evicted, or in the background when too many are dirty. The
//! frames are protected memory: what is in them survives a power cut, so a byte or block write is durable once it is there. There are
//! no transactions, and COMMIT, RECOVER and cleaning are refused.
//!
//! A frame's lasting state is its record in the image, which only a dirty frame has. Everything else is rebuilt at power-up.

mod access;
mod frames;
mod recover;
mod write_back;

pub(crate) use frames::PageCache;
