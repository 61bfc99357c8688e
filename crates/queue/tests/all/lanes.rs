//! Lanes between tasks: every command is answered once, in order, and nobody sleeps through a wake-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use amphi_queue::format::{Completion, Submission};
use amphi_queue::{Bell, Client, Ended, Geometry, Memory, Patience, Server, TaskBell};
use amphi_rt::{Sim, task};

const NEVER_NS: u64 = 3_600_000_000_000;
/// Sleeps at once, until woken.
const ASLEEP: Patience = Patience { spin_ns: 0, sleep_ns: NEVER_NS };

fn memory(lanes: u32) -> Arc<Memory> {
    Arc::new(Memory::private(Geometry::new(lanes, 4096).unwrap()).unwrap())
}

/// Answers each command with its offset plus one, until `stop`.
fn serve(server: &Server, bell: &TaskBell, stop: &AtomicBool) {
    let mut lanes = server.lanes();
    while !stop.load(Ordering::SeqCst) {
        let mut worked = false;
        for lane in &mut lanes {
            while let Some(command) = server.take(lane) {
                assert!(server.is_fresh(lane, &command));
                let value = command.offset.get() + 1;
                server.complete(lane, Completion { value: value.into(), ..Completion::default() }, bell);
                worked = true;
            }
        }
        if !worked {
            server.sleep(bell, NEVER_NS, || {
                stop.load(Ordering::SeqCst) || lanes.iter().any(|lane| server.has_work(lane))
            });
        }
    }
    server.end(bell);
}

fn ask(client: &mut Client<'_>, bell: &TaskBell, patience: Patience, offset: u64) -> u64 {
    client.submit(Submission { offset: offset.into(), ..Submission::default() }, bell);
    client.wait(patience, bell, || true).expect("the server is there").value.get()
}

fn clients_and_a_server(clients: u32, calls: u64, patience: Patience) {
    let memory = memory(clients);
    let (bell, stop) = (TaskBell::default(), AtomicBool::new(false));
    task::scope(|scope| {
        let server = Server::new(Arc::clone(&memory));
        let (bell, stop) = (&bell, &stop);
        let serving = {
            let server = server.clone();
            scope.spawn("server", move || serve(&server, bell, stop))
        };
        let asking: Vec<_> = (0..clients)
            .map(|lane| {
                let memory = &memory;
                scope.spawn("client", move || {
                    let mut client = Client::new(memory, lane);
                    for call in 0..calls {
                        assert_eq!(ask(&mut client, bell, patience, call * 7), call * 7 + 1);
                    }
                })
            })
            .collect();
        for client in asking {
            client.join();
        }
        stop.store(true, Ordering::SeqCst);
        server.wake(bell);
        serving.join();
    });
}

#[test]
fn no_wake_up_is_lost_in_any_of_a_thousand_interleavings() {
    Sim::explore(0..1000).run(|| {
        clients_and_a_server(2, 3, ASLEEP);
        // Whoever slept through a wake-up would have slept to the end.
        assert!(amphi_rt::time::now_ns() < NEVER_NS);
    });
}

#[test]
fn threads_get_their_own_answers() {
    clients_and_a_server(3, 2000, ASLEEP);
    clients_and_a_server(2, 20_000, Patience { spin_ns: 20_000, sleep_ns: NEVER_NS });
}

#[test]
fn a_full_lane_is_answered_in_order() {
    let memory = memory(1);
    let (bell, server) = (TaskBell::default(), Server::new(Arc::clone(&memory)));
    let (mut client, mut lane) = (Client::new(&memory, 0), server.lanes().remove(0));
    for round in 0..5_u64 {
        for call in 0..8 {
            assert!(client.has_room());
            let offset = round * 8 + call;
            client.submit(Submission { offset: offset.into(), ..Submission::default() }, &bell);
        }
        assert!(!client.has_room() && client.poll().is_none());
        while let Some(command) = server.take(&mut lane) {
            server.complete(&mut lane, Completion { value: command.offset, ..Completion::default() }, &bell);
        }
        for call in 0..8 {
            assert_eq!(client.poll().expect("answered").value.get(), round * 8 + call);
        }
        assert!(client.poll().is_none());
    }
    // Who uses the lane next goes on where this one stopped.
    let mut next = Client::new(&memory, 0);
    next.submit(Submission::default(), &bell);
    assert!(server.take(&mut lane).is_some_and(|command| server.is_fresh(&lane, &command)));
}

/// Nobody sleeps, and rings are counted.
#[derive(Default)]
struct Counted(AtomicU32);

impl Bell for Counted {
    fn sleep(&self, _: &AtomicU32, _: u32, _: u64) {}

    fn wake(&self, _: &AtomicU32) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn now_us(&self) -> u32 {
        0
    }
}

/// A client comes 7 us after the server has gone to sleep, which runs again 60 us later.
struct Late<'a> {
    memory: &'a Memory,
    now_us: AtomicU32,
}

