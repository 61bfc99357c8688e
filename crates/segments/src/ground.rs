//! Where everything of a main area lies, reading nodes from there, writing blocks there.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{BlockDurability, BlockPort, Completion, DurabilityContract, Lpa, PAGE_BYTES, Structure};
use amphi_page_cache::{BoxedFrame, frames};
use amphi_rt::sync::MutexGuard;
use amphi_vfs::Result;
use amphi_volume::{io_error, read_runs};

use crate::cached_nodes::Node;
use crate::damaged;
use crate::domain::{Domain, Parts};
use crate::format::{ADDRESSES, Address, Areas, NodeBlock, PAGE};

/// Blocks to write, with their contents, by block.
pub type Writes<'a> = Vec<(u32, &'a [u8])>;

/// The device, and where what belongs to segments lies on it.
pub struct Ground<D> {
    /// The device.
    pub device: Arc<D>,
    /// What it promises.
    pub contract: DurabilityContract,
    /// What tells blocks of this file system from those of another that was here.
    pub salt: u64,
    /// Where everything is.
    pub areas: Areas,
    /// Nodes of a domain that there may be in host memory, beyond those that have changed.
    pub nodes_kept: usize,
    /// Which words of a node with this index are addresses of pages.
    pub addresses: fn(u32, &[Address; ADDRESSES]) -> Range<usize>,
    /// Writes that have completed, and how many of them are durable for sure.
    written: AtomicU64,
    settled: AtomicU64,
}

impl<D: BlockPort> Ground<D> {
    /// That of a device; `addresses` is [`addresses`](Self::addresses), `nodes_kept`
    /// [`nodes_kept`](Self::nodes_kept).
    pub fn new(
        device: &Arc<D>,
        salt: u64,
        areas: Areas,
        nodes_kept: usize,
        addresses: fn(u32, &[Address; ADDRESSES]) -> Range<usize>,
    ) -> Self {
        let contract = device.contract();
        // What was written before this mount may not be durable.
        let (written, settled) = (AtomicU64::new(1), AtomicU64::new(0));
        Self { device: Arc::clone(device), contract, salt, areas, nodes_kept, addresses, written, settled }
    }

    /// Where a block of the main area is.
    pub const fn lpa(&self, block: u32) -> Lpa {
        Lpa(self.areas.main_first() + block as u64)
    }

    /// Reads these pages of a file, all at once, those in a row by one command: those that have no block are
    /// zeros.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn read_pages(&self, pages: &[(u64, Option<u32>)]) -> Result<Vec<(u64, BoxedFrame)>> {
        let runs = pages.chunk_by(|(_, one), (_, next)| one.map(|block| block + 1) == *next);
        let places = runs.clone().map(|run| (run[0].1.map(|first| self.lpa(first)), run.len()));
        let mut read = Vec::with_capacity(pages.len());
        for (run, bytes) in runs.zip(read_runs(&*self.device, places)?) {
            read.extend(run.iter().map(|(page, _)| *page).zip(frames(bytes)));
        }
        Ok(read)
    }

    /// Reads blocks of the main area past host memory into as many pages, those in a row by one command;
    /// zeros for what has no block.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn read_runs(&self, blocks: &[Option<u32>], into: &mut [u8]) -> Result<()> {
        let mut tickets = Vec::new();
        let mut rest = into;
        for run in blocks.chunk_by(|one, next| one.map(|block| block + 1) == *next) {
            let (into, behind) = std::mem::take(&mut rest).split_at_mut(run.len() * PAGE);
            if let Some(first) = run[0] {
                let sent = self.device.submit_read(self.lpa(first), into, Structure::Data);
                tickets.push(sent.map_err(io_error)?);
            } else {
                into.fill(0);
            }
            rest = behind;
        }
        tickets.into_iter().try_for_each(|ticket| ticket.wait().map_err(io_error))
    }

    /// Reads a block of the main area.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn read_block(&self, block: u32, tag: Structure) -> Result<Vec<u8>> {
        let mut page = vec![0; PAGE_BYTES];
        self.device.read(self.lpa(block), &mut page, tag).map_err(io_error)?;
        Ok(page)
    }

    /// Makes the writes durable that have completed, if one is not yet.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn settle(&self) -> Result<()> {
        let written = self.written.load(Ordering::Acquire);
        if self.contract.block_durability == BlockDurability::Completion
            || self.settled.load(Ordering::Acquire) >= written
        {
            return Ok(());
        }
        self.device.flush().map_err(io_error)?;
        self.settled.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }

    /// Writes a page, which [`settle`](Self::settle) makes durable.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn write(&self, at: Lpa, page: &[u8], tag: Structure) -> Result<()> {
        self.device.write(at, page, tag).map_err(io_error)?;
        self.written.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Submits all blocks, those in a row by one command, and waits for them together;
    /// [`settle`](Self::settle) makes them durable.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn write_blocks(&self, kinds: &[(&Writes<'_>, Structure)]) -> Result<()> {
        let mut runs: Vec<(u32, Vec<&[u8]>, Structure)> = Vec::new();
        for (writes, tag) in kinds {
            for (block, bytes) in *writes {
                match runs.last_mut() {
                    Some((first, run, of)) if of == tag && *first + run.len() as u32 == *block => {
                        run.push(bytes);
                    }
                    _ => runs.push((*block, vec![bytes], *tag)),
                }
            }
        }
        let mut tickets = Vec::with_capacity(runs.len());
        for (first, run, tag) in &runs {
            tickets.push(self.device.submit_write(self.lpa(*first), run, *tag).map_err(io_error)?);
        }
        for ticket in tickets {
            ticket.wait().map_err(io_error)?;
        }
        self.written.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// What a domain knows, with these nodes in memory. The caller holds the gate.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
    pub fn with_nodes<'d>(&self, domain: &'d Domain, nids: &[u32]) -> Result<MutexGuard<'d, Parts>> {
        domain.parts.lock().nodes.make_room(self.nodes_kept);
        loop {
            let parts = domain.parts.lock();
            let Some(nid) = nids.iter().find(|nid| !parts.nodes.contains_key(nid)) else { return Ok(parts) };
            let address = parts.node_address(*nid);
            drop(parts);
            let read = self.read_node(domain, *nid, address);
            let mut parts = domain.parts.lock();
            // Another task may have read it meanwhile, written it elsewhere, and dropped it.
            if parts.node_address(*nid) == address && !parts.nodes.contains_key(nid) {
                parts.nodes.insert(*nid, read?);
            }
        }
    }

    /// Reads a node.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Corrupt`] if it is not there; [`amphi_vfs::Error::Io`].
    pub fn read_node(&self, domain: &Domain, nid: u32, address: Address) -> Result<Node> {
        let wrong = || damaged("node", nid.into());
        let block = address.block().ok_or_else(wrong)?;
        let page = self.read_block(block, Structure::Pointer)?;
        let block = NodeBlock::decode(&page, self.salt).ok_or_else(wrong)?;
        let head = block.head;
        if head.nid.get() != nid || head.domain.get() != domain.number {
            return Err(wrong());
        }
        let pages = (self.addresses)(head.index.get(), &block.addresses);
        let inside =
            |address: &Address| address.block().is_none_or(|at| u64::from(at) < self.areas.main_blocks());
        if !block.addresses[pages].iter().all(inside) {
            return Err(wrong());
        }
        Ok(Node::of(&block))
    }
}
