//! What a failed Sim says about its tasks: who waits for what, since when, and who holds it.

use super::core::State;
use super::failure::time;
use super::task::{Hold, Slot, Wait};
use std::fmt::Write;

impl State {
    fn task_name(&self, slot: Slot) -> String {
        let task = &self.tasks[slot as usize];
        format!("task {} '{}'", task.id, task.name)
    }

    fn names(&self, slots: impl Iterator<Item = Slot>) -> String {
        let names: Vec<String> = slots.map(|slot| self.task_name(slot)).collect();
        if names.is_empty() { "nobody in this Sim".to_owned() } else { names.join(", ") }
    }

    fn wait_text(&self, wait: Wait) -> String {
        match wait {
            Wait::Nothing => "could run".to_owned(),
            Wait::Lock { id, hold } => format!(
                "waits for lock {} ({}), held by {}",
                self.queues.number(id),
                match hold {
                    Hold::Shared | Hold::SharedRecursive => "to read",
                    Hold::Upgradable => "to read, upgradable",
                    Hold::Exclusive => "exclusively",
                    Hold::Upgrade => "to upgrade it",
                },
                self.names(self.holders(id))
            ),
            Wait::Condvar { id, label } => format!("waits for {label} {}", self.queues.number(id)),
            Wait::Join { slot, .. } => format!("waits for the end of {}", self.task_name(slot)),
            Wait::Sleep => "sleeps".to_owned(),
            Wait::Cpu => "waits for a processor".to_owned(),
        }
    }

    /// One line for each live task, the first 50.
    pub(crate) fn who_waits(&self) -> String {
        const MOST: usize = 50;
        let mut text = String::new();
        let live = || self.tasks.iter().enumerate().filter(|(_, task)| task.alive);
        for (slot, task) in live().take(MOST) {
            let _ = write!(text, "\n    {} {}", self.task_name(slot as Slot), self.wait_text(task.wait));
            let _ = match task.wait {
                Wait::Nothing => write!(text, ", gave way {} times", task.switches),
                _ => write!(text, ", since {}", time(task.since)),
            };
        }
        let more = live().count().saturating_sub(MOST);
        if more > 0 {
            let _ = write!(text, "\n    and {more} more tasks");
        }
        text
    }

    /// A circle of waiting tasks, in which each waits for the next and the last for the first.
    pub(crate) fn circle(&self, circle: &[(Slot, Wait)]) -> String {
        let mut text = String::from("deadlock: tasks wait for one another in a circle");
        for (slot, wait) in circle {
            let _ = write!(text, "\n    {} {}", self.task_name(*slot), self.wait_text(*wait));
        }
        text
    }
}
