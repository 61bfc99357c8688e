//! Counting semaphores with a high-water mark, as filebench's `semblock` and `sempost` use them.
//!
//! Each thread that waits on a semaphore has an instance of its own, and a post goes to every instance in
//! turn: in filebench the semaphore belongs to the flowop, each thread has its own copy of its flowops, and
//! `sempost` walks all copies that its target's name finds. A post waits while an instance holds more, by the
//! mark, than its thread asks for. Nobody waits longer than the run.

use std::time::Duration;

use amphi_rt::sync::{Condvar, Mutex, MutexGuard};
use amphi_rt::time;

/// A semaphore by the threads that wait on it.
pub(super) struct Instances {
    high_water: u64,
    /// By group, then by thread; none for a group that does not wait.
    of: Vec<Vec<Semaphore>>,
}

impl Instances {
    /// One instance for each thread of a group that waits; `threads` of each group, 0 for one that does not.
    pub(super) fn new(high_water: u64, threads: impl Iterator<Item = usize>) -> Self {
        let of = threads.map(|count| (0..count).map(|_| Semaphore::default()).collect());
        Self { high_water, of: of.collect() }
    }

    /// Adds `by` to every instance, waiting for room in each. False if `end_ns` came first.
    pub(super) fn post(&self, by: u64, end_ns: u64) -> bool {
        self.of.iter().flatten().all(|instance| instance.post(by, self.high_water, end_ns))
    }

    /// Takes `by` from a thread's own instance, waiting until there is as much. False if `end_ns` came first.
    pub(super) fn take(&self, group: usize, thread: usize, by: u64, end_ns: u64) -> bool {
        self.of[group][thread].take(by, end_ns)
    }
}

/// One thread's instance.
#[derive(Default)]
struct Semaphore {
    state: Mutex<State>,
    /// Somebody may find enough to take.
    enough: Condvar,
    /// Somebody may find room to post.
    room: Condvar,
}

#[derive(Default)]
struct State {
    value: u64,
    /// What those who wait want, each.
    wanted: Vec<u64>,
}

impl Semaphore {
    /// Adds `by`, waiting while the value is `high_water` or more above what is wanted. False if `end_ns`
    /// came first.
    fn post(&self, by: u64, high_water: u64, end_ns: u64) -> bool {
        let mut state = self.state.lock();
        while state.value >= high_water.saturating_add(state.wanted.iter().sum()) {
            if !wait(&self.room, &mut state, end_ns) {
                return false;
            }
        }
        state.value += by;
        if state.wanted.iter().any(|wanted| *wanted <= state.value) {
            self.enough.notify_all();
        }
        true
    }

    /// Takes `by`, waiting until there is as much. False if `end_ns` came first.
    fn take(&self, by: u64, end_ns: u64) -> bool {
        let mut state = self.state.lock();
        if state.value < by {
            state.wanted.push(by);
            self.room.notify_all();
            let mut in_time = true;
            while in_time && state.value < by {
                in_time = wait(&self.enough, &mut state, end_ns);
            }
            let at = state.wanted.iter().position(|wanted| *wanted == by);
            state.wanted.swap_remove(at.expect("it was pushed and nobody else removes one of its size"));
            if !in_time {
                return false;
            }
        }
        state.value -= by;
        self.room.notify_all();
        true
    }
}

/// Waits for a condition; false if it is too late.
fn wait(condition: &Condvar, state: &mut MutexGuard<'_, State>, end_ns: u64) -> bool {
    let now = time::now_ns();
    if now >= end_ns {
        return false;
    }
    condition.wait_for(state, Duration::from_nanos(end_ns - now));
    true
}

#[cfg(test)]
mod tests {
    use amphi_rt::{Sim, task};

    use super::*;

    #[test]
    fn posting_runs_ahead_of_demand_by_the_mark_only() {
        let (early, late) = Sim::new(1).run(|| {
            let semaphore = Semaphore::default();
            let mut early = 0;
            while semaphore.post(1, 10, 5) {
                early += 1;
            }
            let late = task::scope(|scope| {
                let taker = scope.spawn("taker", || semaphore.take(30, 1000));
                let posted = (0..100).filter(|_| semaphore.post(1, 10, 500)).count();
                assert!(taker.join());
                posted
            });
            (early, late)
        });
        // Ten ahead; then thirty more for the one who waits.
        assert_eq!((early, late), (10, 30));
    }

    /// As many waits come through as if each thread were alone with who posts.
    #[test]
    fn a_post_goes_to_every_thread_that_waits() {
        let taken = Sim::new(1).run(|| {
            let semaphore = Instances::new(1000, [0, 10].into_iter());
            task::scope(|scope| {
                let takers: Vec<_> = (0..10)
                    .map(|thread| {
                        let semaphore = &semaphore;
                        let take = move || (0..3).filter(|_| semaphore.take(1, thread, 100, 1000)).count();
                        scope.spawn("taker", take)
                    })
                    .collect();
                assert!((0..300).all(|_| semaphore.post(1, 1000)));
                takers.into_iter().map(|taker| taker.join()).collect::<Vec<_>>()
            })
        });
        assert_eq!(taken, [3; 10]);
    }
}
