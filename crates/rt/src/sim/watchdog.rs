//! Finds tasks that block the OS thread of their Sim: in a lock, a channel or a read that the Sim does not
//! know, nobody else can run, and virtual time stands still.
//!
//! One OS thread for all Sims looks ten times a second at what the kernel says of each Sim's thread.
//! Computing is not blocking: only a thread that the kernel has put to sleep, with the same task on it all
//! the time, counts.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, Once, PoisonError, Weak};
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A thread blocked for so many times the limit will hardly come back: the process is aborted, so that a test
/// run ends.
const ABORT_AFTER_LIMITS: u32 = 12;

/// A Sim under watch.
pub(crate) struct Watched {
    seed: u64,
    thread: i32,
    limit: Duration,
    /// Changes with each switch.
    beat: AtomicU64,
    /// How long the task that runs has been blocking, in ms; 0 if not longer than the limit.
    blocked_ms: AtomicU64,
    /// The watchdog's: the beat it saw last, and since when the thread has slept at it.
    seen: Mutex<(u64, Option<Instant>)>,
}

impl Watched {
    /// Puts the Sim of this OS thread under watch until the value is dropped.
    pub(crate) fn new(seed: u64, limit: Duration) -> Arc<Self> {
        let watched = Arc::new(Self {
            seed,
            thread: rustix::thread::gettid().as_raw_nonzero().get(),
            limit,
            beat: AtomicU64::new(0),
            blocked_ms: AtomicU64::new(0),
            seen: Mutex::new((0, None)),
        });
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let started = std::thread::Builder::new().name("rt watchdog".to_owned()).spawn(watch);
            // Without it nothing is watched, and all else works.
            drop(started);
        });
        REGISTER.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&watched));
        REGISTER.1.notify_one();
        watched
    }

    /// Notes a switch.
    #[inline]
    pub(crate) fn beat(&self, switches: u64) {
        self.beat.store(switches, Ordering::Relaxed);
    }

    /// For how many ms the task that ran last blocked, if for longer than the limit.
    #[inline]
    pub(crate) fn blocked_ms(&self) -> Option<u64> {
        match self.blocked_ms.load(Ordering::Relaxed) {
            0 => None,
            ms => Some(ms),
        }
    }

    fn look(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let beat = self.beat.load(Ordering::Relaxed);
        if beat != seen.0 || !is_asleep(self.thread) {
            *seen = (beat, None);
            return;
        }
        let slept = seen.1.get_or_insert_with(Instant::now).elapsed();
        if slept < self.limit {
            return;
        }
        if self.blocked_ms.swap(slept.as_millis() as u64, Ordering::Relaxed) == 0 {
            complain(format_args!(
                "a task of the Sim with seed {} has blocked its OS thread for {slept:?}, in a lock or call that virtual \
                 time does not know; use amphi_rt::sync instead",
                self.seed
            ));
        }
        if slept > self.limit * ABORT_AFTER_LIMITS {
            complain(format_args!("it still does after {slept:?}: aborting"));
            std::process::abort();
        }
    }
}

/// Nobody may listen; then nobody wants to know.
fn complain(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "amphi-rt: {what}");
}

static REGISTER: (Mutex<Vec<Weak<Watched>>>, Condvar) = (Mutex::new(Vec::new()), Condvar::new());

fn watch() {
    loop {
        let mut register = REGISTER.0.lock().unwrap_or_else(PoisonError::into_inner);
        register.retain(|watched| watched.strong_count() > 0);
        while register.is_empty() {
            register = REGISTER.1.wait(register).unwrap_or_else(PoisonError::into_inner);
        }
        let watched: Vec<Arc<Watched>> = register.iter().filter_map(Weak::upgrade).collect();
        drop(register);
        watched.iter().for_each(|watched| watched.look());
        drop(watched);
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Whether the kernel has put this thread of ours to sleep: `S` or `D` after the name in brackets in its
/// `stat`.
fn is_asleep(thread: i32) -> bool {
    std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"))
        .ok()
        .and_then(|stat| stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()))
        .is_some_and(|state| matches!(state, 'S' | 'D'))
}
