//! Replaying a recorded trace as a workload: what somebody's programs did to a file system, done again on
//! another one, in the order in which it was recorded.
//!
//! A trace has no reads, no pauses and no threads: it replays one operation after the other, each as soon as
//! the one before it has returned. On which device that takes place is decided in
//! [`experiment::replay`](crate::experiment::replay).

use amphi_rt::time;
use amphi_trace::Operation;
use amphi_vfs::{Error, FileSystem};
use thiserror::Error as ThisError;

use crate::files::HostCosts;
use crate::workload::{Outcome, StepOutcome, empty_histogram};

/// An operation of a trace that could not be done, although it had been done where it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[error("operation {number} of the trace, `{operation}`, failed: {cause}")]
pub struct Failed {
    /// Which one, from 1 on.
    pub number: u64,
    /// What it is.
    pub operation: String,
    /// What the file system answered.
    pub cause: Error,
}

/// What a replay came to.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Operations, bytes and latencies, one step for each kind of operation.
    pub outcome: Outcome,
    /// Operations that the file system does not offer, and that were left out.
    pub not_offered: u64,
}

/// Does the operations on `fs`, one after the other. What they cost the host beyond the file system is
/// charged by `costs`, in virtual time. `first` numbers the first one: what is written tells by which
/// operation.
///
/// # Errors
/// The first operation that fails otherwise than by not being offered.
pub fn run(
    fs: &dyn FileSystem,
    costs: &HostCosts,
    operations: &[Operation],
    first: u64,
) -> Result<Replayed, Failed> {
    let begun = time::now_ns();
    let mut steps: Vec<StepOutcome> = Vec::new();
    let (mut bytes_written, mut done, mut not_offered) = (0, 0, 0);
    for (number, operation) in (first..).zip(operations) {
        let start = time::now_ns();
        charge(costs, operation);
        match operation.resolved(fs).apply(fs, number) {
            Ok(()) => {}
            Err(Error::Unsupported(_)) => {
                not_offered += 1;
                continue;
            }
            Err(cause) => {
                return Err(Failed { number: number + 1, operation: operation.to_string(), cause });
            }
        }
        let bytes = match operation {
            Operation::Write(_, _, _, len) => u64::from(*len),
            _ => 0,
        };
        done += 1;
        bytes_written += bytes;
        let step = step(&mut steps, operation.name());
        step.bytes += bytes;
        // The histogram grows as needed.
        let _ = step.latency.record(time::now_ns() - start);
    }
    let outcome = Outcome {
        operations: done,
        operations_in_all: done,
        bytes_read: 0,
        bytes_written,
        elapsed_ns: time::now_ns() - begun,
        steps,
    };
    Ok(Replayed { outcome, not_offered })
}

/// What operations of one name have come to so far.
fn step<'a>(steps: &'a mut Vec<StepOutcome>, operation: &'static str) -> &'a mut StepOutcome {
    let index = steps.iter().position(|step| step.operation == operation).unwrap_or_else(|| {
        let group = "trace".to_owned();
        steps.push(StepOutcome { group, operation, counts: true, bytes: 0, latency: empty_histogram() });
        steps.len() - 1
    });
    &mut steps[index]
}

/// Charges an operation as the workloads charge theirs: a walk for what has a path, a call for what works on
/// an open file, and copies.
fn charge(costs: &HostCosts, operation: &Operation) {
    let computing = &costs.computing;
    match operation {
        Operation::Create(path)
        | Operation::Tmpfile(path)
        | Operation::Mknod(path)
        | Operation::Symlink(_, path)
        | Operation::Link(_, path) => costs.walk(path, costs.namespace_ns + computing.create_ns),
        Operation::Mkdir(path) => costs.walk(path, costs.namespace_ns + computing.mkdir_ns),
        Operation::Unlink(path) | Operation::UnlinkOpen(path) => {
            costs.walk(path, costs.namespace_ns + computing.unlink_ns)
        }
        Operation::Rmdir(path) => costs.walk(path, costs.namespace_ns + computing.rmdir_ns),
        Operation::Rename(path, _) | Operation::Exchange(path, _) => {
            costs.walk(path, costs.namespace_ns + computing.rename_ns);
        }
        Operation::SetXattr(path, _)
        | Operation::RemoveXattr(path)
        | Operation::Chmod(path, _)
        | Operation::Chown(path, ..)
        | Operation::Utimens(path, _) => costs.walk(path, 0),
        Operation::Write(_, _, _, len) => costs.write(*len as usize, false),
        Operation::Fsync(..) => costs.call(computing.fsync_ns),
        Operation::Allocate(..) | Operation::Truncate(..) | Operation::Sync | Operation::Discard => {
            costs.call(0)
        }
    }
}
