//! The nodes of an extent tree: loaded and checked, searched, changed, and written where they differ from
//! what the device holds.

use amphi_device::{BlockPort, Lpa, Structure, WriteLog};
use amphi_page_cache::Mapped;
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;

use crate::base::Base;
use crate::commit::tx::Tx;
use crate::format::{Extent, LINE, NODE_ENTRIES, NodeHeader, PAGE, UNWRITTEN};
use crate::planted::{self, Bug};
use crate::space::group_bits::Run;

/// One node; the root is in the inode.
pub(super) struct Node {
    pub(super) lba: u32,
    pub(super) depth: u16,
    pub(super) entries: Vec<Extent>,
    /// As many as `entries` where `depth > 0`, else none.
    pub(super) children: Vec<Node>,
    pub(super) dirty: bool,
    /// What the device holds, unless the node is new or the root.
    disk: Option<Box<[u8; PAGE]>>,
}

/// The entry of an inner node that points to the child on page `lba`.
pub(super) fn pointer(key: u64, lba: u32) -> Extent {
    Extent::new(key, lba, 0, false)
}

impl Node {
    pub(super) const fn new(lba: u32, depth: u16) -> Self {
        Self { lba, depth, entries: Vec::new(), children: Vec::new(), dirty: true, disk: None }
    }

    pub(super) fn key(&self) -> u64 {
        self.entries.first().map_or(0, |entry| entry.file_page.get())
    }

    /// Index of the entry whose range of keys holds `file_page`: the last one not beyond it, or the first.
    fn index(&self, file_page: u64) -> usize {
        self.entries.partition_point(|entry| entry.file_page.get() <= file_page).saturating_sub(1)
    }

    fn load<D: BlockPort + WriteLog>(
        base: &Base<D>,
        ino: u32,
        pointer: &Extent,
        depth: u16,
        end: u64,
        nodes: &mut u32,
    ) -> Result<Self> {
        let lba = pointer.lba.get();
        if !base.layout.holds_data(lba, 1) || !pointer.is_empty() {
            return Err(corrupt(ino, "a child pointer leads outside the data area"));
        }
        let mut page = Box::new([0; PAGE]);
        let read = base.read_metadata(Lpa(u64::from(lba)), &mut page[..], Structure::Pointer);
        read.map_err(io_error)?;
        let entries =
            NodeHeader::decode(&page, ino, depth).map_err(|error| corrupt(ino, &error.to_string()))?.to_vec();
        if entries[0].file_page != pointer.file_page {
            return Err(corrupt(ino, "an extent node does not start with its parent's key"));
        }
        *nodes += 1;
        let mut node = Self { lba, depth, entries, children: Vec::new(), dirty: false, disk: Some(page) };
        node.check_and_descend(base, ino, end, nodes)?;
        Ok(node)
    }

    /// Checks the entries of a node that holds keys below `end`, and loads the children.
    pub(super) fn check_and_descend<D: BlockPort + WriteLog>(
        &mut self,
        base: &Base<D>,
        ino: u32,
        end: u64,
        nodes: &mut u32,
    ) -> Result<()> {
        for (i, entry) in self.entries.iter().enumerate() {
            let next = self.entries.get(i + 1).map_or(end, |next| next.file_page.get());
            let first = entry.file_page.get();
            if first >= next {
                return Err(corrupt(ino, "extents are out of order"));
            }
            if self.depth > 0 {
                self.children.push(Self::load(base, ino, entry, self.depth - 1, next, nodes)?);
                continue;
            }
            let pages = entry.len();
            let inside = base.layout.holds_data(entry.lba.get(), pages);
            if pages == 0 || first + u64::from(pages) > next || !inside {
                return Err(corrupt(ino, "an extent overlaps the next or leaves the data area"));
            }
        }
        Ok(())
    }

