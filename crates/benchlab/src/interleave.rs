//! One run over several peers: each round gives every peer one batch of an operation, in an order that
//! changes from round to round.

use std::sync::atomic::{AtomicUsize, Ordering};

use amphi_rt::{task, time};
use anyhow::Result;

use crate::operation::{Desk, Operation, Place};

/// The samples of one peer, one operation, one number of threads.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// ns per call, of each sample of each round, rounds apart.
    pub rounds: Vec<Vec<u64>>,
    /// Why there are none.
    pub failure: Option<String>,
}

/// A peer with a desk for each thread.
pub struct Seat {
    desks: Vec<Box<dyn Desk>>,
}

impl Seat {
    /// Takes desks for `threads` threads.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn take(place: &dyn Place, threads: usize) -> Result<Self> {
        Ok(Self { desks: (0..threads).map(|thread| place.desk(thread)).collect::<Result<_>>()? })
    }

    /// Runs one batch with `threads` threads at once. Answers ns per call, of all their samples.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn batch(&mut self, operation: Operation, threads: usize, calls: usize) -> Result<Vec<u64>> {
        let desks = &mut self.desks[..threads];
        desks.iter_mut().try_for_each(|desk| desk.prepare(operation, calls))?;
        let timed = if let [desk] = desks {
            timed(&mut **desk, operation, calls)
        } else {
            let waiting = AtomicUsize::new(threads);
            let waiting = &waiting;
            task::scope(|scope| {
                let tasks: Vec<_> = desks
                    .iter_mut()
                    .map(|desk| {
                        scope.spawn("bench", move || {
                            // Started together: the first to come waits for the last without sleeping.
                            waiting.fetch_sub(1, Ordering::AcqRel);
                            while waiting.load(Ordering::Acquire) > 0 {
                                std::hint::spin_loop();
                            }
                            timed(&mut **desk, operation, calls)
                        })
                    })
                    .collect();
                tasks
                    .into_iter()
                    .map(task::ScopedJoinHandle::join)
                    .collect::<Result<Vec<_>>>()
                    .map(|all| all.concat())
            })
        };
        // Also after a failure, so that the next batch finds an empty desk.
        let cleared: Result<()> = desks.iter_mut().try_for_each(|desk| desk.clear(operation, calls));
        let samples = timed?;
        cleared?;
        Ok(samples)
    }
}

fn timed(desk: &mut dyn Desk, operation: Operation, calls: usize) -> Result<Vec<u64>> {
    let together = operation.calls_per_sample();
    let mut samples = Vec::with_capacity(calls / together);
    for first in (0..calls).step_by(together) {
        let begin = time::now_ns();
        for number in first..(first + together).min(calls) {
            desk.call(operation, number)?;
        }
        samples.push((time::now_ns() - begin) / together as u64);
    }
    Ok(samples)
}

/// Runs `rounds` rounds of one operation over all seats. `go_on` is asked before each batch; once it says no,
/// what there is is returned.
pub fn run(
    seats: &mut [Option<Seat>],
    operation: Operation,
    threads: usize,
    rounds: usize,
    go_on: &dyn Fn() -> bool,
) -> Vec<Samples> {
    let mut all: Vec<Samples> = seats.iter().map(|_| Samples::default()).collect();
    // The first round warms caches up and does not count.
    for round in 0..=rounds {
        for position in 0..seats.len() {
            let peer = (position + round) % seats.len();
            let (Some(seat), samples) = (&mut seats[peer], &mut all[peer]) else { continue };
            if samples.failure.is_some() {
                continue;
            }
            if !go_on() {
                return all;
            }
            match seat.batch(operation, threads, operation.calls()) {
                Ok(batch) if round > 0 => samples.rounds.push(batch),
                Ok(_) => {}
                Err(error) => *samples = Samples { rounds: Vec::new(), failure: Some(format!("{error:#}")) },
            }
        }
    }
    all
}
