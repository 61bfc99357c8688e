//! Checking: what files use of a domain, and whether its NAT and SIT say the same.

use std::collections::BTreeSet;

use amphi_volume::Severity;

use crate::domain::Domain;
use crate::format::{Address, NAT_ENTRIES};

/// What files use of a domain. What contradicts itself is told to `found`.
#[derive(Default)]
pub struct Used {
    blocks: BTreeSet<u32>,
    nids: BTreeSet<u32>,
    /// Pages for which space is held.
    held: u64,
}

impl Used {
    /// Notes a node. False if it was noted before.
    pub fn add_node(&mut self, nid: u32) -> bool {
        self.nids.insert(nid)
    }

    /// Notes where a node is.
    pub fn add_node_block(&mut self, nid: u32, address: Address, mut found: impl FnMut(Severity, String)) {
        if let Some(block) = address.block()
            && !self.blocks.insert(block)
        {
            found(Severity::Error, format!("block {block} of node {nid} is used twice"));
        }
    }

    /// Notes the pages that a node of an inode names, from `first` on. What is from page `end` on, behind the
    /// end of the file, is so bad. Returns how many pages there are.
    pub fn add_pages(
        &mut self,
        ino: u64,
        addresses: &[Address],
        (first, end, behind): (u64, u64, Severity),
        mut found: impl FnMut(Severity, String),
    ) -> u64 {
        let mut blocks = 0;
        for (page, address) in (first..).zip(addresses).filter(|(_, address)| !address.is_hole()) {
            blocks += 1;
            self.held += u64::from(*address == Address::RESERVED);
            let Some(block) = address.block() else { continue };
            if page >= end {
                found(behind, format!("inode {ino} has page {page} behind its end"));
            }
            if !self.blocks.insert(block) {
                found(Severity::Error, format!("block {block} is used twice, by inode {ino} too"));
            }
        }
        blocks
    }

    /// Compares what was noted with what the domain knows.
    pub fn compare(&self, domain: &Domain, segment_blocks: u32, mut found: impl FnMut(Severity, String)) {
        let (number, parts, size) = (domain.number, domain.parts.lock(), segment_blocks);
        for block in &self.blocks {
            let segment = parts.sit.get(u64::from(block / size));
            if !segment.is_some_and(|segment| segment.is_valid(block % size)) {
                let what = format!("block {block} is used and invalid in the SIT of domain {number}");
                found(Severity::Error, what);
            }
        }
        for segment in parts.segments(|_| true) {
            let Some(sit) = parts.sit.get(segment.into()) else { continue };
            let all = (segment * size..).take(size as usize);
            let leaked =
                all.filter(|block| sit.is_valid(block % size) && !self.blocks.contains(block)).count();
            if leaked > 0 {
                let what = format!("{leaked} blocks of segment {segment} are valid in the SIT, and nobody's");
                found(Severity::Warning, what);
            }
        }
        if parts.held != self.held {
            let (held, files) = (parts.held, self.held);
            found(Severity::Warning, format!("domain {number} holds {held} blocks, and its files {files}"));
        }
        let mut from = 0;
        while let Some((block, part)) = parts.nat.next(from) {
            from = block + 1;
            let nids = block as u32 * NAT_ENTRIES as u32..;
            let lost = nids.zip(&part.entries).filter(|(nid, at)| !at.is_hole() && !self.nids.contains(nid));
            for (nid, _) in lost {
                found(Severity::Warning, format!("node {nid} is nobody's"));
            }
        }
    }
}
