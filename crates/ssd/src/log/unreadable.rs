//! What the log holds of a page whose flash cannot be read.
//!
//! Such a page cannot be merged: its bytes in the log are all that is left of it until the host writes the
//! whole page, so they move from region to region with each cleaning. What is committed of them moves as
//! stores without a transaction, each numbered like the commit. With their transactions one bad page would
//! keep commits in the transaction log for ever, until it is full, and RECOVER, after which the host begins
//! its numbers again, could not forget them.

use amphi_device::{Error, Lpa, Result};
use zerocopy::little_endian::{U16, U32, U64};

use crate::format::{EntryHeader, PAGE};
use crate::log::Log;
use crate::log::clean::Scratch;
use crate::log::space::place;
use crate::log::versions::Version;
use crate::overlay::Chunk;
use crate::overlay::PageIndex;
use crate::stats::Cause;

impl Log {
    /// Copies what lasts of a page to the active region, the newest version of each byte, and has the index
    /// refer to that. Answers how many entries it made, or nothing if there is no room, and then nothing was
    /// changed.
    ///
    /// # Errors
    /// The host's disk is full, or power was lost.
    pub(crate) fn carry_unreadable(
        &self,
        scratch: &mut Scratch,
        index: &mut PageIndex,
        page: u16,
        lpa: u64,
    ) -> Result<Option<u64>> {
        let versions = &mut scratch.versions;
        versions.clear();
        versions.extend(index.chunks(page).iter().map(|&chunk| self.version(chunk)));
        versions.retain(|version| version.lasting);
        versions.sort_unstable_by_key(Version::order);
        let runs = newest(versions);
        let bytes = runs.iter().map(|run| EntryHeader::entry_bytes(u64::from(run.chunk.len))).sum();
        let region = self.active_region();
        let Some(mut at) = self.reserve(region, bytes, self.layout.region_bytes)? else { return Ok(None) };
        let mut moved = Vec::with_capacity(runs.len());
        for Version { effect, chunk, .. } in &runs {
            let old = self.entry(chunk.place);
            let data = &mut scratch.entry[..usize::from(chunk.len)];
            self.entry_data(chunk.place, usize::from(chunk.offset - old.offset.get()), data);
            let mut header = EntryHeader {
                tx: U32::ZERO,
                seq: U64::new(*effect),
                offset: U16::new(chunk.offset),
                len: U16::new(chunk.len),
                data_crc: U32::new(crc32c::crc32c(data)),
                ..old
            };
            self.power.step()?;
            self.write_entry(region, at, &mut header, data);
            moved.push(Chunk { place: place(region, at), ..*chunk });
            at += EntryHeader::entry_bytes(u64::from(chunk.len));
        }
        index.retain(page, |chunk| !self.version(*chunk).lasting);
        for chunk in moved {
            // There are no more than twice as many as before, of which a page has some dozens.
            if !index.insert(page, chunk) {
                return Err(Error::Image(format!("page {lpa} has too many log entries")));
            }
        }
        Ok(Some(runs.len() as u64))
    }

    /// Ends a RECOVER that has merged all it could and found page `lpa` unreadable: the log keeps what it has
    /// of such pages and nothing else.
    ///
    /// # Errors
    /// [`Error::Media`] if they do not fit into one region; the log is then kept. Power was lost.
    pub(crate) fn keep_unreadable(&self, scratch: &mut Scratch, lpa: u64) -> Result<()> {
        let interrupted = self.log_tail(1 - self.active_region()) > 0;
        for _ in 0..1 + u32::from(interrupted) {
            if !self.clean_region(scratch, Cause::Recovery)? {
                return Err(Error::Media(Lpa(lpa)));
            }
        }
        Ok(())
    }
}

/// The parts of `versions`, ordered from old to new, that show: no two of them have a byte in common.
fn newest(versions: &[Version]) -> Vec<Version> {
    let mut owner = [usize::MAX; PAGE as usize];
    for (number, version) in versions.iter().enumerate() {
        owner[usize::from(version.chunk.offset)..version.chunk.end()].fill(number);
    }
    let mut runs = Vec::new();
    let mut start = 0;
    for run in owner.chunk_by(|left, right| left == right) {
        if let Some(version) = versions.get(run[0]) {
            let chunk = Chunk { offset: start as u16, len: run.len() as u16, ..version.chunk };
            runs.push(Version { chunk, ..*version });
        }
        start += run.len();
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_shows_is_kept() {
        let version = |effect, offset, len| {
            let chunk = Chunk { place: effect as u32, offset, len };
            Version { effect, seq: effect, tx: 0, lasting: true, chunk }
        };
        let shown: Vec<_> =
            newest(&[version(1, 0, 100), version(2, 40, 20), version(3, 90, 4006), version(4, 95, 1)])
                .iter()
                .map(|run| (run.effect, run.chunk.offset, run.chunk.len))
                .collect();
        assert_eq!(shown, [(1, 0, 40), (2, 40, 20), (1, 60, 30), (3, 90, 5), (4, 95, 1), (3, 96, 4000)]);
        assert!(newest(&[]).is_empty());
    }
}
