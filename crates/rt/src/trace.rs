//! Marks for a Sim's trace. They cost nothing where no Sim writes one.

use crate::raw::in_sim;
use crate::sim::core::Core;

/// Marks a moment in the running task, if its Sim writes a trace.
pub fn mark(what: &str) {
    in_sim(|core| {
        let now = core.now();
        core.trace(|trace, (id, _)| trace.instant(now, id, what));
    });
}

/// Marks a stretch of time in the running task, from this call until the value is dropped, if its Sim writes
/// a trace.
pub fn span(what: &'static str) -> Span {
    Span { what, start: in_sim(Core::now).unwrap_or(0) }
}

/// A stretch of time in a trace: see [`span`].
#[derive(Debug)]
#[must_use = "the span ends when this is dropped"]
pub struct Span {
    what: &'static str,
    start: u64,
}

impl Drop for Span {
    fn drop(&mut self) {
        in_sim(|core| {
            let now = core.now();
            core.trace(|trace, (id, _)| trace.span(self.start.min(now), now, id, self.what));
        });
    }
}
