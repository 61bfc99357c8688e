//! What a host thread has stored and the device does not have yet: CPU cache lines, write-combining buffers,
//! posted writes.
//!
//! Every task has its own stage. A store lies there *dirty* until its lines are flushed, *flushed* until the
//! fence, *posted* until a write-verify read has drained it into the device's memory. When the host or the
//! power fails, [`Core::settle`] decides by the seed which parts had left early or arrived: any aligned 8 B
//! of what the contract does not protect.

use amphi_device::{Error, Lpa, Result, Structure};

use super::stages::{Staged, page_lines};
use crate::core::Core;
use crate::dice::Dice;
use crate::format::PAGE;
use crate::planted::{self, Bug};
use crate::power::Loss;
use crate::store::Store;

/// Bytes a task may have staged before lines leave by themselves, as a cache would evict them.
const EVICT_AT: usize = 1 << 20;
/// Bytes of a store that is drained without taking the stage apart.
const SMALL: usize = 256;

impl Core {
    /// Stages a store of the calling task, and marks its lines as flushed if `flushed`.
    ///
    /// # Errors
    /// Lines had to leave early and the device could not take them.
    pub(crate) fn stage(&self, at: u64, data: &[u8], tx: u32, tag: Structure, flushed: bool) -> Result<()> {
        let full = self.stages.with_mine(|stage| {
            let start = stage.bytes.len();
            stage.bytes.extend_from_slice(data);
            stage.stores.push(Staged { at, start, len: data.len(), tx, tag, flushed: 0, posted: 0 });
            let full = stage.bytes.len() >= EVICT_AT;
            if flushed && !full {
                stage.flush(at, data.len());
            }
            full
        });
        if full {
            self.stages.with_mine(|stage| {
                for store in &mut stage.stores {
                    store.posted = store.lines();
                }
            });
            let (lines, stores) = self.posted();
            self.timing.wait(self.timing.post_lines(lines));
            self.timing.wait(self.timing.verify_lines(lines, stores));
            self.drain()?;
        }
        Ok(())
    }

    /// Marks the calling task's lines as flushed.
    pub(crate) fn flush_staged(&self, at: u64, len: usize) {
        self.stages.with_mine(|stage| stage.flush(at, len));
    }

    /// Posts the calling task's flushed lines. Answers how many that are.
    pub(crate) fn post_staged(&self) -> u64 {
        if planted::has(Bug::FenceWithoutEffect) {
            return 0;
        }
        self.stages.with_mine(|stage| {
            let mut lines = 0;
            for store in &mut stage.stores {
                lines += u64::from((store.flushed & !store.posted).count_ones());
                store.posted |= store.flushed;
            }
            lines
        })
    }

    /// Lines the calling task has posted, and stores they are of that the firmware has to take in.
    pub(crate) fn posted(&self) -> (u64, u64) {
        let entries = u64::from(self.has_entries());
        self.stages.with_mine(|stage| {
            stage.stores.iter().fold((0, 0), |(lines, stores), store| {
                let posted = store.posted.count_ones();
                (lines + u64::from(posted), stores + entries * u64::from(posted > 0))
            })
        })
    }

    /// Keeps a failure for the calling task's next write-verify read.
    pub(crate) fn keep_failure(&self, cause: Error) {
        self.stages.with_mine(|stage| stage.failure = Some(cause));
    }

    /// The failure kept for the calling task, if any.
    ///
    /// # Errors
    /// That failure.
    pub(crate) fn take_failure(&self) -> Result<()> {
        self.stages.with_mine(|stage| stage.failure.take()).map_or(Ok(()), Err)
    }

