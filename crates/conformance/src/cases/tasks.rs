//! Several tasks at once: what atomic means to those who look.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use amphi_rt::task;
use amphi_vfs::{Cred, FileType, Ino, RenameMode, WriteMode};

use super::case_list;
use crate::harness::{Fs, name};

case_list!(
    readers_see_whole_writes,
    readers_see_long_writes_whole,
    appends_of_many_tasks_are_all_there,
    a_replaced_name_is_never_missing,
    one_of_many_creators_wins,
    tasks_in_one_directory_do_not_disturb_each_other,
    links_and_unlinks_are_counted_right,
);

const TASKS: usize = 4;

/// Runs `f(0)` to `f(TASKS - 1)` at the same time.
fn all_at_once(fs: &Fs, f: impl Fn(&Fs, usize) + Send + Sync + 'static) {
    let f = Arc::new(f);
    let running: Vec<_> = (0..TASKS)
        .map(|number| {
            let (fs, f) = (fs.clone(), Arc::clone(&f));
            task::spawn("case", move || f(&fs, number))
        })
        .collect();
    for handle in running {
        handle.join();
    }
}

fn readers_see_whole_writes(fs: &Fs) {
    whole_writes(fs, 3 * 4_096 + 100, 150);
}

/// More than file systems bring into memory at once.
fn readers_see_long_writes_whole(fs: &Fs) {
    whole_writes(fs, (1 << 20) + (1 << 18) + 100, 100);
}

fn whole_writes(fs: &Fs, length: usize, rounds: usize) {
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 50, &vec![b'a'; length]);
    all_at_once(fs, move |fs, number| {
        for round in 0..rounds {
            if number < 2 {
                let byte = b'a' + ((round + number * 7) % 26) as u8;
                fs.put(file, 50, &vec![byte; length]);
            } else {
                let seen = fs.get(file, 50, length);
                assert_eq!(seen.len(), length);
                assert!(seen.iter().all(|&byte| byte == seen[0]), "a read saw parts of two writes");
            }
            if round % 16 == 0 {
                fs.fsync(file, true).unwrap();
                task::yield_now();
            }
        }
    });
}

fn appends_of_many_tasks_are_all_there(fs: &Fs) {
    const ROUNDS: usize = 200;
    let file = fs.file(Ino::ROOT, "f");
    all_at_once(fs, move |fs, number| {
        let append = WriteMode { append: true, ..WriteMode::default() };
        for round in 0..ROUNDS {
            let record = format!("<{number}:{round:03}{}>", "#".repeat(number * 40));
            fs.write(file, 0, record.as_bytes(), append, &Cred::ROOT).unwrap();
            if round % TASKS == number {
                fs.fsync(file, round % 2 == 0).unwrap();
            }
        }
    });
    let all = String::from_utf8(fs.get(file, 0, 1 << 20)).expect("only whole records");
    let mut next = [0; TASKS];
    for record in all.split_terminator('>') {
        let (number, rest) = record.strip_prefix('<').and_then(|r| r.split_once(':')).expect("a record");
        let number: usize = number.parse().unwrap();
        assert_eq!(rest[..3].parse(), Ok(next[number]), "a task's records are in order");
        assert_eq!(rest.len(), 3 + number * 40);
        next[number] += 1;
    }
    assert_eq!(next, [ROUNDS; TASKS]);
}

fn a_replaced_name_is_never_missing(fs: &Fs) {
    let first = fs.file(Ino::ROOT, "target");
    fs.put(first, 0, b"complete");
    let done = Arc::new(AtomicBool::new(false));
    all_at_once(fs, move |fs, number| {
        if number == 0 {
            for _ in 0..200 {
                let new = fs.file(Ino::ROOT, "temporary");
                fs.put(new, 0, b"complete");
                fs.rename(Ino::ROOT, name("temporary"), Ino::ROOT, name("target"), RenameMode::Replace)
                    .unwrap();
                fs.forget(new, 1);
            }
            done.store(true, Ordering::Release);
        }
        while !done.load(Ordering::Acquire) {
            let found = fs.lookup(Ino::ROOT, name("target")).expect("the name is always there").attr;
            assert_eq!(fs.get(found.ino, 0, 20), b"complete");
            fs.forget(found.ino, 1);
            task::yield_now();
        }
    });
    assert_eq!(fs.names(Ino::ROOT), ["target"]);
}

fn one_of_many_creators_wins(fs: &Fs) {
    let won = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&won);
    all_at_once(fs, move |fs, _| {
        for round in 0..100 {
            let text = format!("f{round}");
            let made = fs.create(Ino::ROOT, name(&text), FileType::Regular, 0o644, 0, &Cred::ROOT);
            if made.is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            } else {
                assert_eq!(made, Err(amphi_vfs::Error::Exists));
                fs.find(Ino::ROOT, &text).unwrap();
            }
        }
    });
    assert_eq!(won.load(Ordering::Relaxed), 100);
    assert_eq!(fs.names(Ino::ROOT).len(), 100);
}

fn tasks_in_one_directory_do_not_disturb_each_other(fs: &Fs) {
    all_at_once(fs, |fs, number| {
        for round in 0..120 {
            let (text, moved) = (format!("{number}-{round}"), format!("{number}-{round}-moved"));
            let file = fs.file(Ino::ROOT, &text);
            fs.put(file, 0, text.as_bytes());
            fs.rename(Ino::ROOT, name(&text), Ino::ROOT, name(&moved), RenameMode::NoReplace).unwrap();
            assert_eq!(fs.get(file, 0, 100), text.as_bytes());
            if round % 3 != 0 {
                fs.unlink(Ino::ROOT, name(&moved)).unwrap();
            }
            fs.forget(file, 1);
            let dir = fs.dir(Ino::ROOT, &text);
            fs.rmdir(Ino::ROOT, name(&text)).unwrap();
            fs.forget(dir, 1);
        }
    });
    assert_eq!(fs.names(Ino::ROOT).len(), TASKS * 40);
    assert_eq!(fs.attr(Ino::ROOT).nlink, 2);
}

fn links_and_unlinks_are_counted_right(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    all_at_once(fs, move |fs, number| {
        let dir = fs.dir(Ino::ROOT, &format!("d{number}"));
        for round in 0..100 {
            let text = round.to_string();
            fs.link(file, dir, name(&text)).unwrap();
            fs.forget(file, 1);
            if round % 2 == 0 {
                fs.unlink(dir, name(&text)).unwrap();
            }
        }
    });
    assert_eq!(fs.attr(file).nlink as usize, 1 + TASKS * 50);
    assert_eq!(fs.attr(Ino::ROOT).nlink as usize, 2 + TASKS);
}
