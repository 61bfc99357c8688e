//! The threads that serve one client's lanes.
//!
//! One of them looks at the lanes that were used lately, again and again; the others stand by. When it has
//! found nothing for a while it sleeps too, until a client rings. While it carries out a command nobody
//! looks; it is back soon, or else a client that has waited for long rings, and one that stands by looks
//! meanwhile. So one lane of a busy client does not wait for another lane's device for long, and no processor
//! is taken by two who look for the same. Where commands take so long that they cannot but wait for the
//! device, more than one may look.
//!
//! A thread that takes turns with another on its processor, most likely with the client that has rung for it,
//! moves to another one.
//!
//! How long is looked after a command is learned ([`Learned`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use amphi_queue::format::{Completion, ENTRIES, code};
use amphi_queue::{ALONE_NS, Caller, Crowd, Executor, Lane, Learned, POLL_NS, Server};
use amphi_rt::sync::Mutex;
use amphi_rt::{cpu, task, time};
use amphi_vfs::Cred;

use crate::futex::FutexBell;
use crate::placement::leave_processor;

/// Looks at the lanes in use between two looks at the clock, and between two looks at all lanes.
const LOOKS_PER_CLOCK: u32 = 8;
const LOOKS_PER_ROUND: u32 = 64;
/// How long a thread sleeps at a time, ns, unless it is rung: nothing depends on it.
const SLEEP_NS: u64 = 10_000_000_000;
/// After so many commands in a row that came when others had run, a thread moves to another processor.
const TURNS: u32 = 4;
/// It moves once in so long, ns, at the most: each time takes some 10 us.
const MOVE_NS: u64 = 1_000_000;
/// A command that takes longer, ns, has waited for a device.
const LONG_NS: u64 = 20_000;
/// Of the last so many commands more than half are long where several threads may look.
const COMMANDS_KNOWN: u32 = 8;

/// What a thread has found out about its processor.
#[derive(Default)]
struct Whereabouts {
    crowd: Crowd,
    /// It has let others run, and not looked since.
    made_way: bool,
    /// So many commands in a row were there as soon as others had run.
    turns: u32,
    /// When it has moved to another processor, ns.
    moved_ns: u64,
}

impl Whereabouts {
    /// Lets others run. False: not now, since they would keep the processor.
    fn make_way(&mut self) -> bool {
        self.made_way = self.crowd.make_way();
        self.made_way
    }

    /// There was a command now, at `now_ns`. Who finds one after the other when others have run waits on the
    /// processor of the client.
    fn found(&mut self, now_ns: u64) {
        self.turns = if std::mem::take(&mut self.made_way) { self.turns + 1 } else { 0 };
        if self.turns >= TURNS && now_ns.saturating_sub(self.moved_ns) > MOVE_NS {
            leave_processor();
            (self.turns, self.moved_ns) = (0, now_ns);
        }
    }
}

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
    /// Threads that look for commands, and are not carrying one out.
    looking: AtomicU32,
    threads: AtomicU32,
    /// Which of the last commands were long, a bit each, the last one lowest.
    long: AtomicU32,
    /// How long is looked after a command, ns, as learned.
    learned: Learned,
    stopped: AtomicBool,
}

impl<E: Executor> Work<E> {
    /// All lanes of `server`, 64 at the most, for commands of `cred`.
    pub fn new(server: Server, executor: E, cred: &Cred) -> Self {
        let served = |lane| Mutex::new(Served { lane, caller: Caller::new(cred.clone()) });
        let lanes: Vec<_> = server.lanes().into_iter().map(served).collect();
        assert!(lanes.len() <= 64, "a bit for each lane");
        Self {
            server,
            executor,
            lanes,
            used: AtomicU64::new(0),
            looking: AtomicU32::new(0),
            threads: AtomicU32::new(0),
            long: AtomicU32::new(0),
            learned: Learned::new(POLL_NS),
            stopped: AtomicBool::new(false),
        }
    }

