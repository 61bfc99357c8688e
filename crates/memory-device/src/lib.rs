//! The plainest device: memory. It takes no time, keeps as much of a log as transactions need, and, when a
//! test asks for it, loses power at the nth change or cannot read a page. Images for checks are built and
//! broken on it, quickly and by the thousand; what an SSD does, `ssd` does.
#![forbid(unsafe_code)]

use amphi_device::{
    BlockDurability, BlockPort, ByteDurability, BytePort, Completion, Device, DurabilityContract, Error, Lpa,
    PAGE_BYTES, PageView, RecoverReport, Result, Structure, TxId, WriteLog,
};
use amphi_rt::sync::Mutex;

/// The device. Its byte port shows the block port's pages, as ByteFS asks for.
#[derive(Debug)]
pub struct Memory {
    bytes: Mutex<Vec<u8>>,
    /// What stores of transactions not committed yet have overwritten, oldest first.
    undo: Mutex<Vec<(TxId, usize, Vec<u8>)>>,
    /// Pages whose reading fails with a media error.
    bad_pages: Mutex<Vec<u64>>,
    /// Changes until the power goes.
    changes_left: Mutex<u64>,
    transactions: bool,
}

/// A command that is done already.
#[derive(Debug)]
pub struct Done(Result<()>);

impl Completion for Done {
    fn done_at_ns(&self) -> u64 {
        0
    }

    fn wait(self) -> Result<()> {
        self.0
    }
}

impl Memory {
    /// A device holding `bytes`, a multiple of 4096.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes: Mutex::new(bytes),
            undo: Mutex::default(),
            bad_pages: Mutex::default(),
            changes_left: Mutex::new(u64::MAX),
            transactions: true,
        }
    }

    /// The same, of firmware that has neither log nor transactions.
    #[must_use]
    pub fn without_transactions(bytes: Vec<u8>) -> Self {
        Self { transactions: false, ..Self::new(bytes) }
    }

    /// Everything on the device.
    #[must_use]
    pub fn contents(&self) -> Vec<u8> {
        self.bytes.lock().clone()
    }

    /// Makes a page unreadable.
    pub fn spoil(&self, page: u64) {
        self.bad_pages.lock().push(page);
    }

    /// Makes the first page that holds these bytes unreadable.
    ///
    /// # Panics
    /// If there is none.
    pub fn spoil_page_of(&self, bytes: &[u8]) {
        let page = self.bytes.lock().chunks_exact(PAGE_BYTES).position(|page| page == bytes);
        self.spoil(page.expect("a page holds them") as u64);
    }

    /// Lets the power go after `changes` more writes, stores and commits.
    pub fn lose_power_after(&self, changes: u64) {
        *self.changes_left.lock() = changes;
    }

    /// Gives the power back.
    pub fn power_on(&self) {
        *self.changes_left.lock() = u64::MAX;
    }

    fn change(&self) -> Result<()> {
        let mut left = self.changes_left.lock();
        *left = left.checked_sub(1).ok_or(Error::PowerLost)?;
        Ok(())
    }

    fn range(&self, what: &'static str, at: u64, len: usize) -> Result<std::ops::Range<usize>> {
        let capacity = self.bytes.lock().len();
        match (at as usize).checked_add(len) {
            Some(end) if end <= capacity => Ok(at as usize..end),
            _ => Err(Error::OutOfRange { what, at, len: len as u64, bytes: capacity as u64 }),
        }
    }
}

impl Device for Memory {
    fn capacity_pages(&self) -> u64 {
        (self.bytes.lock().len() / PAGE_BYTES) as u64
    }

    fn contract(&self) -> DurabilityContract {
        DurabilityContract {
            store_atomic_bytes: 8,
            byte_durability: ByteDurability::VerifyRead,
            block_atomic_bytes: 4096,
            block_durability: BlockDurability::Completion,
            transactions: self.transactions,
        }
    }
}

impl BlockPort for Memory {
    type Ticket<'a> = Done;

    fn submit_read<'a>(&'a self, at: Lpa, into: &'a mut [u8], _: Structure) -> Result<Done> {
        let range = self.range("read", at.byte(0), into.len())?;
        into.copy_from_slice(&self.bytes.lock()[range]);
        let pages = at.0..at.0 + (into.len() / PAGE_BYTES) as u64;
        let bad = self.bad_pages.lock().iter().copied().find(|page| pages.contains(page));
        Ok(Done(bad.map_or(Ok(()), |page| Err(Error::Media(Lpa(page))))))
    }

    fn submit_write<'a>(&'a self, at: Lpa, bufs: &'a [&'a [u8]], _: Structure) -> Result<Done> {
        self.change()?;
        let mut at = at.byte(0);
        for buf in bufs {
            let range = self.range("write", at, buf.len())?;
            self.bytes.lock()[range].copy_from_slice(buf);
            at += buf.len() as u64;
        }
        Ok(Done(Ok(())))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn trim(&self, at: Lpa, pages: u64) -> Result<()> {
        let range = self.range("trim", at.byte(0), pages as usize * PAGE_BYTES)?;
        for page in self.bytes.lock()[range].chunks_exact_mut(PAGE_BYTES) {
            // Zeros in a page that was never written would only make the kernel give it memory.
            if *page != [0; PAGE_BYTES] {
                page.fill(0);
            }
        }
        Ok(())
    }
}

impl PageView for Memory {
    fn check_page_view(&self) -> Result<()> {
        Ok(())
    }
}

impl BytePort for Memory {
    fn bytes(&self) -> u64 {
        self.bytes.lock().len() as u64
    }

    fn load_dma(&self, _: u64, _: &mut [u8], _: Structure) -> Result<()> {
        Err(Error::Unsupported("reads of byte ranges by DMA"))
    }

    fn load(&self, at: u64, into: &mut [u8], _: Structure) -> Result<()> {
        let range = self.range("load", at, into.len())?;
        into.copy_from_slice(&self.bytes.lock()[range]);
        Ok(())
    }

    fn store(&self, at: u64, data: &[u8], tx: Option<TxId>, _: Structure) -> Result<()> {
        self.change()?;
        if tx.is_some() && !self.transactions {
            return Err(Error::Unsupported("this firmware has no transactions"));
        }
        let range = self.range("store", at, data.len())?;
        let mut bytes = self.bytes.lock();
        if let Some(tx) = tx {
            self.undo.lock().push((tx, range.start, bytes[range.clone()].to_vec()));
        }
        bytes[range].copy_from_slice(data);
        Ok(())
    }

    fn store_flushed(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()> {
        self.store(at, data, tx, tag)
    }

    fn flush_lines(&self, _: u64, _: usize) {}

    fn fence(&self) {}

    fn verify_read(&self) -> Result<()> {
        Ok(())
    }
}

impl WriteLog for Memory {
    fn commit(&self, tx: TxId) -> Result<()> {
        self.change()?;
        self.undo.lock().retain(|(other, _, _)| *other != tx);
        Ok(())
    }

    fn recover(&self) -> Result<RecoverReport> {
        let mut bytes = self.bytes.lock();
        let undo = std::mem::take(&mut *self.undo.lock());
        let entries_dropped = undo.len() as u64;
        for (_, at, old) in undo.into_iter().rev() {
            bytes[at..at + old.len()].copy_from_slice(&old);
        }
        Ok(RecoverReport { entries_dropped, ..RecoverReport::default() })
    }

    fn clean_log(&self) -> Result<()> {
        Ok(())
    }
}
