//! Pages of files in host memory: what is cached of a file, what of it the device lacks, and how much of all
//! files may be cached.
//!
//! A file system keeps a [`Pages`] in each regular file's inode, under that inode's lock: nothing here locks
//! a file. It asks the file system one question, [`Mapping::map`]: where a page of the file is on the device.
//! Reading and writing the device stays with the file system, and so does the order in which it does so.
//! Everything is generic over what holds a page's bytes ([`Frame`]) and what the file system keeps beside
//! them ([`Beside`]).
//!
//! A write takes pages into the cache ([`Pages::write`]) and marks them dirty; a write-back takes the dirty
//! ones ([`Pages::take_dirty`], [`Pages::first_dirty`]) and marks them clean; a read finds what it must bring
//! in first ([`Pages::missing`]), keeps it ([`Pages::keep`]) and copies it out ([`Pages::copy_out`]).
//! [`Budget`] counts pages against limits, [`DirtyFiles`] says which files have writes to come, [`shrink`]
//! drops clean pages.
//!
//! Invariants: a page that is dirty is listed as dirty once, unless a write-back has taken the list. Frames
//! and dirty pages of a [`Pages`] are counted in the budget that its methods are given. A cached page that
//! the device does not hold is dirty, or on its way to the device.
#![forbid(unsafe_code)]

mod background;
mod budget;
mod dirty;
mod frames;
mod map;
mod page;
mod pages;
mod pieces;
mod pressure;
mod read_ahead;

pub use background::Background;
pub use budget::{Budget, CacheUse, Limits};
pub use dirty::{DirtyFiles, Listed, Since};
pub use frames::{FramePool, Stock};
pub use map::{Mapped, Mapping};
pub use page::{Beside, BoxedFrame, Frame, Page, SharedFrame, frames};
pub use pages::{Change, Pages, Plain, Run, Wanted};
pub use pieces::{Pieces, commands};
pub use pressure::{Cached, Round, shrink};
pub use read_ahead::ReadAhead;

/// Bytes of a page.
pub const PAGE: usize = 4096;
