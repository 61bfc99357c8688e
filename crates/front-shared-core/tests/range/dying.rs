//! Processes that are killed while they are inside, and a manager that is.

use amphi_front_shared::{Client, Protection};
use amphi_rt::random::Generator;
use amphi_rt::time;
use amphi_vfs::{Error, FileSystem, Ino};

use crate::rig::{Other, READY, Rig, await_some, make, name, say_and_wait, write};

/// Makes files until the range or the process ends. One that has no name is held: it is gone once the manager
/// has seen this process off.
pub fn be_busy(client: &Client, words: &[&str]) {
    let held = make(client, Ino::ROOT, words[0]).expect("a new name").attr.ino;
    client.unlink(Ino::ROOT, name(words[0])).expect("it is there");
    say_and_wait(&format!("{} {READY}", held.0));
    for number in 0.. {
        let text = format!("{}-{number}", words[0]);
        let made = make(client, Ino::ROOT, &text).and_then(|entry| {
            write(client, entry.attr.ino, 0, &[number as u8; 4096])?;
            client.fsync(entry.attr.ino, false)?;
            client.forget(entry.attr.ino, 1);
            client.unlink(Ino::ROOT, name(&text))
        });
        if made.is_err() {
            return;
        }
    }
}

/// Says that it holds something, then waits inside for a turn that never comes.
pub fn wait_inside(client: &Client, words: &[&str]) {
    let held = make(client, Ino::ROOT, words[0]).expect("a new name").attr.ino;
    client.unlink(Ino::ROOT, name(words[0])).expect("it is there");
    say_and_wait(&format!("{} {READY}", held.0));
    let _ = client.take_turn(1, 2);
}

/// The range ends with a process that is killed inside, and another one has what was durable.
pub fn ends_with_who_is_inside(place: u64) {
    let rig = Rig::start("augefs", place, Protection::Nothing);
    let client = rig.client();
    make(&client, Ino::ROOT, "kept").expect("a new name");
    for round in 0..10 {
        let mut waiting = rig.other(&format!("waits {round}"));
        let said = waiting.await_line(READY);
        let held = Ino(said.split(' ').next().and_then(|number| number.parse().ok()).expect("a number"));
        waiting.tell();
        // It is not told from outside when it is inside: if it was not yet, the next one gets more time.
        time::sleep_ns(10_000_000 << round);
        kill(&mut waiting);
        if !has_left(&client, held) {
            drop(client);
            rig.manager.await_range(2).expect("another range");
            let client = rig.client();
            client.lookup(Ino::ROOT, name("kept")).expect("it was durable");
            return;
        }
    }
    panic!("a process was killed inside of the range, which has been used on");
}

fn kill(process: &mut Other) {
    process.child.kill().expect("it runs");
    process.child.wait().expect("it was killed");
}

/// Waits until the manager has seen off the process that held `held`, or has ended the range because it was
/// inside. Whether it was not.
fn has_left(client: &Client, held: Ino) -> bool {
    await_some("a killed process is seen off, or the range ends", || match client.getattr(held) {
        Ok(_) => None,
        Err(Error::Io(_)) => Some(false),
        Err(_) => Some(true),
    })
}

/// Kills one of two busy processes, again and again, until that has hit it inside often enough.
fn survives_killed_clients(kind: &str, place: u64) {
    let wanted = if std::env::var_os("AMPHI_TEST_LONG").is_some() { 20 } else { 3 };
    let mut random = Generator::new(17);
    let rig = Rig::timed(kind, place);
    let (mut kept, mut ended, mut rounds) = (Vec::<String>::new(), 0, 0);
    while ended < wanted {
        rounds += 1;
        assert!(rounds < 40 * wanted, "{kind}: {ended} of {rounds} killed processes were inside");
        let ranges = rig.manager.ranges();
        let client = rig.client();
        for text in &kept {
            client.lookup(Ino::ROOT, name(text)).unwrap_or_else(|error| panic!("{kind}: {text}: {error}"));
        }
        let text = format!("kept-{rounds}");
        let file = make(&client, Ino::ROOT, &text).expect("a new name").attr.ino;
        client.fsync(file, false).expect("the device works");
        kept.push(text);
        let mut killed = rig.other(&format!("busy a{rounds}"));
        let mut other = rig.other(&format!("busy b{rounds}"));
        let held = [&mut killed, &mut other].map(|process| {
            let said = process.await_line(READY);
            Ino(said.split(' ').next().and_then(|number| number.parse().ok()).expect("a number"))
        });
        killed.tell();
        other.tell();
        time::sleep_ns(random.below(20_000_000));
        kill(&mut killed);
        if has_left(&client, held[0]) {
            // It was between two calls. The other one goes on until it is killed too.
            kill(&mut other);
            if has_left(&client, held[1]) {
                continue;
            }
        } else {
            // The other one comes back with an error.
            other.end();
        }
        ended += 1;
        drop(client);
        rig.manager.await_range(ranges + 1).expect("another range");
    }
    println!("{kind}: {ended} of {rounds} killed processes were inside");
}

#[test]
fn bytefs_survives_clients_that_are_killed_inside() {
    survives_killed_clients("bytefs", 7);
}

#[test]
fn augefs_survives_clients_that_are_killed_inside() {
    survives_killed_clients("augefs", 8);
}

#[test]
fn a_manager_that_is_killed_takes_nothing_durable_with_it() {
    let rig = Rig::start("augefs", 9, Protection::Nothing);
    let client = rig.client();
    let file = make(&client, Ino::ROOT, "kept").expect("a new name").attr.ino;
    write(&client, file, 0, b"durable").expect("room");
    client.fsync(file, false).expect("the device works");
    let mut other = rig.other("busy a");
    other.await_line(READY);
    other.tell();
    let process = rig.manager.process().and_then(|process| rustix::process::Pid::from_raw(process as i32));
    rustix::process::kill_process(process.expect("it runs"), rustix::process::Signal::KILL)
        .expect("it is ours");
    other.end();
    await_some("the range has died", || client.statfs().err());
    rig.manager.await_range(2).expect("another range");
    assert!(client.statfs().is_err(), "a dead range stays dead");
    drop(client);
    let client = rig.client();
    assert_eq!(client.lookup(Ino::ROOT, name("kept")).expect("it was durable").attr.size, 7);
    drop(client);
    rig.manager.stop().expect("it is flushed and closed");
}

/// What ends the range from inside, as an error in its program does, is the end of its manager too: nothing
/// of what was at work is unmounted as if it were whole.
#[test]
fn a_range_that_ends_from_inside_ends_its_manager() {
    let rig = Rig::start("bytefs", 14, Protection::Nothing);
    let client = rig.client();
    let file = make(&client, Ino::ROOT, "kept").expect("a new name").attr.ino;
    client.fsync(file, false).expect("the device works");
    let mut other = rig.other("cuts");
    other.await_line(READY);
    other.tell();
    other.end();
    rig.manager.await_range(2).expect("another range");
    assert!(client.statfs().is_err(), "a dead range stays dead");
    drop(client);
    let client = rig.client();
    client.lookup(Ino::ROOT, name("kept")).expect("it was durable");
    drop(client);
    rig.manager.stop().expect("it is flushed and closed");
}

/// Cuts the device's power in a call, and sees that there is no range any more.
pub fn cut_power(client: &Client) {
    say_and_wait(READY);
    client.cut_power(5);
    assert!(client.statfs().is_err(), "the range has died");
}