    pub(super) fn map(&self, file_page: u64, end: u64) -> Mapped {
        if self.entries.is_empty() {
            return Mapped::Hole { pages: end - file_page };
        }
        let i = self.index(file_page);
        let next = self.entries.get(i + 1).map_or(end, |next| next.file_page.get());
        let entry = &self.entries[i];
        let first = entry.file_page.get();
        if file_page < first {
            return Mapped::Hole { pages: first - file_page };
        }
        if self.depth > 0 {
            return self.children[i].map(file_page, next);
        }
        let into = file_page - first;
        let lba = u64::from(entry.lba.get()) + into;
        match u64::from(entry.len()).checked_sub(into) {
            Some(pages) if pages > 0 && entry.unwritten() => Mapped::Unwritten { lba, pages },
            Some(pages) if pages > 0 => Mapped::At { lba, pages },
            _ => Mapped::Hole { pages: next - file_page },
        }
    }

    /// Adds an extent; returns the new right sibling if the node had to split.
    pub(super) fn insert(
        &mut self,
        new: Extent,
        capacity: usize,
        alloc: &mut dyn FnMut() -> u32,
        nodes: &mut u32,
    ) -> Option<Self> {
        self.dirty = true;
        let at = if self.depth > 0 {
            let i = self.index(new.file_page.get());
            let sibling = self.children[i].insert(new, NODE_ENTRIES, alloc, nodes);
            self.entries[i].file_page = self.children[i].key().into();
            let sibling = sibling?;
            self.entries.insert(i + 1, pointer(sibling.key(), sibling.lba));
            self.children.insert(i + 1, sibling);
            i + 1
        } else {
            if self.merge(&new) {
                return None;
            }
            let at = self.entries.partition_point(|entry| entry.file_page.get() < new.file_page.get());
            self.entries.insert(at, new);
            at
        };
        let len = self.entries.len();
        // A node that grew at its end keeps all but the last entry, so that files written in order fill their
        // nodes.
        let keep = if at + 1 == len { len - 1 } else { len / 2 };
        (len > capacity).then(|| self.split(keep, alloc(), nodes))
    }

    /// Lengthens a neighbour that the extent continues, in the file and on the device.
    pub(super) fn merge(&mut self, new: &Extent) -> bool {
        let at = self.entries.partition_point(|entry| entry.file_page.get() < new.file_page.get());
        let continues = |left: &Extent, right: &Extent| {
            left.end() == right.file_page.get()
                && left.lba.get() + left.len() == right.lba.get()
                && left.unwritten() == right.unwritten()
                && left.len() + right.len() < UNWRITTEN
        };
        if at > 0 && continues(&self.entries[at - 1], new) {
            let mut left = self.entries[at - 1];
            left.set_len(left.len() + new.len());
            if let Some(right) = self.entries.get(at).copied()
                && continues(&left, &right)
            {
                left.set_len(left.len() + right.len());
                self.entries.remove(at);
            }
            self.entries[at - 1] = left;
            return true;
        }
        if let Some(right) = self.entries.get_mut(at)
            && continues(new, right)
        {
            *right =
                Extent::new(new.file_page.get(), new.lba.get(), new.len() + right.len(), new.unwritten());
            return true;
        }
        false
    }

    /// Moves the entries from `at` on into a new node.
    fn split(&mut self, at: usize, lba: u32, nodes: &mut u32) -> Self {
        let mut right = Self::new(lba, self.depth);
        right.entries = self.entries.split_off(at);
        if self.depth > 0 {
            right.children = self.children.split_off(at);
        }
        *nodes += 1;
        right
    }