    /// Has the firmware take in the calling task's posted lines.
    ///
    /// # Errors
    /// What it could not accept: that store and the ones posted after it are lost.
    pub(crate) fn drain(&self) -> Result<()> {
        // The stores are taken out, so that no lock is held while the firmware makes room.
        let mut copy = [0; SMALL];
        let taken = self.stages.with_mine(|stage| {
            stage.dirty_from = 0;
            if let [store] = &stage.stores[..]
                && store.is_posted()
                && store.len <= SMALL
            {
                copy[..store.len].copy_from_slice(&stage.bytes[store.start..store.start + store.len]);
                stage.bytes.clear();
                return Err(stage.stores.pop());
            }
            Ok((std::mem::take(&mut stage.stores), std::mem::take(&mut stage.bytes)))
        });
        let (mut stores, mut bytes) = match taken {
            Ok(taken) => taken,
            Err(one) => return one.map_or(Ok(()), |store| self.drain_one(&store, &copy[..store.len])),
        };
        let mut outcome = Ok(());
        let mut arrived = 0;
        let mut left = Vec::new();
        for store in &stores {
            if outcome.is_ok() {
                outcome = self.arrive(store, &bytes, store.posted).map(|at| arrived = arrived.max(at));
            }
            if matches!(outcome, Err(Error::PowerLost)) {
                left.push(store.clone());
            } else if !store.is_posted() {
                for (first, last) in runs(store.lines() & !store.posted) {
                    let (at, start, len) = store.part(first, last);
                    let lines = page_lines(at, len);
                    left.push(Staged { at, start, len, flushed: store.flushed & lines, posted: 0, ..*store });
                }
            }
        }
        if left.is_empty() {
            bytes.clear();
        } else {
            let mut packed = Vec::with_capacity(left.iter().map(|store| store.len).sum());
            for store in &mut left {
                let start = packed.len();
                packed.extend_from_slice(&bytes[store.start..store.start + store.len]);
                store.start = start;
            }
            bytes = packed;
        }
        stores.clear();
        stores.append(&mut left);
        self.stages.with_mine(|stage| {
            stage.stores = stores;
            stage.bytes = bytes;
        });
        self.timing.wait(arrived);
        outcome
    }

    /// The usual case, on a short way: a single small store, all of it posted.
    fn drain_one(&self, store: &Staged, bytes: &[u8]) -> Result<()> {
        let outcome = self.take_in(&arriving(store, store.at, bytes));
        if outcome == Err(Error::PowerLost) {
            // It is still on its way, for the cut to decide.
            self.stages.with_mine(|stage| {
                stage.bytes.extend_from_slice(bytes);
                stage.stores.push(Staged { start: 0, ..store.clone() });
            });
        }
        outcome.map(|arrived| self.timing.wait(arrived))
    }

    /// Has the firmware take in the given lines of a store. Answers when the device has them.
    fn arrive(&self, store: &Staged, bytes: &[u8], lines: u64) -> Result<u64> {
        let mut arrived = 0;
        for (first, last) in runs(lines) {
            let (at, start, len) = store.part(first, last);
            arrived = arrived.max(self.take_in(&arriving(store, at, &bytes[start..start + len]))?);
        }
        Ok(arrived)
    }

    /// Lays the calling task's own stores over what the device answered to a load.
    pub(crate) fn overlay_staged(&self, at: u64, into: &mut [u8]) {
        let end = at + into.len() as u64;
        self.stages.with_mine(|stage| {
            for store in &stage.stores {
                let (from, to) = (at.max(store.at), end.min(store.end()));
                if from < to {
                    let start = store.start + (from - store.at) as usize;
                    let bytes = &stage.bytes[start..start + (to - from) as usize];
                    into[(from - at) as usize..(to - at) as usize].copy_from_slice(bytes);
                }
            }
        });
    }

