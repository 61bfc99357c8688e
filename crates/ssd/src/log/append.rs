//! A byte write's way into the log: reserve, write the entry, index it (ByteFS §4.3, §4.4). No flash access.

use amphi_device::{Error, Result};
use zerocopy::little_endian::{U16, U32, U64};

use crate::format::{EntryHeader, Mapping};
use crate::log::Log;
use crate::log::space;
use crate::overlay::Chunk;
use crate::planted::{self, Bug};
use crate::stats::{Activity, Cause, Counter, Path};
use crate::store::Store;

impl Store<'_> {
    fn header(&self, seq: u64, data_crc: u32) -> EntryHeader {
        EntryHeader {
            crc: U32::ZERO,
            tx: U32::new(self.tx),
            seq: U64::new(seq),
            lpa: U32::new(self.lpa() as u32),
            offset: U16::new(self.offset() as u16),
            len: U16::new(self.data.len() as u16),
            data_crc: U32::new(data_crc),
            tag: self.tag as u8,
            reserved: [0; 3],
        }
    }

    fn entry_bytes(&self) -> u64 {
        EntryHeader::entry_bytes(self.data.len() as u64)
    }
}

/// How often a store waits for a cleaning after which nobody's store finds room, before the log counts as
/// full for good. What others take first is no sign of that.
const PATIENCE: usize = 3;

impl Log {
    /// What host stores may fill of a region. The rest is for entries that cleaning carries over.
    pub(crate) fn host_limit(&self) -> u64 {
        self.layout.region_bytes - self.layout.region_bytes / 16
    }

    fn clean_threshold(&self) -> u64 {
        self.layout.region_bytes * self.profile.log.clean_at_percent / 100
    }

    /// Appends a store to the log, waiting for cleaning if both regions are full. Answers when the device has
    /// it, which is at once: 0.
    ///
    /// # Errors
    /// Both regions are full of open transactions; the transaction is committed already; the host's disk is
    /// full; power was lost.
    pub(crate) fn append(&self, store: &Store<'_>) -> Result<u64> {
        let bytes = store.entry_bytes();
        let data_crc = crc32c::crc32c(store.data);
        let mut patience = PATIENCE;
        let mut appended = None;
        loop {
            let seen = self.bell.rounds();
            {
                let (partition, page) = self.partition(store.lpa());
                let mut index = partition.index.write();
                if store.tx != 0
                    && let Some(tx) = amphi_device::TxId::new(store.tx)
                    && self.txlog.committed_at(store.tx).is_some()
                {
                    return Err(Error::AlreadyCommitted(tx));
                }
                let region = self.active_region();
                if let Some(at) = self.reserve_near(region, bytes, self.host_limit())? {
                    self.power.step()?;
                    if planted::has(Bug::FlashReadAtStore)
                        && matches!(self.mapping(store.lpa()), Mapping::At(_))
                    {
                        self.count().flash_read(Cause::Host, 1);
                    }
                    let mut header = store.header(self.tick(), data_crc);
                    self.write_entry(region, at, &mut header, store.data);
                    let chunk = Chunk {
                        place: space::place(region, at),
                        offset: store.offset() as u16,
                        len: store.data.len() as u16,
                    };
                    // The usual overwrite is of the same bytes as before.
                    if !self.supersede(&mut index, page, chunk, store.tx) {
                        if !index.insert(page, chunk) {
                            return Err(Error::NoSpace(
                                "a page has 65535 stores of open transactions in the log; commit some"
                                    .to_owned(),
                            ));
                        }
                        self.prune(&mut index, page, chunk);
                    }
                    drop(index);
                    let count = self.count();
                    count.transfer(Path::ByteWrite, store.tag, store.data.len() as u64);
                    count.add(Counter::LogEntries, 1);
                    count.add(Counter::LogBytes, bytes);
                    if at + bytes > self.clean_threshold() {
                        if planted::has(Bug::CleaningInForeground) {
                            self.clean_one_region()?;
                        } else {
                            self.ring();
                        }
                    }
                    return Ok(0);
                }
            }
            // From one time that it was full to the next: others may fill it while this store waits for its
            // turn, too.
            let entries = self.count().get(Counter::LogEntries);
            if appended != Some(entries) {
                (appended, patience) = (Some(entries), PATIENCE);
            } else if patience > 1 {
                patience -= 1;
            } else {
                return Err(Error::NoSpace(
                    "the write log is full of open transactions; commit some".to_owned(),
                ));
            }
            self.ring();
            let waiting = self.meters.begin(Activity::LogFull);
            self.bell.wait_beyond(seen)?;
            drop(waiting);
            self.power.check()?;
        }
    }

    /// Appends a store while the power goes: to the log alone, without waiting. Answers whether there was
    /// room.
    pub(crate) fn append_at_power_loss(&self, store: &Store<'_>) -> bool {
        self.append_numbered(store, self.tick())
    }

    /// The same, with a number that the store had before.
    pub(crate) fn append_numbered(&self, store: &Store<'_>, seq: u64) -> bool {
        let region = self.active_region();
        let bytes = store.entry_bytes();
        if let Ok(Some(at)) = self.reserve(region, bytes, self.layout.region_bytes) {
            let mut header = store.header(seq, crc32c::crc32c(store.data));
            self.write_entry(region, at, &mut header, store.data);
            return true;
        }
        false
    }

    /// Appends a posted store after a host crash, which the device itself outlives: if the log is full, it is
    /// cleaned first. Answers whether there was room.
    pub(crate) fn append_after_host_crash(&self, store: &Store<'_>) -> bool {
        if self.append_at_power_loss(store) {
            return true;
        }
        self.power.run_firmware(true);
        // What cannot be cleaned leaves no room; the link would hold the write back for ever, as it would for
        // a live host.
        let _ = self.clean_all();
        self.power.run_firmware(false);
        self.append_at_power_loss(store)
    }
}
