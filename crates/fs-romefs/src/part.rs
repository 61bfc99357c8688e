//! What RomeFS keeps in an inode in host memory: where its data is, and what is known of its contents.

use amphi_rt::sync::RangeLock;
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
}
