//! Processes that see each other's files, wait for each other, and leave.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use amphi_conformance::Fs;
use amphi_front_shared::{Client, Protection, keys_are_here};
use amphi_vfs::{Error, FileSystem, Ino};

use crate::rig::{READY, Rig, await_some, make, name, read, say_and_wait, write};

/// A key, where the processor has them: what works behind one works without, too.
fn strongest() -> Protection {
    if keys_are_here() { Protection::Keys } else { Protection::Nothing }
}

pub fn make_a_file(client: &Client, _words: &[&str]) {
    let file = make(client, Ino::ROOT, "theirs").expect("a new name").attr.ino;
    write(client, file, 0, b"from another process").expect("room");
    client.fsync(file, false).expect("the device works");
    say_and_wait(READY);
    let ours = client.lookup(Ino::ROOT, name("ours")).expect("it was made meanwhile").attr.ino;
    assert_eq!(read(client, ours, 64), Ok(b"from the test".to_vec()));
    // What the test's process keeps open is removed here.
    client.unlink(Ino::ROOT, name("ours")).expect("it is there");
}

pub fn see_each_other(kind: &str, place: u64) {
    let rig = Rig::start(kind, place, strongest());
    let client = rig.client();
    let mut other = rig.other("file");
    other.await_line(READY);
    let theirs = client.lookup(Ino::ROOT, name("theirs")).expect("it is there").attr;
    assert_eq!(theirs.size, 20, "{kind}");
    assert_eq!(read(&client, theirs.ino, 64), Ok(b"from another process".to_vec()), "{kind}");
    let ours = make(&client, Ino::ROOT, "ours").expect("a new name").attr.ino;
    write(&client, ours, 0, b"from the test").expect("room");
    other.tell();
    other.end();
    assert_eq!(client.lookup(Ino::ROOT, name("ours")), Err(Error::NotFound), "{kind}");
    assert_eq!(read(&client, ours, 64), Ok(b"from the test".to_vec()), "{kind}: it is still referred to");
    client.forget(ours, 1);
    // The other process has looked it up, and lets go of it when the manager has seen it off.
    let gone = await_some("nobody refers to it", || client.getattr(ours).err());
    assert!(matches!(gone, Error::Stale(_) | Error::NotFound), "{kind}: {gone}");
    drop(client);
    rig.manager.stop().expect("it is flushed and closed");
}

const TURNS: u64 = 300;

pub fn take_turns(client: &Client, words: &[&str]) {
    let mine = words[0].parse().expect("a number");
    for _ in 0..TURNS {
        client.take_turn(mine, 2).expect("the range lives");
    }
}

#[test]
fn locks_and_condition_variables_work_between_processes() {
    let rig = Rig::start("bytefs", 2, Protection::Nothing);
    let client = rig.client();
    let other = rig.other("turns 1");
    // Each waits for the other before each of its own: a wake-up that was lost would be the end.
    take_turns(&client, &["0"]);
    other.end();
}

const FILES: usize = 200;

pub fn make_many(client: &Client, words: &[&str]) {
    say_and_wait(READY);
    for number in 0..FILES {
        let text = format!("{}-{number}", words[0]);
        let file = make(client, Ino::ROOT, &text).expect("a new name").attr.ino;
        write(client, file, 0, text.as_bytes()).expect("room");
        client
            .rename(Ino::ROOT, name(&text), Ino::ROOT, name(&format!("{text}-done")), Default::default())
            .expect("both are in one directory");
    }
}

#[test]
fn processes_work_in_one_directory_at_the_same_time() {
    for (kind, place) in [("bytefs", 3), ("augefs", 4)] {
        let rig = Rig::start(kind, place, strongest());
        let mut others = [rig.other("many a"), rig.other("many b")];
        for other in &mut others {
            other.await_line(READY);
        }
        others.iter_mut().for_each(|other| other.tell());
        others.into_iter().for_each(|other| other.end());
        let client = rig.client();
        for who in ["a", "b"] {
            for number in 0..FILES {
                let text = format!("{who}-{number}");
                let file =
                    client.lookup(Ino::ROOT, name(&format!("{text}-done"))).expect("it was made").attr.ino;
                assert_eq!(read(&client, file, 64), Ok(text.into_bytes()), "{kind}");
            }
        }
        let mut listed = 0;
        client
            .readdir(Ino::ROOT, 0, &mut |_| {
                listed += 1;
                true
            })
            .expect("a directory");
        assert_eq!(listed, 2 * FILES + 2, "{kind}: and `.` and `..`");
        drop(client);
        rig.manager.stop().expect("it is flushed and closed");
    }
}

pub fn hold_what_has_no_name(client: &Client) {
    let file = make(client, Ino::ROOT, "gone").expect("a new name").attr.ino;
    client.open(file, Default::default()).expect("it is there");
    write(client, file, 0, &[7; 1 << 20]).expect("room");
    client.fsync(file, false).expect("the device works");
    client.unlink(Ino::ROOT, name("gone")).expect("it is there");
    say_and_wait(READY);
    std::process::abort();
}

#[test]
fn what_a_process_referred_to_is_let_go_of_when_it_is_gone() {
    let rig = Rig::start("bytefs", 5, Protection::Nothing);
    let client = rig.client();
    let before = client.statfs().expect("counts").inodes_free;
    let mut other = rig.other("orphan");
    other.await_line(READY);
    assert_eq!(client.statfs().expect("counts").inodes_free, before - 1, "it is held");
    other.child.kill().expect("it runs");
    await_some("it is let go of", || {
        let free = client.statfs().expect("the range lives: nobody died inside").inodes_free;
        (free == before).then_some(())
    });
    assert_eq!(rig.manager.ranges(), 1);
}

/// Each case finds an empty file system, so each has a range of its own.
fn keeps_its_promises(kind: &str, place: u64) {
    let mut failed = Vec::new();
    for case in amphi_conformance::cases() {
        let rig = Rig::start(kind, place, strongest());
        let fs = Fs::new(Arc::new(rig.client()));
        if catch_unwind(AssertUnwindSafe(|| (case.run)(&fs))).is_err() {
            failed.push(case.name);
        }
    }
    assert_eq!(failed, [""; 0], "{kind}");
}

#[test]
fn bytefs_keeps_its_promises_through_the_gate() {
    keeps_its_promises("bytefs", 6);
}

#[test]
fn augefs_keeps_its_promises_through_the_gate() {
    keeps_its_promises("augefs", 12);
}
