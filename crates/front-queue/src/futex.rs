//! Sleeping on a word that two processes share.

use std::sync::atomic::AtomicU32;

use amphi_queue::Bell;
use rustix::thread::futex::{self, Flags, Timespec};
use rustix::time::{ClockId, clock_gettime};

/// A futex. What it is asked to wake may be in another process.
#[derive(Clone, Copy, Debug, Default)]
pub struct FutexBell;

const NS_PER_S: u64 = 1_000_000_000;

impl Bell for FutexBell {
    fn sleep(&self, word: &AtomicU32, seen: u32, limit_ns: u64) {
        let limit = Timespec { tv_sec: (limit_ns / NS_PER_S) as i64, tv_nsec: (limit_ns % NS_PER_S) as i64 };
        // A word that has changed, a signal and the end of the time all mean: look again.
        let _ = futex::wait(word, Flags::empty(), seen, Some(&limit));
    }

    fn wake(&self, word: &AtomicU32) {
        // Nobody asleep is no error.
        let _ = futex::wake(word, Flags::empty(), i32::MAX as u32);
    }

    fn now_us(&self) -> u32 {
        let now = clock_gettime(ClockId::Monotonic);
        (now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000) as u32
    }

    fn ring(&self, word: &AtomicU32) {
        let _ = futex::wake(word, Flags::empty(), 1);
    }
}