    /// After a loss: decides by the seed what of every stage had reached the device, and has that taken in.
    pub(crate) fn settle(&self, loss: Loss, seed: u64) {
        // Not by the shard's number: which one a thread has hangs on how many the process had before.
        let mut number = 0;
        for shard in &self.stages.shards {
            for stage in std::mem::take(&mut *shard.lock()).iter().filter(|stage| !stage.stores.is_empty()) {
                let mut dice = Dice::part(seed, number);
                number += 1;
                for store in &stage.stores {
                    let lost = loss == Loss::PowerCut || planted::has(Bug::PostedLostInHostCrash);
                    let arrived = if lost { 0 } else { store.posted };
                    for (first, last) in runs(arrived) {
                        let (at, start, len) = store.part(first, last);
                        self.take_in_at(loss, &arriving(store, at, &stage.bytes[start..start + len]));
                    }
                    for (first, last) in runs(store.lines() & !arrived) {
                        let (at, start, len) = store.part(first, last);
                        let unit = match planted::has(Bug::TornStore) {
                            true => 4,
                            false => u64::from(self.contract.store_atomic_bytes),
                        };
                        for (from, to) in survivors(&mut dice, at, len as u64, unit) {
                            let start = start + (from - at) as usize;
                            let bytes = &stage.bytes[start..start + (to - from) as usize];
                            self.take_in_at(Loss::PowerCut, &arriving(store, from, bytes));
                        }
                    }
                }
            }
        }
    }

    /// After a loss: decides by the seed what of a page of a block write in flight had reached the device.
    pub(crate) fn tear(&self, mut dice: Dice, page: Lpa, data: &[u8], seq: u64) {
        let unit = match planted::has(Bug::TornSector) {
            true => 64,
            false => u64::from(self.contract.block_atomic_bytes),
        };
        let parts: Vec<(usize, &[u8])> = survivors(&mut dice, 0, PAGE, unit)
            .into_iter()
            .map(|(from, to)| (from as usize, &data[from as usize..to as usize]))
            .collect();
        if !parts.is_empty() {
            self.take_in_torn(page.0, &parts, seq);
        }
    }
}

/// A part of a staged store as the firmware takes it in.
fn arriving<'a>(store: &Staged, at: u64, data: &'a [u8]) -> Store<'a> {
    Store { at, data, tx: store.tx, tag: store.tag }
}

/// The runs of set bits, as first and last bit.
fn runs(mut bits: u64) -> impl Iterator<Item = (u32, u32)> {
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let first = bits.trailing_zeros();
        let length = (bits >> first).trailing_ones();
        let last = first + length - 1;
        bits = if last == 63 { 0 } else { bits & (u64::MAX << (last + 1)) };
        Some((first, last))
    })
}

/// Which parts of `at..at + len` survive: all, none, or any aligned units, by the dice. Neighbouring
/// survivors are one part.
fn survivors(dice: &mut Dice, at: u64, len: u64, unit: u64) -> Vec<(u64, u64)> {
    let end = at + len;
    match dice.below(4) {
        0 => return Vec::new(),
        1 => return vec![(at, end)],
        _ => {}
    }
    let mut parts: Vec<(u64, u64)> = Vec::new();
    let mut from = at;
    while from < end {
        let to = ((from / unit + 1) * unit).min(end);
        if dice.below(2) == 0 {
            match parts.last_mut() {
                Some(last) if last.1 == from => last.1 = to,
                _ => parts.push((from, to)),
            }
        }
        from = to;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_page_are_bits() {
        assert_eq!(page_lines(0, 4096), u64::MAX);
        assert_eq!(page_lines(4096 + 63, 2), 0b11);
        assert_eq!(page_lines(4032, 64), 1 << 63);
        assert_eq!(runs(0b1011).collect::<Vec<_>>(), [(0, 1), (3, 3)]);
        assert_eq!(runs(u64::MAX).collect::<Vec<_>>(), [(0, 63)]);
    }

    #[test]
    fn survivors_are_made_of_aligned_units() {
        let mut seen_torn = false;
        for seed in 0..200 {
            let parts = survivors(&mut Dice::new(seed), 100, 60, 8);
            for &(from, to) in &parts {
                assert!(from == 100 || from % 8 == 0, "{from}");
                assert!(to == 160 || to % 8 == 0, "{to}");
            }
            seen_torn |= parts.len() > 1;
        }
        assert!(seen_torn);
    }
}
