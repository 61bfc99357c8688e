//! A device that a mount writes to, or only seems to: under a read-only mount and under a check all that is
//! written stays in host memory, so that recovery and the metadata store go their usual way and the device
//! stays as it was.
//!
//! What stays in memory is what a recovery writes: tables with what the log held, and what roll-forward
//! changed. Pages of zeros, which emptying the log stores, take none.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_device::{
    BlockPort, BytePort, Completion, Device, DurabilityContract, Lpa, MemoryArea, MemoryPromise, PAGE_BYTES,
    Result, Structure, TxId,
};
use amphi_rt::sync::Mutex;

const PAGE: u64 = PAGE_BYTES as u64;

/// A device, or what was written over one.
pub struct Overlay<D> {
    device: Arc<D>,
    /// None: whatever is written goes to the device.
    over: Option<Over>,
}

/// What was written, by page; `None` is a page of zeros.
type Pages = Mutex<BTreeMap<u64, Option<Box<[u8]>>>>;

#[derive(Default)]
struct Over {
    blocks: Pages,
    /// Pages of the memory area, each with what the device has where nothing was stored.
    memory: Pages,
}

/// A command to the device, or one that is done.
pub enum Ticket<T> {
    /// The device's.
    Device(T),
    /// Done, in host memory.
    Done(Result<()>),
}

impl<T: Completion> Completion for Ticket<T> {
    fn done_at_ns(&self) -> u64 {
        match self {
            Self::Device(ticket) => ticket.done_at_ns(),
            Self::Done(_) => amphi_rt::time::now_ns(),
        }
    }

    fn wait(self) -> Result<()> {
        match self {
            Self::Device(ticket) => ticket.wait(),
            Self::Done(outcome) => outcome,
        }
    }
}

/// Copies a page that was written.
fn copy(page: Option<&[u8]>, into: &mut [u8]) {
    match page {
        Some(page) => into.copy_from_slice(page),
        None => into.fill(0),
    }
}

/// A page as it is kept.
fn kept(page: &[u8]) -> Option<Box<[u8]>> {
    // By cache lines without an early end, which processors do many bytes at a time.
    let is_zero = |line: &[u8]| line.iter().fold(0, |all, byte| all | byte) == 0;
    (!page.chunks(64).all(is_zero)).then(|| page.into())
}

impl<D> Overlay<D> {
    /// The device itself.
    pub fn through(device: &Arc<D>) -> Arc<Self> {
        Arc::new(Self { device: Arc::clone(device), over: None })
    }

    /// Nothing, yet, over a device that stays as it is.
    pub fn over(device: &Arc<D>) -> Arc<Self> {
        Arc::new(Self { device: Arc::clone(device), over: Some(Over::default()) })
    }

    /// The device below.
    pub const fn device(&self) -> &Arc<D> {
        &self.device
    }
}

/// The parts of `at..at + bytes` in the pages of the memory area: a page, and where in it and in the bytes
/// the part begins and how long it is.
fn parts(at: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let end = at + bytes as u64;
    (at / PAGE..end.div_ceil(PAGE)).map(move |page| {
        let (first, last) = ((page * PAGE).max(at), ((page + 1) * PAGE).min(end));
        (page, (first - page * PAGE) as usize, (first - at) as usize, (last - first) as usize)
    })
}

impl Over {
    /// Puts what was stored over what was loaded from `at` on.
    fn cover(&self, at: u64, into: &mut [u8]) {
        let pages = self.memory.lock();
        for (number, within, from, bytes) in parts(at, into.len()) {
            if let Some(page) = pages.get(&number) {
                copy(
                    page.as_deref().map(|page| &page[within..within + bytes]),
                    &mut into[from..from + bytes],
                );
            }
        }
    }