    /// Starts `threads` threads. They end after [`stop`](Self::stop).
    pub fn start(self: &Arc<Self>, threads: usize) -> Vec<task::JoinHandle<()>> {
        self.threads.store(threads as u32, Ordering::Relaxed);
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
        let mut whereabouts = Whereabouts::default();
        while !self.is_stopped() {
            if self.looking.fetch_add(1, Ordering::SeqCst) < self.lookers_max() {
                self.look(&mut whereabouts);
            }
            let is_last = self.looking.fetch_sub(1, Ordering::SeqCst) == 1;
            let after_ns = self.server.stand_by(&FutexBell, SLEEP_NS, is_last, || self.must_look(is_last));
            if is_last {
                self.learned.note(after_ns);
            }
        }
    }

    /// How many threads may look at a time: few, where they would take processors from each other and from
    /// the client.
    fn lookers_max(&self) -> u32 {
        if self.long.load(Ordering::Relaxed).count_ones() > COMMANDS_KNOWN / 2 {
            return self.threads.load(Ordering::Relaxed);
        }
        (cpu::count() as u32 / 2).max(1)
    }

    /// Looks for commands and carries them out, until there are none for a while or others look.
    fn look(&self, whereabouts: &mut Whereabouts) {
        self.server.looks();
        let mut looks = 0_u32;
        let mut last_ns = time::now_ns();
        let (mut now_ns, mut way_ns) = (last_ns, last_ns);
        while !self.is_stopped() {
            looks = looks.wrapping_add(1);
            let all = looks.is_multiple_of(LOOKS_PER_ROUND);
            if self.round(if all { u64::MAX } else { self.used.load(Ordering::Relaxed) }) {
                last_ns = time::now_ns();
                whereabouts.found(last_ns);
                self.carried_out(last_ns - now_ns);
                (now_ns, way_ns) = (last_ns, last_ns);
                if self.looking.load(Ordering::Relaxed) > self.lookers_max() {
                    // Others have begun to look meanwhile.
                    return;
                }
                continue;
            }
            whereabouts.made_way = false;
            if !whereabouts.crowd.takes_turns() && !looks.is_multiple_of(LOOKS_PER_CLOCK) {
                std::hint::spin_loop();
                continue;
            }
            now_ns = time::now_ns();
            if now_ns - last_ns > self.learned.poll_ns() {
                return;
            }
            if whereabouts.crowd.takes_turns() || now_ns - way_ns > ALONE_NS {
                if !whereabouts.make_way() {
                    // Who sleeps instead is preferred when it wakes up.
                    return;
                }
                now_ns = time::now_ns();
                way_ns = now_ns;
            }
        }
    }

