//! How a Sim fails.

use std::fmt;

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// A task panicked.
    Panic,
    /// Tasks wait for one another, or nobody can run and nobody sleeps.
    Deadlock,
    /// Tasks only yield to one another and nothing else happens.
    Livelock,
    /// Virtual time reached its limit.
    TimeLimit,
    /// A task blocked its OS thread, in a lock or call that the Sim does not know.
    Blocked,
}

/// Why a Sim ended early. The same seed fails in the same way.
#[derive(Debug, Clone)]
pub struct Failure {
    /// What went wrong.
    pub kind: FailureKind,
    /// The seed that does it again.
    pub seed: u64,
    /// Virtual time of the failure, in ns since the Sim began.
    pub time_ns: u64,
    /// Name of the task that failed.
    pub task: String,
    /// Id of the task that failed; 0 for the scheduler.
    pub task_id: u64,
    /// The panic's text, or who waits for whom.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}\n  in task {} '{}' at virtual time {}, seed {}",
            self.message,
            self.task_id,
            self.task,
            time(self.time_ns),
            self.seed
        )
    }
}

impl std::error::Error for Failure {}

/// Nanoseconds as people read them.
pub(super) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.3} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.6} ms", ns as f64 / 1e6),
        _ => format!("{:.9} s", ns as f64 / 1e9),
    }
}

/// What is said of a panic whose value is not text.
pub(crate) const NO_TEXT: &str = "with a value that is not text";
