//! One run over several peers: each round gives every peer one batch of an operation, in an order that
//! changes from round to round.

use std::sync::atomic::{AtomicUsize, Ordering};

use amphi_rt::task;
use anyhow::Result;

use crate::batch::{Batch, timed};
use crate::operation::{Desk, Operation, Place};
use crate::remote::{self, Remote};
use crate::samples::Samples;

/// A peer with a desk for each thread, in this process or in one of its own.
pub enum Seat {
    /// In this process.
    Here(Vec<Box<dyn Desk>>),
    /// Each in another one.
    Apart(Vec<Remote>),
}

impl Seat {
    /// Takes desks for `threads` threads.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn take(place: &dyn Place, threads: usize) -> Result<Self> {
        Ok(Self::Here((0..threads).map(|thread| place.desk(thread)).collect::<Result<_>>()?))
    }

    /// Runs one batch with `threads` threads at once.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn batch(&mut self, operation: Operation, threads: usize, calls: usize) -> Result<Batch> {
        let desks = match self {
            Self::Here(desks) => &mut desks[..threads],
            Self::Apart(processes) => return remote::batch(processes, operation, threads, calls),
        };
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
                let batches = tasks.into_iter().map(task::ScopedJoinHandle::join);
                batches.collect::<Result<Vec<_>>>().map(Batch::together)
            })
        };
        // Also after a failure, so that the next batch finds an empty desk.
        let cleared: Result<()> = desks.iter_mut().try_for_each(|desk| desk.clear(operation, calls));
        let batch = timed?;
        cleared?;
        Ok(batch)
    }
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
                Ok(batch) if round > 0 => {
                    let calls = (threads * operation.calls()) as f64;
                    samples.rates.push(calls * 1e9 / (batch.ended_ns - batch.begun_ns).max(1) as f64);
                    samples.rounds.push(batch.samples);
                }
                Ok(_) => {}
                Err(error) => {
                    *samples = Samples { failure: Some(format!("{error:#}")), ..Samples::default() };
                }
            }
        }
    }
    all
}
