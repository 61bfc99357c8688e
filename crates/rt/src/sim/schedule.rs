//! Who runs next among the tasks that can run at one instant.

use super::task::{Slot, Task};
use crate::generator::Generator;

/// How the scheduler chooses among tasks that can run at the same virtual instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Schedule {
    /// A task runs until it blocks; ties are broken by the seed. What figures are measured under.
    #[default]
    Seeded,
    /// As `Seeded`, and at each lock, notification, join, atomic of [`crate::sync::atomic`] and
    /// [`crate::task::point`] the running task is preempted with a probability of `per_mille` / 1000; one
    /// preemption in eight also delays it by up to `delay_ns`, as an operating system would.
    Random {
        /// Probability of a preemption at a point, in thousandths.
        per_mille: u32,
        /// Longest delay in ns; 0 for none.
        delay_ns: u64,
    },
    /// Probabilistic concurrency testing (Burckhardt et al., ASPLOS 2010): tasks have random priorities, the
    /// highest runs, and at `depth` - 1 random points the running task falls below all others. Finds bugs
    /// that need `depth` ordered events.
    Pct {
        /// Number of ordered events; 2 or 3 find most bugs.
        depth: u32,
        /// Points that a run has, about; 0 if not known: a search then counts them, and a single run draws
        /// its change points with all magnitudes equally likely.
        points: u64,
    },
}

/// A schedule at work.
pub(crate) struct Policy {
    schedule: Schedule,
    in_order: bool,
    point: u64,
    change_at: Vec<u64>,
    /// Falls with each use: the next priority below all others.
    lowest: u64,
}

impl Policy {
    pub(crate) fn new(schedule: Schedule, seed: u64) -> Self {
        let mut random = Generator::new(seed ^ 0x5ced_u64.rotate_left(32));
        let change_at = match schedule {
            Schedule::Pct { depth, points } => (1..depth)
                .map(|_| match points {
                    0 => {
                        let magnitude = 2 + random.below(13);
                        1 + random.below(1 << magnitude)
                    }
                    points => 1 + random.below(points),
                })
                .collect(),
            _ => Vec::new(),
        };
        Self { schedule, in_order: false, point: 0, change_at, lowest: 1 << 32 }
    }

    /// The policy of a Sim that is ending.
    pub(crate) fn in_order() -> Self {
        Self { in_order: true, ..Self::new(Schedule::Seeded, 0) }
    }

    /// Points passed so far.
    pub(crate) fn points(&self) -> u64 {
        self.point
    }

    /// Whether points matter.
    pub(crate) fn searches(&self) -> bool {
        self.schedule != Schedule::Seeded
    }

    /// The priority of a new task.
    pub(crate) fn priority(&self, random: &mut Generator) -> u64 {
        match self.schedule {
            Schedule::Pct { .. } => random.next() | 1 << 63,
            _ => 0,
        }
    }

    /// Index in `ready` of the task that runs next.
    #[inline]
    pub(crate) fn choose(&self, ready: &[Slot], tasks: &[Task], random: &mut Generator) -> usize {
        if ready.len() == 1 || self.in_order {
            return 0;
        }
        match self.schedule {
            Schedule::Pct { .. } => {
                let priority = |index: &usize| tasks[ready[*index] as usize].priority;
                (0..ready.len()).max_by_key(priority).unwrap_or(0)
            }
            _ => random.below(ready.len() as u64) as usize,
        }
    }

    /// Whether the running task is preempted at this point, and for how long it is delayed besides.
    pub(crate) fn preempt(&mut self, priority: &mut u64, random: &mut Generator) -> Option<u64> {
        self.point += 1;
        match self.schedule {
            Schedule::Seeded => None,
            Schedule::Random { per_mille, delay_ns } => (random.below(1000) < u64::from(per_mille))
                .then(|| if delay_ns > 0 && random.below(8) == 0 { 1 + random.below(delay_ns) } else { 0 }),
            Schedule::Pct { .. } => {
                if self.change_at.contains(&self.point) {
                    self.fall(priority);
                }
                Some(0)
            }
        }
    }

    /// Notes that a task gave way of its own accord: under PCT it would otherwise be chosen again at once,
    /// for ever.
    pub(crate) fn yielded(&mut self, priority: &mut u64) {
        if matches!(self.schedule, Schedule::Pct { .. }) {
            self.fall(priority);
        }
    }

    fn fall(&mut self, priority: &mut u64) {
        self.lowest -= 1;
        *priority = self.lowest;
    }
}
