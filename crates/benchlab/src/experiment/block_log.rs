//! A memory area that an SSD does not have: kept in host memory, and written to the block side by pages at
//! each fence, as a log file is that is synced. AugeFS's log on it is one without a persistent memory region.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use amphi_device::{
    BlockPort, ByteDurability, BytePort, Device, DurabilityContract, Error, Lpa, MemoryArea, MemoryPromise,
    PAGE_BYTES, Result, Structure, TxId,
};
use amphi_rt::sync::Mutex;
use amphi_ssd::Ssd;

const PAGE: u64 = PAGE_BYTES as u64;

/// An SSD whose memory area is the last pages of its block side.
pub(super) struct BlockLog {
    ssd: Arc<Ssd>,
    /// First of these pages.
    first: u64,
    shared: Mutex<Shared>,
}

struct Shared {
    bytes: Vec<u8>,
    /// Pages that a task has flushed and not fenced.
    flushed: BTreeMap<u64, BTreeSet<u64>>,
}

impl BlockLog {
    /// That on an SSD, as its pages have it.
    ///
    /// # Errors
    /// The SSD's.
    pub(super) fn new(ssd: &Arc<Ssd>) -> Result<Arc<Self>> {
        let pages = ssd.memory()?.bytes / PAGE;
        let first = ssd.capacity_pages() - pages;
        let mut bytes = vec![0; (pages * PAGE) as usize];
        ssd.read(Lpa(first), &mut bytes, Structure::Journal)?;
        let shared = Mutex::new(Shared { bytes, flushed: BTreeMap::new() });
        Ok(Arc::new(Self { ssd: Arc::clone(ssd), first, shared }))
    }
}

impl Device for BlockLog {
    fn capacity_pages(&self) -> u64 {
        self.first
    }

    fn contract(&self) -> DurabilityContract {
        self.ssd.contract()
    }
}

impl BlockPort for BlockLog {
    type Ticket<'a> = <Ssd as BlockPort>::Ticket<'a>;

    fn submit_read<'a>(&'a self, at: Lpa, into: &'a mut [u8], tag: Structure) -> Result<Self::Ticket<'a>> {
        self.ssd.submit_read(at, into, tag)
    }

    fn submit_write<'a>(&'a self, at: Lpa, bufs: &'a [&'a [u8]], tag: Structure) -> Result<Self::Ticket<'a>> {
        self.ssd.submit_write(at, bufs, tag)
    }

    fn flush(&self) -> Result<()> {
        self.ssd.flush()
    }

    fn trim(&self, at: Lpa, pages: u64) -> Result<()> {
        self.ssd.trim(at, pages)
    }
}

impl BytePort for BlockLog {
    fn bytes(&self) -> u64 {
        self.shared.lock().bytes.len() as u64
    }

    fn load(&self, at: u64, into: &mut [u8], _: Structure) -> Result<()> {
        into.copy_from_slice(&self.shared.lock().bytes[at as usize..][..into.len()]);
        Ok(())
    }

    fn load_dma(&self, _: u64, _: &mut [u8], _: Structure) -> Result<()> {
        Err(Error::Unsupported("reads of byte ranges by DMA"))
    }

    fn store(&self, at: u64, data: &[u8], _: Option<TxId>, _: Structure) -> Result<()> {
        self.shared.lock().bytes[at as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn store_flushed(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()> {
        self.store(at, data, tx, tag)?;
        self.flush_lines(at, data.len());
        Ok(())
    }

    fn flush_lines(&self, at: u64, len: usize) {
        let task = amphi_rt::task::id();
        let pages = at / PAGE..(at + len as u64).div_ceil(PAGE);
        self.shared.lock().flushed.entry(task).or_default().extend(pages);
    }

    fn fence(&self) {}

    /// Writes what the task has flushed. It belongs to the fence, which has nobody to tell of a failure.
    fn verify_read(&self) -> Result<()> {
        let task = amphi_rt::task::id();
        let (first, bytes) = {
            let mut shared = self.shared.lock();
            let Some(pages) = shared.flushed.remove(&task) else { return Ok(()) };
            let (Some(first), Some(last)) = (pages.first().copied(), pages.last().copied()) else {
                return Ok(());
            };
            // What lies between was flushed too: a task stores one entry at a time.
            (first, shared.bytes[(first * PAGE) as usize..((last + 1) * PAGE) as usize].to_vec())
        };
        self.ssd.write(Lpa(self.first + first), &bytes, Structure::Journal)?;
        self.ssd.flush()
    }
}

impl MemoryArea for BlockLog {
    fn memory(&self) -> Result<MemoryPromise> {
        let promise = self.ssd.memory()?;
        Ok(MemoryPromise { durability: ByteDurability::VerifyRead, ..promise })
    }
}
