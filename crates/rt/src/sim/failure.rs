//! How a Sim fails, and what a panic leaves for its report.

use super::report;
use std::fmt;
use std::sync::Once;

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
            report::time(self.time_ns),
            self.seed
        )
    }
}

impl std::error::Error for Failure {}

/// Makes panics inside Sims leave their text and place with their task. Done once per process, and in front
/// of whatever hook there is.
pub(crate) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            crate::raw::in_sim(|core| {
                let place = info
                    .location()
                    .map_or(String::new(), |place| format!(" at {}:{}", place.file(), place.line()));
                core.note_panic(format!("panicked{place}: {}", info.payload_as_str().unwrap_or(NO_TEXT)));
            });
            previous(info);
        }));
    });
}

/// What is said of a panic whose value is not text.
pub(crate) const NO_TEXT: &str = "with a value that is not text";