    fn store<D: BytePort>(&self, device: &D, at: u64, data: &[u8], tag: Structure) -> Result<()> {
        for (number, within, from, bytes) in parts(at, data.len()) {
            let data = &data[from..from + bytes];
            if bytes == PAGE_BYTES {
                self.memory.lock().insert(number, kept(data));
                continue;
            }
            let mut page = vec![0; PAGE_BYTES];
            device.load(number * PAGE, &mut page, tag)?;
            self.cover(number * PAGE, &mut page);
            page[within..within + bytes].copy_from_slice(data);
            self.memory.lock().insert(number, Some(page.into()));
        }
        Ok(())
    }

    fn read<D: BlockPort>(&self, device: &D, at: Lpa, into: &mut [u8], tag: Structure) -> Result<()> {
        device.read(at, into, tag)?;
        let pages = self.blocks.lock();
        for (number, page) in pages.range(at.0..at.0 + (into.len() / PAGE_BYTES) as u64) {
            let from = (number - at.0) as usize * PAGE_BYTES;
            copy(page.as_deref(), &mut into[from..from + PAGE_BYTES]);
        }
        Ok(())
    }
}

impl<D: Device> Device for Overlay<D> {
    fn capacity_pages(&self) -> u64 {
        self.device.capacity_pages()
    }

    fn contract(&self) -> DurabilityContract {
        self.device.contract()
    }
}

impl<D: BlockPort> BlockPort for Overlay<D> {
    type Ticket<'t> = Ticket<D::Ticket<'t>>;

    fn submit_read<'t>(&'t self, at: Lpa, into: &'t mut [u8], tag: Structure) -> Result<Self::Ticket<'t>> {
        match &self.over {
            None => self.device.submit_read(at, into, tag).map(Ticket::Device),
            Some(over) => Ok(Ticket::Done(over.read(&*self.device, at, into, tag))),
        }
    }

    fn submit_write<'t>(&'t self, at: Lpa, bufs: &'t [&'t [u8]], tag: Structure) -> Result<Self::Ticket<'t>> {
        let Some(over) = &self.over else {
            return self.device.submit_write(at, bufs, tag).map(Ticket::Device);
        };
        let pages = bufs.iter().flat_map(|buf| buf.chunks(PAGE_BYTES)).map(kept);
        over.blocks.lock().extend((at.0..).zip(pages));
        Ok(Ticket::Done(Ok(())))
    }

    fn flush(&self) -> Result<()> {
        if self.over.is_some() { Ok(()) } else { self.device.flush() }
    }

    fn trim(&self, at: Lpa, pages: u64) -> Result<()> {
        let Some(over) = &self.over else { return self.device.trim(at, pages) };
        over.blocks.lock().extend((at.0..at.0 + pages).map(|number| (number, None)));
        Ok(())
    }
}

impl<D: BytePort> BytePort for Overlay<D> {
    fn bytes(&self) -> u64 {
        self.device.bytes()
    }

    fn load(&self, at: u64, into: &mut [u8], tag: Structure) -> Result<()> {
        self.device.load(at, into, tag)?;
        if let Some(over) = &self.over {
            over.cover(at, into);
        }
        Ok(())
    }

    fn load_dma(&self, at: u64, into: &mut [u8], tag: Structure) -> Result<()> {
        self.device.load_dma(at, into, tag)?;
        if let Some(over) = &self.over {
            over.cover(at, into);
        }
        Ok(())
    }

    fn store(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()> {
        match &self.over {
            None => self.device.store(at, data, tx, tag),
            Some(over) => over.store(&*self.device, at, data, tag),
        }
    }

    fn store_flushed(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()> {
        match &self.over {
            None => self.device.store_flushed(at, data, tx, tag),
            Some(over) => over.store(&*self.device, at, data, tag),
        }
    }

    fn flush_lines(&self, at: u64, len: usize) {
        if self.over.is_none() {
            self.device.flush_lines(at, len);
        }
    }

    fn fence(&self) {
        if self.over.is_none() {
            self.device.fence();
        }
    }

    fn verify_read(&self) -> Result<()> {
        if self.over.is_some() { Ok(()) } else { self.device.verify_read() }
    }
}

impl<D: MemoryArea> MemoryArea for Overlay<D> {
    fn memory(&self) -> Result<MemoryPromise> {
        self.device.memory()
    }
}
