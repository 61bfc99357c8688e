//! Nodes on their way to the device and back, and what is done to the words that they hold.

use std::ops::Range;

use amphi_device::{BlockPort, Structure};
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;
use zerocopy::IntoBytes;

use crate::damaged;
use crate::domain::{Blocks, Domain, NODES, Parts};
use crate::format::{Address, NodeBlock, NodeHead, PAGE};
use crate::ground::{Ground, Writes};

/// Nodes as they are written, by block of the main area.
pub type Sealed = Vec<(u32, Box<NodeBlock>)>;

/// These as blocks to write.
#[must_use]
pub fn as_writes(sealed: &Sealed) -> Writes<'_> {
    sealed.iter().map(|(block, node)| (*block, node.as_bytes())).collect()
}

impl Parts {
    /// Nodes have been written.
    pub fn arrived(&mut self, sealed: &Sealed) {
        sealed.iter().for_each(|(_, node)| self.nodes.arrived(&node.head.nid.get()));
    }

    /// Words of a node become holes. Returns how many of them were none.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn clear_words(&mut self, nid: u32, words: Range<usize>, segment_blocks: u32) -> Result<u64> {
        let node = self.nodes.get_mut(&nid).ok_or_else(|| damaged("node", nid.into()))?;
        let (mut gone, mut held) = (Vec::new(), 0);
        for address in &mut node.addresses[words] {
            let old = std::mem::take(address);
            held += u64::from(old == Address::RESERVED);
            gone.extend(old.block());
        }
        self.change_held(0, held);
        let cleared = held + gone.len() as u64;
        for block in gone {
            self.invalidate(block, segment_blocks)?;
        }
        Ok(cleared)
    }

    /// A block is held for each of these words of a node that is a hole. Returns how many those are.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn hold_words(&mut self, nid: u32, words: Range<usize>) -> Result<u64> {
        let node = self.nodes.get_mut(&nid).ok_or_else(|| damaged("node", nid.into()))?;
        let mut held = 0;
        for address in node.addresses[words].iter_mut().filter(|address| address.is_hole()) {
            *address = Address::RESERVED;
            held += 1;
        }
        self.change_held(held, 0);
        Ok(held)
    }

    /// A word of a node names a block that has been taken for it. Returns what it was before.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn move_page(
        &mut self,
        (nid, word): (u32, usize),
        block: u32,
        segment_blocks: u32,
    ) -> Result<Address> {
        let node = self.nodes.get_mut(&nid).ok_or_else(|| damaged("node", nid.into()))?;
        let old = std::mem::replace(&mut node.addresses[word], Address::at(block));
        self.change_held(0, u64::from(old == Address::RESERVED));
        if let Some(old) = old.block() {
            self.invalidate(old, segment_blocks)?;
        }
        self.validate(block, segment_blocks, nid, word as u16)?;
        Ok(old)
    }
}

impl<D: BlockPort> Ground<D> {
    /// Nodes as they are written now, to these blocks; then they have [`arrived`](Parts::arrived). `stamp`
    /// adds to what each says of itself.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if one is not in memory.
    pub fn seal<'n>(
        &self,
        domain: &Domain,
        parts: &mut Parts,
        nids: impl ExactSizeIterator<Item = &'n u32>,
        blocks: &[u32],
        stamp: impl Fn(&mut NodeHead),
    ) -> Result<Sealed> {
        let mut sealed = Vec::with_capacity(nids.len());
        for (nid, block) in nids.zip(blocks) {
            parts.set_node_address(*nid, Address::at(*block), self.areas.segment_blocks)?;
            let sequence = parts.next_sequence();
            let version = parts.version;
            parts.nodes.leaves(nid);
            let node = parts.nodes.get_mut(nid).ok_or_else(|| damaged("node", (*nid).into()))?;
            node.sequence = sequence;
            let mut head = NodeHead::new(domain.number, node.ino.0, *nid, node.index);
            (head.version, head.sequence) = (version.into(), sequence.into());
            stamp(&mut head);
            let mut node = Box::new(NodeBlock { head, addresses: *node.addresses });
            node.seal(self.salt);
            sealed.push((*block, node));
        }
        Ok(sealed)
    }

    /// The same for all nodes that have changed, as a checkpoint writes them. `take` takes blocks for them.
    ///
    /// # Errors
    /// [`Error::Corrupt`], and what `take` says; [`Error::NoSpace`] if it finds none.
    pub fn seal_dirty(
        &self,
        domain: &Domain,
        parts: &mut Parts,
        take: impl FnOnce(&mut Parts, [usize; 2]) -> Result<Option<Blocks>>,
    ) -> Result<Sealed> {
        let mut dirty: Vec<_> = parts.nodes.dirty().collect();
        dirty.sort_unstable();
        let mut counts = [0; 2];
        counts[NODES] = dirty.len();
        let blocks = take(parts, counts)?.ok_or(Error::NoSpace)?;
        self.seal(domain, parts, dirty.iter(), &blocks[NODES], |_| ())
    }

    /// Calls `visit` with the nodes that stand in a segment from a block of it on, with their blocks, as
    /// recovery looks for them.
    ///
    /// # Errors
    /// [`Error::Io`], and what `visit` says.
    pub fn visit_nodes(
        &self,
        (segment, from): (u32, u32),
        tag: Structure,
        mut visit: impl FnMut(u32, Box<NodeBlock>) -> Result<()>,
    ) -> Result<()> {
        let size = self.areas.segment_blocks;
        let mut bytes = vec![0; (size - from) as usize * PAGE];
        if bytes.is_empty() {
            return Ok(());
        }
        let first = segment * size + from;
        self.device.read(self.lpa(first), &mut bytes, tag).map_err(io_error)?;
        for (block, page) in (first..).zip(bytes.chunks_exact(PAGE)) {
            if let Some(node) = NodeBlock::decode(page, self.salt) {
                visit(block, node)?;
            }
        }
        Ok(())
    }
}
