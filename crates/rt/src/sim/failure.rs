//! How a Sim fails, and where in the source a panic came from.

use super::report;
use std::cell::RefCell;
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

thread_local! {
    static LAST_LOCATION: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Makes panics inside Sims leave their place in the source and say which task they are in. Done once per process, and in front of
/// whatever hook there is.
pub(crate) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let in_a_task = crate::raw::in_sim(|core| core.current() != super::core::NONE) == Some(true);
            if in_a_task && let Some(location) = info.location() {
                LAST_LOCATION.set(Some(format!("{}:{}", location.file(), location.line())));
            }
            previous(info);
        }));
    });
}

/// The text of a panic with its place in the source, if the hook saw it.
pub(crate) fn with_location(text: String) -> String {
    match LAST_LOCATION.take() {
        Some(location) => format!("panicked at {location}: {text}"),
        None => format!("panicked: {text}"),
    }
}
