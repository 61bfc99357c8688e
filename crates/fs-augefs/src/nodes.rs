//! Nodes of files: from a file's page to its block, through the file's list of nodes, the NAT and the node.

use std::sync::atomic::Ordering;

use amphi_device::{BlockPort, MemoryArea};
use amphi_lsm::Batch;
use amphi_segments::Domain;
use amphi_vfs::{Ino, Result};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::format::{ADDRESSES, Address, Key, SuperRecord};
use crate::meta::{self, damaged};
use crate::part::State;

/// Numbers of inodes that the metadata store is told of at a time.
const NUMBERS: u64 = 4096;

/// The node, and its slot there, of a file's page.
pub const fn slot_of(page: u64) -> (u32, usize) {
    ((page / ADDRESSES as u64) as u32, (page % ADDRESSES as u64) as usize)
}

impl<D: BlockPort + MemoryArea> Core<D> {
    /// Where the pages `first .. end` of a file are. The caller holds the gate.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
    pub fn addresses(
        &self,
        domain: &Domain,
        (ino, state): (Ino, &State),
        first: u64,
        end: u64,
    ) -> Result<Vec<Address>> {
        let mut found = Vec::with_capacity((end - first) as usize);
        let mut page = first;
        while page < end {
            let (index, slot) = slot_of(page);
            let here = (ADDRESSES - slot).min((end - page) as usize);
            match state.part.nodes.get(&index) {
                None => found.resize(found.len() + here, Address::HOLE),
                Some(nid) => {
                    let parts = self.ground.with_nodes(domain, &[*nid])?;
                    let node = &parts.nodes[nid];
                    if node.ino != ino || node.index != index {
                        return Err(damaged("node", (*nid).into()));
                    }
                    found.extend_from_slice(&node.addresses[slot..slot + here]);
                }
            }
            page += here as u64;
        }
        Ok(found)
    }

    /// A number for a new inode, which no other has had.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn take_number(&self) -> Result<Ino> {
        let mut numbers = self.numbers.lock();
        let (next, known) = *numbers;
        if next == known {
            self.put_super(known + NUMBERS, false)?;
            numbers.1 = known + NUMBERS;
        }
        numbers.0 = next + 1;
        Ok(Ino(next))
    }

    /// Puts what changes of the file system as a whole.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn put_super(&self, next_ino: u64, clean: bool) -> Result<()> {
        let record = SuperRecord {
            next_ino: next_ino.into(),
            inodes: self.inodes.load(Ordering::Acquire).into(),
            clean: u64::from(clean).into(),
        };
        let mut batch = Batch::new();
        meta::put(&mut batch, Key::Super, record.as_bytes())?;
        self.meta.write(&batch)
    }
}
