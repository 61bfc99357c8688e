//! The search for an order of calls that a model explains.

use std::fmt::Display;

use amphi_model::Model;

/// Calls that have returned, and what an order of them has to keep and to explain.
pub(super) struct Order<'a, E> {
    pub events: &'a [E],
    /// Whether the first has taken effect before the second.
    pub is_before: &'a dyn Fn(&E, &E) -> bool,
    /// Has a model do the same; whether it gives the same answer.
    pub is_explained: &'a dyn Fn(&Model, &E) -> bool,
    /// Whether it may as well have changed nothing.
    pub may_be_nothing: &'a dyn Fn(&E) -> bool,
    /// Compares what a model has after all of them with what is there.
    pub is_left: &'a dyn Fn(&Model) -> Result<(), String>,
}

impl<E: Display> Order<'_, E> {
    /// Finds one, and returns what it leaves.
    pub(super) fn explain(&self, model: &Model) -> Result<Model, String> {
        let mut last = None;
        self.search(model, 0, &mut last).ok_or_else(|| {
            let lines: Vec<String> = self.events.iter().map(|event| format!("  {event}")).collect();
            let why = last.unwrap_or_else(|| "no order gives these answers".to_owned());
            format!("{why}\n{}", lines.join("\n"))
        })
    }

    /// Goes on behind the calls in `done`, a set of bits.
    fn search(&self, model: &Model, done: u64, last: &mut Option<String>) -> Option<Model> {
        let open = || self.events.iter().enumerate().filter(|(at, _)| done >> at & 1 == 0);
        if open().next().is_none() {
            return match (self.is_left)(model) {
                Ok(()) => Some(model.clone()),
                Err(what) => {
                    *last = Some(format!("orders with these answers leave something else: {what}"));
                    None
                }
            };
        }
        for (at, event) in
            open().filter(|(_, event)| !open().any(|(_, first)| (self.is_before)(first, event)))
        {
            let next = model.clone();
            if (self.is_explained)(&next, event)
                && let Some(found) = self.search(&next, done | 1 << at, last)
            {
                return Some(found);
            }
            if (self.may_be_nothing)(event)
                && let Some(found) = self.search(model, done | 1 << at, last)
            {
                return Some(found);
            }
        }
        None
    }
}