impl Bell for Late<'_> {
    fn sleep(&self, _: &AtomicU32, _: u32, _: u64) {
        self.now_us.fetch_add(7, Ordering::SeqCst);
        Client::new(self.memory, 0).submit(Submission::default(), self);
        self.now_us.fetch_add(60, Ordering::SeqCst);
    }

    fn wake(&self, _: &AtomicU32) {}

    fn now_us(&self) -> u32 {
        self.now_us.load(Ordering::SeqCst)
    }
}

/// Else a thread that takes long to wake up would take it for the client's absence, and look less and less.
#[test]
fn a_server_learns_when_its_client_came_and_not_when_it_woke_up_itself() {
    let memory = memory(1);
    let server = Server::new(Arc::clone(&memory));
    for begin_us in [0, 1_000, u32::MAX - 3, u32::MAX - 20] {
        let bell = Late { memory: &memory, now_us: AtomicU32::new(begin_us) };
        assert_eq!(server.stand_by(&bell, u64::MAX, true, || false), 7_000, "{begin_us}");
    }
    assert_eq!(server.stand_by(&Counted::default(), u64::MAX, true, || true), 0, "it had come already");
}

/// A server's thread that was about to sleep may not have heard the first time.
#[test]
fn who_waits_in_vain_rings_again() {
    let memory = memory(1);
    let (bell, asked) = (Counted::default(), AtomicU32::new(0));
    let mut client = Client::new(&memory, 0);
    client.submit(Submission::default(), &bell);
    assert_eq!(bell.0.load(Ordering::SeqCst), 0, "the server looks");
    let alive = || asked.fetch_add(1, Ordering::SeqCst) < 5;
    client.wait(Patience { spin_ns: 0, sleep_ns: 0 }, &bell, alive).expect_err("nobody serves");
    assert_eq!(bell.0.load(Ordering::SeqCst), 5);
}

/// Whoever was rung for when the command was put in is on the way, and gets some time.
#[test]
fn who_has_rung_does_not_ring_at_once_again() {
    let memory = memory(1);
    let (bell, server) = (Counted::default(), Server::new(Arc::clone(&memory)));
    let rings = || bell.0.load(Ordering::SeqCst);
    let mut client = Client::new(&memory, 0);
    let patience = Patience { spin_ns: 1, sleep_ns: u64::MAX };
    let asleep = || server.stand_by(&bell, 0, true, || true);
    asleep();
    client.submit(Submission::default(), &bell);
    client.wait(patience, &bell, || false).expect_err("nobody serves");
    assert_eq!(rings(), 1, "rung for once");
    let begin_ns = amphi_rt::time::now_ns();
    let alive = || rings() == 1 && amphi_rt::time::now_ns() - begin_ns < 10_000_000_000;
    client.wait(patience, &bell, alive).expect_err("nobody serves");
    assert_eq!(rings(), 2, "in vain for long");
    server.looks();
    client.submit(Submission::default(), &bell);
    assert_eq!(rings(), 2, "the server looks");
    client.wait(patience, &bell, || false).expect_err("nobody serves");
    assert_eq!(rings(), 3, "whoever looks may be held");
}

#[test]
fn a_server_that_ends_or_dies_leaves_nobody_waiting() {
    Sim::new(1).run(|| {
        for says_so in [true, false] {
            let memory = memory(1);
            let (bell, server) = (TaskBell::default(), Server::new(Arc::clone(&memory)));
            task::scope(|scope| {
                let (memory, bell) = (&memory, &bell);
                let waiting = scope.spawn("client", move || {
                    let mut client = Client::new(memory, 0);
                    client.submit(Submission::default(), bell);
                    client.wait(Patience { spin_ns: 0, sleep_ns: 1_000_000 }, bell, || says_so)
                });
                amphi_rt::time::sleep_ns(500_000);
                if says_so {
                    server.end(bell);
                }
                assert_eq!(waiting.join().map(|_| ()), Err(Ended));
            });
        }
    });
}

#[test]
fn a_count_that_cannot_be_right_breaks_that_lane_alone() {
    let memory = memory(2);
    let (bell, server) = (TaskBell::default(), Server::new(Arc::clone(&memory)));
    let mut lanes = server.lanes();
    // Nine submissions do not fit into eight entries: a client of its own making wrote the count.
    let mut scribbler = Client::new(&memory, 0);
    for _ in 0..8 {
        scribbler.submit(Submission::default(), &bell);
    }
    Client::new(&memory, 0).submit(Submission::default(), &bell);
    assert!(server.take(&mut lanes[0]).is_none() && lanes[0].is_broken());
    assert!(!server.has_work(&lanes[0]));
    let mut client = Client::new(&memory, 1);
    client.submit(Submission::default(), &bell);
    assert!(server.take(&mut lanes[1]).is_some());
}
