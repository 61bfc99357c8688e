//! Where a file's pages are: on the device a tree of pages of 512 pointers (PMFS §3), in host memory a
//! radix tree of the same, and the pages of pointers by level and position. A pointer changes in place and is
//! logged, unless it is in a page that nothing leads to yet.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use amphi_device::{PageView, Structure};
use amphi_direct_access::{Layout as _, Medium, PAGE};
use amphi_radix::Radix;
use amphi_vfs::{Error, Result};

use crate::format::{FAN, FAN_BITS, HEIGHT_MAX, Layout, root_of, root_word};
use crate::planted::{self, Bug};
use crate::stores::Stores;

/// Pages of pointers that a block more may take: a new root of each level, and one below it of each.
pub const NODES_MAX: u64 = 2 * HEIGHT_MAX - 1;

/// Where a file's pages are.
#[derive(Default)]
pub struct Tree {
    /// The root, as the inode has it.
    pub root: u64,
    /// The page of each block.
    pub blocks: Radix<u64>,
    /// Pages of pointers: level, from 1, and position.
    nodes: BTreeMap<(u64, u64), u64>,
}

/// The blocks that a page of pointers leads to.
const fn covered(level: u64, index: u64) -> Range<u64> {
    index << (FAN_BITS * level)..(index + 1) << (FAN_BITS * level)
}

impl Tree {
    /// Reads the tree of a root, as far as it leads to the first `limit` blocks. There are no others.
    ///
    /// # Errors
    /// What is wrong with it; [`Error::Io`].
    pub fn load<D: PageView>(
        medium: &Medium<D>,
        layout: &Layout,
        root: u64,
        limit: u64,
    ) -> Result<std::result::Result<Self, &'static str>> {
        let (page, height) = root_of(root);
        let mut tree = Self { root, ..Self::default() };
        if root == 0 {
            return Ok(Ok(tree));
        }
        if height > HEIGHT_MAX || !layout.holds(page, 1) {
            return Ok(Err("its root is no page"));
        }
        if height == 0 {
            tree.blocks.insert(0, page);
            return Ok(Ok(tree));
        }
        let (mut known, mut level) = (BTreeSet::from([page]), vec![(0, page)]);
        for at in (1..=height).rev() {
            let mut below = Vec::new();
            for (index, page) in level {
                tree.nodes.insert((at, index), page);
                let blocks = covered(at, index);
                let each = 1 << (FAN_BITS * (at - 1));
                let count = limit.saturating_sub(blocks.start).div_ceil(each).min(FAN);
                let mut bytes = vec![0; count as usize * 8];
                medium.load(page * PAGE, &mut bytes, Structure::Pointer)?;
                for (slot, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
                    let to = u64::from_le_bytes(*word);
                    if to == 0 {
                        continue;
                    }
                    if !layout.holds(to, 1) {
                        return Ok(Err("a pointer leads out of the file system"));
                    }
                    if at > 1 && !known.insert(to) {
                        return Ok(Err("two pointers lead to one page of pointers"));
                    }
                    below.push((index << FAN_BITS | slot as u64, to));
                }
            }
            level = below;
        }
        for (block, page) in level {
            tree.blocks.insert(block, page);
        }
        Ok(Ok(tree))
    }

    /// Blocks that have pages.
    pub fn mapped(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Gives a block that has none a page.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn map<D: PageView>(&mut self, stores: &mut Stores<'_, D>, block: u64, page: u64) -> Result<()> {
        let (mut top, mut height) = root_of(self.root);
        if self.root == 0 {
            // As high as it has to be, with nothing in it.
            while block >= covered(height, 0).end {
                height += 1;
            }
            if height > 0 {
                top = self.node(stores, height, 0);
            }
        } else {
            while block >= covered(height, 0).end {
                height += 1;
                let old = std::mem::replace(&mut top, self.node(stores, height, 0));
                stores.set_word(top * PAGE, 0, old, Structure::Pointer);
            }
        }
        if height == 0 {
            top = page;
        }
        self.root = root_word(top, height);
        let mut above = top;
        for level in (0..height).rev() {
            let index = block >> (FAN_BITS * level);
            let known = if level == 0 { None } else { self.nodes.get(&(level, index)).copied() };
            let below = match known {
                Some(known) => known,
                None => {
                    let below = if level == 0 { page } else { self.node(stores, level, index) };
                    stores.set_word(above * PAGE + index % FAN * 8, 0, below, Structure::Pointer);
                    below
                }
            };
            above = below;
        }
        self.blocks.insert(block, page);
        Ok(())
    }

    fn node<D: PageView>(&mut self, stores: &mut Stores<'_, D>, level: u64, index: u64) -> u64 {
        let (page, _) = stores.taken.take(1);
        stores.fresh(page, Structure::Pointer);
        self.nodes.insert((level, index), page);
        page
    }

    /// Takes their pages from blocks. Pages of pointers that lead to others only go too.
    pub fn unmap<D: PageView>(&mut self, stores: &mut Stores<'_, D>, range: Range<u64>) {
        let (page, height) = root_of(self.root);
        let whole = |level: u64, index: u64| {
            let blocks = covered(level, index);
            range.start <= blocks.start && blocks.end <= range.end
        };
        let mut taken = Vec::new();
        let mut from = range.start;
        while let Some((block, page)) = self.blocks.next(from).map(|(block, page)| (block, *page)) {
            if block >= range.end {
                break;
            }
            taken.push((0, block, page));
            from = block + 1;
        }
        for ((level, index), page) in &self.nodes {
            if whole(*level, *index) {
                taken.push((*level, *index, *page));
            }
        }
        // In pages of pointers that stay: which pointers go.
        let mut cleared: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
        for (level, index, to) in taken {
            if level == 0 {
                self.blocks.remove(index);
            } else {
                self.nodes.remove(&(level, index));
            }
            stores.free(to, 1);
            if level == height {
                debug_assert_eq!(to, page, "the tree has one root");
                self.root = 0;
                continue;
            }
            let above = (level + 1, index >> FAN_BITS);
            if !whole(above.0, above.1)
                && let Some(node) = self.nodes.get(&above)
            {
                cleared.entry(*node).or_default().insert(index % FAN, to);
            }
        }
        for (node, pointers) in cleared.iter().filter(|_| !planted::has(Bug::PointersKept)) {
            let ends = (pointers.first_key_value(), pointers.last_key_value());
            let (Some((first, _)), Some((last, _))) = ends else { continue };
            // With those between them that lead nowhere, so that they are one range.
            for slot in *first..=*last {
                let old = pointers.get(&slot).copied().unwrap_or(0);
                stores.set_word(node * PAGE + slot * 8, old, 0, Structure::Pointer);
            }
        }
    }

    /// Runs of blocks whose pages follow each other: first page and length; then the pages of pointers.
    pub fn pages(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        let mut from = 0;
        while let Some((block, page)) = self.blocks.next(from) {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == *page => *count += 1,
                _ => runs.push((*page, 1)),
            }
            from = block + 1;
        }
        runs.extend(self.nodes.values().map(|page| (*page, 1)));
        runs
    }

    /// Pages of a file's tree and data.
    pub fn count(&self) -> u64 {
        self.mapped() + self.nodes.len() as u64
    }
}

/// The error of an inode whose tree makes no sense.
pub fn damaged(ino: u64, what: &'static str) -> Error {
    Error::corrupt("inode", ino, what)
}
