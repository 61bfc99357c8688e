//! One batch of calls of an operation, by one thread or by several.

use amphi_rt::time;
use anyhow::Result;

use crate::operation::{Desk, Operation};

/// What one batch took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// ns per call, of each sample of each thread.
    pub samples: Vec<u64>,
    /// When the first call began, by the wall clock, which processes share.
    pub begun_ns: i64,
    /// When the last call ended.
    pub ended_ns: i64,
}

impl Batch {
    /// Those of threads at the same time as one.
    pub(crate) fn together(batches: Vec<Self>) -> Self {
        let begun_ns = batches.iter().map(|batch| batch.begun_ns).min().unwrap_or_default();
        let ended_ns = batches.iter().map(|batch| batch.ended_ns).max().unwrap_or_default();
        let samples = batches.into_iter().flat_map(|batch| batch.samples).collect();
        Self { samples, begun_ns, ended_ns }
    }
}

/// Calls an operation on a desk, and takes the time of each sample.
///
/// # Errors
/// What the file system answers.
pub(crate) fn timed(desk: &mut dyn Desk, operation: Operation, calls: usize) -> Result<Batch> {
    let together = operation.calls_per_sample();
    let mut samples = Vec::with_capacity(calls.div_ceil(together));
    let begun_ns = time::wall_ns();
    for first in (0..calls).step_by(together) {
        let begin = time::now_ns();
        for number in first..(first + together).min(calls) {
            desk.call(operation, number)?;
        }
        samples.push((time::now_ns() - begin) / together as u64);
    }
    Ok(Batch { samples, begun_ns, ended_ns: time::wall_ns() })
}
