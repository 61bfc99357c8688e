//! Transaction numbers: the host's TxTable (ByteFS §4.3).
//!
//! Processors take numbers by the run, so that what host and firmware note of a transaction is mostly written
//! by one processor alone.

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{TxId, WriteLog};
use amphi_rt::cpu;
use amphi_rt::sync::{Padded, RwLock};

use crate::planted::{self, Bug};

/// Transaction numbers that a processor takes at a time: what the firmware notes of each lies beside what it
/// notes of the next.
const RUN: u64 = 64;

/// Assigns transaction numbers and knows how many are in flight: the host's TxTable (§4.3).
pub struct TxTable {
    /// The first number that no processor has taken.
    next: Padded<AtomicU64>,
    lanes: Box<[Padded<Lane>]>,
}

/// What a processor has to itself.
#[derive(Default)]
struct Lane {
    /// Held shared from a number's assignment to its commit; those of all processors are held exclusively
    /// when the numbers start again.
    gate: RwLock<()>,
    /// The next number of its run; a multiple of [`RUN`] if there is none.
    next: AtomicU64,
}

impl Default for TxTable {
    fn default() -> Self {
        let lanes = (0..cpu::count().max(1)).map(|_| Padded::default()).collect();
        Self { next: Padded(AtomicU64::new(0)), lanes }
    }
}

impl TxTable {
    /// Runs `body` as the transaction with a fresh number.
    ///
    /// After 2³²−1 transactions the numbers start again: once no transaction is open, cleaning the log
    /// empties the firmware's transaction log, and no entry carries an old number any more.
    pub fn run<D: WriteLog>(
        &self,
        device: &D,
        body: impl FnOnce(TxId) -> amphi_device::Result<()>,
    ) -> amphi_device::Result<()> {
        loop {
            {
                let lane = &self.lanes[cpu::current() % self.lanes.len()];
                let _open = lane.gate.read();
                let number = self.number(lane);
                if let Some(id) = u32::try_from(number).ok().and_then(TxId::new) {
                    return body(id);
                }
            }
            let _closed: Vec<_> = self.lanes.iter().map(|lane| lane.gate.write()).collect();
            if self.next.load(Ordering::Relaxed) > u64::from(u32::MAX) {
                device.clean_log()?;
                self.next.store(0, Ordering::Relaxed);
                self.lanes.iter().for_each(|lane| lane.next.store(0, Ordering::Relaxed));
            }
        }
    }

    /// The next number of a lane, the last of its run or of a run of its own. Several tasks may have one
    /// processor.
    fn number(&self, lane: &Lane) -> u64 {
        let step = u64::from(!planted::has(Bug::TransactionNumberReused));
        let taken = lane.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (!next.is_multiple_of(RUN)).then_some(next + step)
        });
        taken.unwrap_or_else(|_| {
            // 0 is no transaction, so that a run's first number is left out.
            let first = self.next.fetch_add(RUN, Ordering::Relaxed) + 1;
            lane.next.store(first + step, Ordering::Relaxed);
            first
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use amphi_rt::sync::Mutex;
    use amphi_rt::task;
    use amphi_ssd::{Profile, Ssd};

    use super::*;

    const TASKS: usize = 4;
    const CALLS: usize = 1000;

    /// Commits transactions of several tasks at once; their numbers, of which none may come twice before the
    /// numbers start again.
    fn numbers(table: TxTable) -> Vec<u32> {
        let device = Arc::new(Ssd::in_memory(&Profile::named("free").unwrap(), 64 << 20));
        let (table, seen) = (Arc::new(table), Arc::new(Mutex::new(Vec::new())));
        let running: Vec<_> = (0..TASKS)
            .map(|_| {
                let (device, table, seen) = (Arc::clone(&device), Arc::clone(&table), Arc::clone(&seen));
                task::spawn("tx", move || {
                    for _ in 0..CALLS {
                        let body = |id: TxId| {
                            seen.lock().push(id.get());
                            // The firmware refuses a number that it knows.
                            device.commit(id)
                        };
                        table.run(&*device, body).unwrap();
                    }
                })
            })
            .collect();
        running.into_iter().for_each(task::JoinHandle::join);
        std::mem::take(&mut *seen.lock())
    }

    #[test]
    fn no_number_comes_twice() {
        let numbers = numbers(TxTable::default());
        assert_eq!(numbers.len(), TASKS * CALLS);
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), TASKS * CALLS);
    }

    #[test]
    fn numbers_start_again_after_the_last() {
        let table = TxTable::default();
        table.next.store((1 << 32) - 16 * RUN, Ordering::Relaxed);
        let numbers = numbers(table);
        assert_eq!(numbers.len(), TASKS * CALLS);
        assert!(numbers.iter().any(|number| *number > u32::MAX - RUN as u32), "the last run was used");
        let again = numbers.iter().filter(|number| **number < 1 << 31).collect::<BTreeSet<_>>();
        let before = numbers.iter().filter(|number| **number > 1 << 31).collect::<BTreeSet<_>>();
        assert_eq!(again.len() + before.len(), TASKS * CALLS, "each once before, once after");
        assert!(before.len() < 16 * RUN as usize && again.len() > 2000, "{} before", before.len());
    }
}