    /// Notes how long a command took, ns.
    fn carried_out(&self, took_ns: u64) {
        let known = self.long.load(Ordering::Relaxed) << 1 | u32::from(took_ns > LONG_NS);
        self.long.store(known & ((1 << COMMANDS_KNOWN) - 1), Ordering::Relaxed);
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
        // No more than a lane holds, so that no lane keeps the others waiting.
        for _ in 0..ENTRIES {
            let Some(command) = self.server.take(&mut served.lane) else { break };
            if !worked && self.used.load(Ordering::Relaxed) & 1 << number == 0 {
                self.used.fetch_or(1 << number, Ordering::Relaxed);
            }
            if !worked {
                // Nobody looks for this thread's others meanwhile.
                self.looking.fetch_sub(1, Ordering::SeqCst);
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
        if worked {
            self.looking.fetch_add(1, Ordering::SeqCst);
            // Another one may have gone to sleep meanwhile as the last who looked.
            self.server.looks();
        }
        worked
    }

    /// Whether a thread that is about to sleep must not. One that others looked beside must not either once
    /// they all carry commands out: a client that waits may have rung already.
    fn must_look(&self, is_last: bool) -> bool {
        let nobody_looks = || self.looking.load(Ordering::SeqCst) == 0;
        self.is_stopped() || (is_last || nobody_looks()) && self.round_finds_work()
    }

    /// Whether a lane that nobody is at has a command.
    fn round_finds_work(&self) -> bool {
        let waits =
            |lane: &Mutex<Served>| lane.try_lock().is_some_and(|served| self.server.has_work(&served.lane));
        self.lanes.iter().any(waits)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::AtomicUsize;

    use amphi_queue::format::Submission;
    use amphi_queue::{Client, Geometry, Memory, Patience, Payload};

    use super::*;

    const PATIENCE: Patience = Patience { spin_ns: 30_000, sleep_ns: 200_000_000 };

    /// A command whose offset is 0 waits until one has been carried out whose offset is not.
    #[derive(Default)]
    struct Waiting(AtomicUsize);

    impl Executor for Waiting {
        fn execute(&self, _: &mut Caller, command: &Submission, _: Payload<'_>) -> Completion {
            if command.offset.get() != 0 {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
            while self.0.load(Ordering::SeqCst) == 0 {
                task::yield_now();
            }
            Completion { value: command.offset, ..Completion::default() }
        }

        fn close(&self) {}
    }

    fn ask(client: &mut Client<'_>, offset: u64) -> u64 {
        client.submit(Submission { offset: offset.into(), ..Submission::default() }, &FutexBell);
        let asked = Cell::new(0);
        let alive = || asked.replace(asked.get() + 1) < 100;
        client.wait(PATIENCE, &FutexBell, alive).expect("it is served").value.get()
    }

    /// Lets `clients` use lanes of their own, served by `threads` threads; what these share is looked at by
    /// `then` afterwards.
    fn served(
        threads: usize,
        clients: &[&(dyn Fn(&mut Client<'_>) + Sync)],
        then: impl FnOnce(&Work<Waiting>),
    ) {
        let geometry = Geometry::new(clients.len() as u32, 4096).expect("in range");
        let memory = Arc::new(Memory::private(geometry).expect("memory"));
        let server = Server::new(Arc::clone(&memory));
        let work = Arc::new(Work::new(server, Waiting::default(), &Cred::ROOT));
        let serving = work.start(threads);
        task::scope(|scope| {
            for (lane, client) in clients.iter().enumerate() {
                let memory = &memory;
                scope.spawn("client", move || client(&mut Client::new(memory, lane as u32)));
            }
        });
        then(&work);
        work.stop();
        serving.into_iter().for_each(task::JoinHandle::join);
    }

    #[test]
    fn a_command_that_waits_keeps_no_other_lane_waiting() {
        let waits = |client: &mut Client<'_>| assert_eq!(ask(client, 0), 0);
        let frees = |client: &mut Client<'_>| {
            // Not before somebody is held, who may be the only one that looked.
            task::yield_now();
            assert_eq!(ask(client, 7), 7);
        };
        for _ in 0..40 {
            served(2, &[&waits, &frees], |_| ());
        }
    }

    #[test]
    fn who_is_about_to_sleep_sees_that_the_one_who_looked_does_not_any_more() {
        let geometry = Geometry::new(2, 4096).expect("in range");
        let memory = Arc::new(Memory::private(geometry).expect("memory"));
        let work = Work::new(Server::new(Arc::clone(&memory)), Waiting::default(), &Cred::ROOT);
        // One looks, and another one is about to stand by.
        work.looking.store(1, Ordering::SeqCst);
        Client::new(&memory, 1).submit(Submission::default(), &FutexBell);
        assert!(!work.must_look(false), "it is found by who looks");
        work.looking.store(0, Ordering::SeqCst);
        assert!(work.must_look(false), "nobody else finds it");
        let held = work.lanes[1].lock();
        assert!(!work.must_look(false), "somebody is at it");
        drop(held);
    }

    #[test]
    fn all_are_answered_and_then_nobody_looks() {
        let asks = |client: &mut Client<'_>| (1..2000).for_each(|n| assert_eq!(ask(client, n), n));
        served(4, &[&asks, &asks, &asks], |work| {
            while work.looking.load(Ordering::SeqCst) != 0 {
                task::yield_now();
            }
        });
    }

    #[test]
    fn no_more_look_than_there_are_processors_for() {
        let asks = |client: &mut Client<'_>| (1..500).for_each(|n| assert_eq!(ask(client, n), n));
        served(8, &[&asks], |work| {
            (0..COMMANDS_KNOWN).for_each(|_| work.carried_out(LONG_NS + 1));
            assert_eq!(work.lookers_max(), 8, "commands that wait for a device take no processor");
            (0..COMMANDS_KNOWN).for_each(|_| work.carried_out(LONG_NS - 1));
            assert_eq!(work.lookers_max(), (cpu::count() as u32 / 2).max(1));
        });
    }
}
