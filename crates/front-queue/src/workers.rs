//! The threads that serve one client's lanes.
//!
//! Each looks at the lanes that were used lately, again and again; when it has found nothing for a while it
//! sleeps until a client rings. A command that takes long keeps one thread; clients that see another asleep
//! wake it. So one lane of a busy client never waits for another lane's device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use amphi_queue::format::{Completion, code};
use amphi_queue::{Caller, Executor, Lane, Server};
use amphi_rt::sync::Mutex;
use amphi_rt::{task, time};
use amphi_vfs::Cred;

use crate::futex::FutexBell;

/// How long a thread looks for commands, ns, after the last one it found, before it sleeps.
pub const POLL_NS: u64 = 50_000;
/// After so long without a command, ns, it lets others have the processor between two looks.
const ALONE_NS: u64 = 5_000;
/// Looks at the lanes in use between two looks at all of them.
const LOOKS_PER_ROUND: u32 = 64;
/// How long a thread sleeps at a time, ns, unless it is rung: nothing depends on it.
const SLEEP_NS: u64 = 10_000_000_000;

struct Served {
    lane: Lane,
    caller: Caller,
}

/// One client's lanes, and what its threads share.
pub struct Work<E: Executor> {
    server: Server,
    executor: E,
    lanes: Vec<Mutex<Served>>,
    /// Lanes in which a command was found at some time, a bit each.
    used: AtomicU64,
    stopped: AtomicBool,
}

impl<E: Executor> Work<E> {
    /// All lanes of `server`, 64 at the most, for commands of `cred`.
    pub fn new(server: Server, executor: E, cred: &Cred) -> Self {
        let served = |lane| Mutex::new(Served { lane, caller: Caller::new(cred.clone()) });
        let lanes: Vec<_> = server.lanes().into_iter().map(served).collect();
        assert!(lanes.len() <= 64, "a bit for each lane");
        Self { server, executor, lanes, used: AtomicU64::new(0), stopped: AtomicBool::new(false) }
    }

    /// Starts `threads` threads. They end after [`stop`](Self::stop).
    pub fn start(self: &Arc<Self>, threads: usize) -> Vec<task::JoinHandle<()>> {
        let worker = || {
            let work = Arc::clone(self);
            task::spawn("queue", move || work.serve())
        };
        (0..threads).map(|_| worker()).collect()
    }

    /// Lets the threads end after the command each is at, and tells the client that nobody serves it.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.server.end(&FutexBell);
        self.server.wake(&FutexBell);
    }

    /// Closes what the client had open. Its threads have ended.
    pub fn close(&self) {
        self.executor.close();
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn serve(&self) {
        let mut last_ns = time::now_ns();
        let mut looks = 0_u32;
        while !self.is_stopped() {
            looks = looks.wrapping_add(1);
            let all = looks.is_multiple_of(LOOKS_PER_ROUND);
            if self.round(if all { u64::MAX } else { self.used.load(Ordering::Relaxed) }) {
                last_ns = time::now_ns();
                continue;
            }
            let idle_ns = time::now_ns() - last_ns;
            if idle_ns > POLL_NS {
                let found = || self.is_stopped() || self.round_finds_work();
                self.server.sleep(&FutexBell, SLEEP_NS, found);
                last_ns = time::now_ns();
            } else if idle_ns > ALONE_NS {
                task::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Serves what waits in the lanes of the mask that no other thread is at. Whether there was anything.
    fn round(&self, mut mask: u64) -> bool {
        let mut worked = false;
        while mask != 0 {
            let number = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            let Some(lane) = self.lanes.get(number) else { break };
            if let Some(mut served) = lane.try_lock() {
                worked |= self.serve_lane(&mut served, number);
            }
        }
        worked
    }

    fn serve_lane(&self, served: &mut Served, number: usize) -> bool {
        let mut worked = false;
        while let Some(command) = self.server.take(&mut served.lane) {
            if !worked && self.used.load(Ordering::Relaxed) & 1 << number == 0 {
                self.used.fetch_or(1 << number, Ordering::Relaxed);
            }
            worked = true;
            let payload = self.server.payload(&served.lane);
            let answer = if self.server.is_fresh(&served.lane, &command) {
                self.executor.execute(&mut served.caller, &command, payload)
            } else {
                Completion { status: code::MALFORMED.into(), ..Completion::default() }
            };
            self.server.complete(&mut served.lane, answer, &FutexBell);
            if self.is_stopped() {
                break;
            }
        }
        worked
    }

    /// Whether a lane that nobody is at has a command.
    fn round_finds_work(&self) -> bool {
        let waits =
            |lane: &Mutex<Served>| lane.try_lock().is_some_and(|served| self.server.has_work(&served.lane));
        self.lanes.iter().any(waits)
    }
}
