//! How one side wakes the other: a futex between processes, which front ends bring, or tasks of one program.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use amphi_rt::sync::{Condvar, Mutex};
use amphi_rt::time;

/// Sleeping on a word of the shared memory.
pub trait Bell: Send + Sync {
    /// Sleeps while the word holds `seen`, for `limit_ns` at the most. May return early.
    fn sleep(&self, word: &AtomicU32, seen: u32, limit_ns: u64);

    /// Wakes all who sleep on the word. The caller has changed it.
    fn wake(&self, word: &AtomicU32);

    /// A clock that both sides have, us modulo 2^32.
    fn now_us(&self) -> u32;

    /// As [`wake`](Self::wake), where one is enough if any of the sleepers sees to all that there is to do.
    fn ring(&self, word: &AtomicU32) {
        self.wake(word);
    }
}

/// Wakes tasks of this program, in real or in virtual time.
#[derive(Debug, Default)]
pub struct TaskBell {
    asleep: Mutex<()>,
    woken: Condvar,
}

impl Bell for TaskBell {
    fn sleep(&self, word: &AtomicU32, seen: u32, limit_ns: u64) {
        let mut asleep = self.asleep.lock();
        if word.load(Ordering::SeqCst) == seen {
            let _timed_out = self.woken.wait_for(&mut asleep, Duration::from_nanos(limit_ns));
        }
    }

    fn wake(&self, _word: &AtomicU32) {
        drop(self.asleep.lock());
        self.woken.notify_all();
    }

    fn now_us(&self) -> u32 {
        (time::now_ns() / 1000) as u32
    }
}
