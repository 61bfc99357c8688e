//! Finding the log again: the index rebuilt at power-up, and RECOVER (ByteFS §4.7).

use amphi_device::{RecoverReport, Result};

use crate::log::Log;
use crate::overlay::Chunk;
use crate::overlay::PageIndex;
use crate::planted::{self, Bug};
use crate::stats::{Cause, Counter};

/// What a scan of the log found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Scan {
    entries: u64,
    uncommitted: u64,
}

impl Log {
    /// Indexes what the log holds that flash does not: entries not voided by a later block write or trim, and
    /// not merged already. With `drop_open`, entries of transactions that were not committed are left out.
    fn replay(&self, drop_open: bool) -> Result<Scan> {
        let mut scan = Scan::default();
        for (number, partition) in self.partitions.iter().enumerate() {
            let mut index = partition.index.write();
            if index.pages() > 0 {
                *index = PageIndex::new(number as u32);
            }
        }
        for region in 0..2 {
            self.scan_region(region, |place, header| {
                scan.entries += 1;
                if header.seq.get() % 8 == 0 && planted::has(Bug::LogEntryForgotten) {
                    return Ok(());
                }
                let chunk = Chunk { place, offset: header.offset.get(), len: header.len.get() };
                let lpa = u64::from(header.lpa.get());
                let (partition, page) = self.partition(lpa);
                let mut index = partition.index.write();
                let version = self.version(chunk);
                scan.uncommitted += u64::from(!version.lasting);
                let marks = self.marks(lpa, self.mapping_with_trims(lpa));
                let void = version.seq <= marks.written_at;
                let merged = version.lasting && version.effect <= marks.merged_to;
                if void || merged || (drop_open && !version.lasting) {
                    return Ok(());
                }
                if !index.insert(page, chunk) {
                    return Err(amphi_device::Error::Image(format!("page {lpa} has too many log entries")));
                }
                self.prune(&mut index, page, chunk);
                Ok(())
            })?;
        }
        Ok(scan)
    }

    /// Rebuilds the log's index at power-up.
    ///
    /// # Errors
    /// The log is damaged.
    pub(crate) fn rebuild_index(&self) -> Result<()> {
        self.check_regions()?;
        self.load_txlog()?;
        self.replay(false)?;
        Ok(())
    }

    /// `RECOVER()`. Until the regions are cleared nothing is lost by stopping, and each page's record says
    /// what it has already, so an interrupted recovery is simply begun again. Of pages that flash cannot give
    /// any more, the log keeps what it has.
    ///
    /// # Errors
    /// A page cannot be written, or the log has no room to keep what it must; it is then left as it is.
    pub(crate) fn recover_log(&self) -> Result<RecoverReport> {
        let mut scratch = self.cleaning.0.lock();
        let transactions = self.commits_logged();
        let scan = self.replay(true)?;
        if planted::has(Bug::LogClearedEarly) {
            self.clear_region(0)?;
        }
        let cleaned = self.clean_pages(&mut scratch, None, Cause::Recovery)?;
        if let Some(lpa) = cleaned.unreadable {
            self.keep_unreadable(&mut scratch, lpa)?;
        } else {
            self.clear_region(0)?;
            self.clear_region(1)?;
        }
        // Only now: while an entry is left, its transaction must be known to be committed.
        if !planted::has(Bug::CommitsOutliveRecovery) {
            self.trim_txlog(u64::MAX)?;
        }
        self.count().add(Counter::Recoveries, 1);
        Ok(RecoverReport {
            entries_scanned: scan.entries,
            entries_dropped: scan.uncommitted,
            pages_written: cleaned.pages,
            transactions,
        })
    }
}
