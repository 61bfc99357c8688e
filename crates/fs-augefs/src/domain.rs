//! Which domain a file is of (AU-8), and what domains take from what they share: segments, blocks of the NAT.

use amphi_device::{BlockPort, MemoryArea};
use amphi_lsm::Batch;
use amphi_rt::hash::mix;
use amphi_segments::{Blocks, DATA, Domain, NODES, Parts};
use amphi_vfs::{Error, Ino, Result};

use crate::core::Core;
use crate::format::{Intent, Key, NAT_ENTRIES, encode_intents};
use crate::meta;
use crate::planted::{self, Bug};

impl<D: BlockPort + MemoryArea> Core<D> {
    /// The domain of a file.
    pub fn domain(&self, ino: Ino) -> &Domain {
        if planted::has(Bug::OneDomain) {
            return &self.domains[0];
        }
        let hash = mix(ino.0.wrapping_add(0x9E37_79B9_7F4A_7C15));
        &self.domains[(hash % self.domains.len() as u64) as usize]
    }

    /// Blocks at the ends of the domain's logs, all that were asked for or none. Segments that are taken for
    /// them are noted in the metadata store before anything is written there. `last` may take the last
    /// segments.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn take_blocks(
        &self,
        domain: &Domain,
        parts: &mut Parts,
        counts: [usize; 2],
        last: bool,
    ) -> Result<Option<Blocks>> {
        let size = self.layout.segment_blocks;
        let wanted = parts.segments_for(counts, size);
        let Some(taken) = self.segments.take(wanted[DATA] + wanted[NODES], last) else { return Ok(None) };
        if !taken.is_empty() {
            let kinds = std::iter::repeat_n(0, wanted[DATA]).chain(std::iter::repeat_n(1, wanted[NODES]));
            let intents: Vec<_> =
                taken.iter().zip(kinds).map(|(segment, kind)| Intent::Take(*segment, kind)).collect();
            let sequence = parts.next_sequence();
            let mut batch = Batch::new();
            meta::put(&mut batch, Key::Intents(domain.number, sequence), &encode_intents(&intents))?;
            if !planted::has(Bug::SegmentNotNoted) {
                self.meta.write(&batch)?;
            }
            parts.intents.push(sequence);
        }
        parts.place(counts, taken, size).map(Some)
    }

    /// Numbers that the domain can give to new nodes.
    pub fn numbers_free(&self, parts: &Parts) -> usize {
        // Number 0 stands for none.
        parts.free_nids.len() + self.nat_blocks.lock().len() * (NAT_ENTRIES - 1)
    }

    /// A number for a new node.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is none before the next checkpoint.
    pub fn take_nid(&self, parts: &mut Parts) -> Result<u32> {
        if parts.free_nids.is_empty() {
            let block = self.nat_blocks.lock().pop_first().ok_or(Error::NoSpace)?;
            parts.add_nat_block(block);
            let first = block * NAT_ENTRIES as u32;
            // Number 0 stands for none.
            parts.free_nids.extend((first.max(1)..first + NAT_ENTRIES as u32).rev());
        }
        parts.free_nids.pop().ok_or(Error::NoSpace)
    }
}
