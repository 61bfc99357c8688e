//! What RomeFS keeps in an inode in host memory: where its data is, and what is known of its contents.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use amphi_rt::sync::{RangeGuard, RangeLock};
use amphi_vfs::FileType;

use crate::buffer::Buffer;
use crate::dir::Dir;
use crate::format::PAGE;
use crate::mapping::Mapping;
use crate::tree::Tree;

/// A cached inode.
pub type Inode = amphi_names::Inode<Part>;
/// What its lock protects.
pub type State = amphi_names::State<Part>;

/// What RomeFS keeps in an inode.
#[derive(Default)]
pub struct Part {
    /// Where its data blocks, or a directory's pages, are.
    pub mapping: Mapping,
    /// Data blocks; of a directory, pages.
    pub blocks: u64,
    /// Log pages.
    pub logs: u64,
    /// A directory's entries.
    pub entries: u64,
    /// Page of the extended attributes, one higher.
    pub attributes_page: u32,
    /// A data block in units of 512 bytes, the same for all.
    pub block_sectors: u32,
    /// What is known of its contents.
    pub body: Body,
    /// What was written and is not durable yet.
    pub buffer: Option<Box<Buffer>>,
}

impl Part {
    /// Whether some of these bytes are in host memory alone, and not on their way.
    pub fn is_buffered(&self, bytes: Range<u64>) -> bool {
        self.buffer.as_ref().is_some_and(|buffer| buffer.meets(bytes))
    }
}

impl amphi_names::Part for Part {
    type Beside = Beside;

    fn sectors(state: &State) -> u64 {
        let page = PAGE as u64 / 512;
        let unit =
            if state.file_type == FileType::Directory { page } else { state.part.block_sectors.into() };
        state.part.blocks * unit + state.part.logs * page
    }
}

/// What is known of an inode's contents.
#[derive(Default)]
pub enum Body {
    /// Nothing yet; or there is nothing to know.
    #[default]
    Unknown,
    /// A file's data logs.
    File(Box<Tree>),
    /// A directory's entries.
    Dir(Box<Dir>),
    /// A symbolic link's target.
    Target(Box<[u8]>),
}

/// What RomeFS keeps beside an inode's lock.
#[derive(Default)]
pub struct Beside {
    /// Data blocks that somebody reads or writes (RO-5). Taken only with the inode locked, if free.
    pub ranges: RangeLock,
    /// Holders of [`AtOnce`].
    at_once: AtomicUsize,
}

/// Data blocks of a change that goes to the device at once. What is buffered meanwhile would lie over them,
/// and hide what comes later.
pub struct AtOnce<'a> {
    _range: RangeGuard<'a>,
    holders: &'a AtomicUsize,
}

impl Drop for AtOnce<'_> {
    fn drop(&mut self) {
        self.holders.fetch_sub(1, Ordering::Release);
    }
}

impl Beside {
    /// Takes data blocks for a change that goes to the device at once, if nobody else holds some of them. The
    /// caller has the inode locked, and nothing of them is buffered.
    pub fn try_at_once(&self, blocks: Range<u64>) -> Option<AtOnce<'_>> {
        let range = self.ranges.try_take(blocks, true)?;
        self.at_once.fetch_add(1, Ordering::Acquire);
        Some(AtOnce { _range: range, holders: &self.at_once })
    }

    /// Whether these blocks may be buffered now; asked with the inode locked. If not, the caller lets go of
    /// it, and waits for the blocks.
    pub fn may_buffer(&self, blocks: &Range<u64>) -> bool {
        self.at_once.load(Ordering::Acquire) == 0 || self.ranges.try_take(blocks.clone(), false).is_some()
    }
}
