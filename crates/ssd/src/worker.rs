//! Background firmware tasks: one that cleans the log, one that collects garbage. Each sleeps until its bell
//! rings.
//!
//! The task is started at the first ring, so that a device which never needs it costs nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_rt::sync::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    rung: bool,
    closed: bool,
    /// What the last round ended with.
    outcome: Option<amphi_device::Error>,
    task: Option<amphi_rt::task::JoinHandle<()>>,
}

/// What wakes a background task, and what waits for it.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    state: Mutex<State>,
    /// Rounds finished, for those who wait for one. Changed under the lock, read before every append.
    rounds: AtomicU64,
    rings: Condvar,
    ends: Condvar,
}

impl Bell {
    /// Wakes the task, starting it if it does not run yet.
    pub(crate) fn ring(&self, start: impl FnOnce() -> amphi_rt::task::JoinHandle<()>) {
        let mut state = self.state.lock();
        if state.closed || state.rung {
            return;
        }
        state.rung = true;
        if state.task.is_none() {
            state.task = Some(start());
        }
        self.rings.notify_all();
    }

    /// The task's life: one round of `work` per ring, until closed.
    pub(crate) fn serve(&self, mut work: impl FnMut() -> amphi_device::Result<()>) {
        let mut state = self.state.lock();
        loop {
            while !state.rung && !state.closed {
                self.rings.wait(&mut state);
            }
            if state.closed {
                return;
            }
            drop(state);
            let outcome = work().err();
            state = self.state.lock();
            state.rung = false;
            self.rounds.fetch_add(1, Ordering::Release);
            state.outcome = outcome;
            self.ends.notify_all();
        }
    }

    /// Rounds finished so far.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Acquire)
    }

    /// Waits until a round has ended after the first `seen` ones.
    ///
    /// # Errors
    /// What that round met.
    pub(crate) fn wait_beyond(&self, seen: u64) -> amphi_device::Result<()> {
        let mut state = self.state.lock();
        while self.rounds.load(Ordering::Relaxed) <= seen && !state.closed {
            self.ends.wait(&mut state);
        }
        state.outcome.clone().map_or(Ok(()), Err)
    }

    /// Ends the task after its current round and waits for it.
    pub(crate) fn close(&self) {
        let task = {
            let mut state = self.state.lock();
            state.closed = true;
            self.rings.notify_all();
            self.ends.notify_all();
            state.task.take()
        };
        if let Some(task) = task {
            task.join();
        }
    }
}
