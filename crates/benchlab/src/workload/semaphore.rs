//! A counting semaphore with a high-water mark, as filebench's `sempost` and `semblock` use: posting waits while there is more than those who wait for it want, by the
//! mark, and everybody stops waiting when the run is over.

use std::time::Duration;

use amphi_rt::sync::{Condvar, Mutex, MutexGuard};
use amphi_rt::time;

/// A semaphore.
#[derive(Default)]
pub(super) struct Semaphore {
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
    /// Adds `by`, waiting while the value is `high_water` or more above what is wanted. False if `end_ns` came first.
    pub(super) fn post(&self, by: u64, high_water: u64, end_ns: u64) -> bool {
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
    pub(super) fn take(&self, by: u64, end_ns: u64) -> bool {
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
}