    /// Removes what lies in `from .. to`, except that an extent with parts on both sides keeps its left part
    /// here and hands its right part back to be inserted.
    pub(super) fn remove(
        &mut self,
        from: u64,
        to: u64,
        gone: &mut Removed,
        nodes: &mut u32,
    ) -> Option<Extent> {
        let mut right_part = None;
        let mut i = self.index(from);
        while i < self.entries.len() && self.entries[i].file_page.get() < to {
            if self.depth > 0 {
                let child = &mut self.children[i];
                right_part = right_part.or(child.remove(from, to, gone, nodes));
                self.dirty |= child.dirty;
                if child.entries.is_empty() {
                    gone.nodes.push(child.lba);
                    *nodes -= 1;
                    self.children.remove(i);
                    self.entries.remove(i);
                    self.dirty = true;
                } else {
                    self.entries[i].file_page = child.key().into();
                    i += 1;
                }
                continue;
            }
            let entry = self.entries[i];
            let (first, lba) = (entry.file_page.get(), entry.lba.get());
            let (end, unwritten) = (entry.end(), entry.unwritten());
            let (cut_from, cut_to) = (first.max(from), end.min(to));
            if cut_from >= cut_to {
                i += 1;
                continue;
            }
            self.dirty = true;
            gone.blocks.push(Run { start: u64::from(lba) + (cut_from - first), len: cut_to - cut_from });
            let left =
                (cut_from > first).then(|| Extent::new(first, lba, (cut_from - first) as u32, unwritten));
            let right = (cut_to < end).then(|| {
                Extent::new(cut_to, lba + (cut_to - first) as u32, (end - cut_to) as u32, unwritten)
            });
            match (left, right) {
                (Some(left), right) => {
                    self.entries[i] = left;
                    right_part = right_part.or(right);
                    i += 1;
                }
                (None, Some(right)) => {
                    self.entries[i] = right;
                    i += 1;
                }
                (None, None) => {
                    self.entries.remove(i);
                }
            }
        }
        right_part
    }

    pub(super) fn pages_from(&self, from: u64) -> u64 {
        let start = self.index(from);
        if self.depth > 0 {
            return self.children[start..].iter().map(|child| child.pages_from(from)).sum();
        }
        let pages = |entry: &Extent| entry.end().saturating_sub(from.max(entry.file_page.get()));
        self.entries[start.min(self.entries.len())..].iter().map(pages).sum()
    }

    pub(super) fn last(&self) -> Option<Extent> {
        match self.children.last() {
            Some(child) => child.last(),
            None => self.entries.last().copied(),
        }
    }

    pub(super) fn flush<D: BlockPort + WriteLog>(&mut self, ino: u32, tx: &mut Tx<'_, D>) {
        for child in self.children.iter_mut().filter(|child| child.dirty) {
            child.flush(ino, tx);
            let mut page = Box::new([0; PAGE]);
            let used = NodeHeader::encode(&mut page, ino, child.depth, &child.entries);
            let differs = |l: usize| match &child.disk {
                Some(disk) => {
                    disk[l..l + LINE] != page[l..l + LINE] || planted::has(Bug::ExtentNodeRewritten)
                }
                None => true,
            };
            let mut at = 0;
            while at < used {
                let start = at;
                while at < used && differs(at) {
                    at += LINE;
                }
                if at > start {
                    tx.write(
                        Lpa(u64::from(child.lba)).byte(start),
                        &page[start..at.min(PAGE)],
                        Structure::Pointer,
                    );
                }
                at += LINE;
            }
            let compared = used.next_multiple_of(LINE);
            if let Some(disk) = &child.disk {
                page[compared..].copy_from_slice(&disk[compared..]);
            }
            child.disk = Some(page);
        }
        self.dirty = false;
    }
}

/// What [`ExtentTree::remove`] took out.
#[derive(Default)]
pub struct Removed {
    /// Data blocks.
    pub blocks: Vec<Run>,
    /// Extent node pages.
    pub nodes: Vec<u32>,
}

impl Removed {
    /// Frees all of it when `tx` commits, and returns the number of data pages.
    pub fn free<D: BlockPort + WriteLog>(self, tx: &mut Tx<'_, D>) -> u64 {
        for node in self.nodes {
            tx.free_blocks(Run { start: u64::from(node), len: 1 });
        }
        self.blocks.into_iter().fold(0, |pages, run| {
            tx.free_blocks(run);
            pages + run.len
        })
    }
}

pub(super) fn corrupt(ino: u32, what: &str) -> Error {
    Error::corrupt("inode", u64::from(ino), what.to_owned())
}

/// First file page beyond what any file may have; extents end there.
pub const FILE_PAGES_MAX: u64 = 1 << 40;
