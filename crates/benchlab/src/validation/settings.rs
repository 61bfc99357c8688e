//! What is compared, where, and how often.

use std::path::PathBuf;

use anyhow::Result;

use super::layout::Layout;
use super::steps::Asked;

/// Blocks of each journal: what mke2fs chooses for that size.
pub(super) const JOURNAL_BLOCKS: u32 = 8192;

/// Which file system of the kernel's is compared with which of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ext4 with `fs-ext4like`.
    Ext4 {
        /// Whether file data go through the journal, on both.
        journal_data: bool,
    },
    /// F2FS with `fs-f2fslike`.
    F2fs,
}

impl Kind {
    /// The kernel's name for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 { .. } => "ext4",
            Self::F2fs => "f2fs",
        }
    }

    pub(super) const fn options(self) -> &'static str {
        match self {
            Self::Ext4 { journal_data: false } => "data=ordered",
            Self::Ext4 { journal_data: true } => "data=journal",
            Self::F2fs => "",
        }
    }

    pub(super) fn mkfs(self) -> Vec<String> {
        let journal = format!("size={}", JOURNAL_BLOCKS / 256);
        let lazy = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
        let words: &[&str] = match self {
            Self::Ext4 { .. } => &["-b", "4096", "-J", &journal, "-E", lazy],
            // Its blocks are all new: nothing has to be discarded.
            Self::F2fs => &["-t", "0"],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    pub(super) fn layout(self, device: &str) -> Result<Layout> {
        match self {
            Self::Ext4 { .. } => Layout::of_ext4(device),
            Self::F2fs => Layout::of_f2fs(device),
        }
    }
}

/// How to run it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program that exports.
    pub amphi: PathBuf,
    /// What is compared.
    pub kind: Kind,
    /// Where a kernel package is unpacked, if the kernel's file system is to be in a virtual machine.
    pub machine: Option<PathBuf>,
    /// What `amphi bench guest` is told there, after port and directory: words that make `asked`.
    pub arguments: Vec<String>,
    /// What is done.
    pub asked: Asked,
    /// How often all of it is done, each time on new SSDs and from another place of the log on.
    pub rounds: usize,
    /// Where what the kernel's ext4 does in the first round is traced to.
    pub trace: Option<PathBuf>,
}
