//! What a check knows: inode by inode, directory by directory. Memory grows with the inodes and directories
//! in use, not with what the image claims.

use super::finding::{EntryAt, FindingKind};
use super::owners::Contested;
use super::report::Findings;
use crate::format::{AG_PAGES, Extent, Layout, ROOT_INO, mode};
use amphi_volume::{Bits, Claims};

/// What is known of one inode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InodeState {
    /// Link count in the inode.
    pub nlink: u32,
    /// Directory entries that name it.
    pub names: u32,
    /// For a directory, its index in [`State::dirs`].
    pub dir: u32,
    /// `S_IFMT` bits shifted right by 12; 0: unknown.
    pub kind: u8,
    flags: u8,
}

impl InodeState {
    const IN_USE: u8 = 1;
    const UNREADABLE: u8 = 2;
    const ORPHAN: u8 = 4;

    pub const fn in_use(self) -> bool {
        self.flags & Self::IN_USE != 0
    }

    pub const fn set_in_use(&mut self) {
        self.flags |= Self::IN_USE;
    }

    /// In use, but at least one half could not be decoded.
    pub const fn unreadable(self) -> bool {
        self.flags & Self::UNREADABLE != 0
    }

    pub const fn set_unreadable(&mut self) {
        self.flags |= Self::UNREADABLE;
    }

    /// In the orphan table.
    pub const fn orphan(self) -> bool {
        self.flags & Self::ORPHAN != 0
    }

    pub const fn set_orphan(&mut self) {
        self.flags |= Self::ORPHAN;
    }

    pub const fn is_directory(self) -> bool {
        self.kind == (mode::DIRECTORY >> 12) as u8 && !self.unreadable()
    }
}

/// What is known of one directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirState {
    pub ino: u32,
    /// Parent according to its inode.
    pub parent_stored: u32,
    /// The entry that names it; `dir` 0 while none was found.
    pub found: EntryAt,
    /// Subdirectories it is the parent of.
    pub subdirs: u32,
    /// Entries in use.
    pub entries: u64,
    /// Bytes in use.
    pub size: u64,
}

/// Part of a directory's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DirExtent {
    /// Index in [`State::dirs`].
    pub dir: u32,
    pub file_page: u32,
    pub first: u32,
    pub pages: u32,
}

/// A symbolic link's target outside its inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct LongTarget {
    pub ino: u32,
    pub page: u32,
    pub bytes: u16,
}

/// Inodes in one group of states.
const GROUP: usize = 1024;

/// Inode states, in groups that exist once one of their inodes is in use.
pub(super) struct Inodes {
    groups: Vec<Option<Box<[InodeState; GROUP]>>>,
    count: u32,
}

impl Inodes {
    fn new(count: u32) -> Self {
        let groups = (count as usize).div_ceil(GROUP);
        Self { groups: (0..groups).map(|_| None).collect(), count }
    }

    /// The state of any inode number, also an impossible one: not in use.
    pub fn get(&self, ino: u32) -> InodeState {
        let (group, index) = (ino as usize / GROUP, ino as usize % GROUP);
        self.groups.get(group).and_then(Option::as_ref).map_or(InodeState::default(), |g| g[index])
    }

    /// The state of an existing inode number to change.
    pub fn get_mut(&mut self, ino: u32) -> Option<&mut InodeState> {
        if ino >= self.count {
            return None;
        }
        let group = &mut self.groups[ino as usize / GROUP];
        let states = group.get_or_insert_with(|| Box::new([InodeState::default(); GROUP]));
        Some(&mut states[ino as usize % GROUP])
    }

    /// Every inode in use.
    pub fn in_use(&self) -> impl Iterator<Item = (u32, InodeState)> + '_ {
        self.groups.iter().enumerate().filter_map(|(i, g)| Some((i, g.as_ref()?))).flat_map(|(i, group)| {
            let first = (i * GROUP) as u32;
            (first..).zip(group.iter().copied()).filter(|(_, state)| state.in_use())
        })
    }
}

/// How a claim went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claimed {
    /// Nothing had any of the pages.
    pub alone: bool,
    /// All conflicts were listed; see [`Claims::claim`].
    pub complete: bool,
}

/// Everything a check has found out.
pub(super) struct State {
    pub layout: Layout,
    pub findings: Findings,
    pub inodes: Inodes,
    pub dirs: Vec<DirState>,
    pub dir_extents: Vec<DirExtent>,
    pub long_targets: Vec<LongTarget>,
    /// Pages of extended attributes with their inodes.
    pub attribute_pages: Vec<(u32, u32)>,
    pub claims: Claims,
    /// Pages whose first claimant is wanted.
    pub contested: Contested,
    pub inode_bits: Bits,
    pub block_bits: Bits,
    /// Where to look next for a page, or an inode, that nothing uses.
    next_page: u64,
    next_inode: u32,
}

impl State {
    pub fn new(layout: Layout) -> Self {
        let mut claims = Claims::new(layout.pages);
        for ag in 0..layout.ags() {
            let first = ag * AG_PAGES;
            claims.claim(first, layout.ag_data(ag) - first, |_, _| ());
        }
        Self {
            layout,
            findings: Findings::default(),
            inodes: Inodes::new(layout.inodes),
            dirs: Vec::new(),
            dir_extents: Vec::new(),
            long_targets: Vec::new(),
            attribute_pages: Vec::new(),
            claims,
            contested: Contested::default(),
            inode_bits: Bits::new(u64::from(layout.inodes)),
            block_bits: Bits::new(layout.pages),
            next_page: layout.ag_data(0),
            next_inode: ROOT_INO + 1,
        }
    }

    /// Claims pages, which lie in the data area, for an inode, and adds a finding for every run of them that
    /// was claimed before.
    pub fn claim(&mut self, ino: u32, page: u32, pages: u32) -> Claimed {
        self.contested.note(ino, page, pages);
        let Self { claims, findings, .. } = self;
        let mut alone = true;
        let complete = claims.claim(u64::from(page), u64::from(pages), |first, len| {
            alone = false;
            findings.add(FindingKind::BlocksClaimedTwice {
                ino,
                owner: None,
                page: first as u32,
                pages: len as u32,
            });
        });
        Claimed { alone, complete }
    }

    /// Takes a page that nothing uses, nor has used according to `kept`: one that is marked free as well, or,
    /// when there is none left and all could be read, one that is not.
    pub fn free_page(&mut self, kept: &Bits) -> Option<u32> {
        for page in self.next_page..self.layout.pages {
            if !self.block_bits.get(page) && !kept.get(page) && self.claims.bits.set(page) {
                self.next_page = page + 1;
                return Some(page as u32);
            }
        }
        self.next_page = self.layout.pages;
        if self.findings.unreadable {
            return None;
        }
        let mut pages = self.layout.ag_data(0)..self.layout.pages;
        let page = pages.find(|&page| !kept.get(page) && self.claims.bits.set(page));
        page.map(|page| page as u32)
    }

    /// Takes an inode number that is marked free and named nowhere.
    pub fn free_inode(&mut self) -> Option<u32> {
        let free = |ino: &u32| !self.inode_bits.get(u64::from(*ino)) && !self.inodes.get(*ino).in_use();
        let ino = (self.next_inode..self.layout.inodes).find(free)?;
        self.next_inode = ino + 1;
        Some(ino)
    }
}

/// Device pages of an extent as numbers.
pub(super) fn parts(extent: &Extent) -> (u64, u32, u32) {
    (extent.file_page.get(), extent.lba.get(), extent.len())
}
