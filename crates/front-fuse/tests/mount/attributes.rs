//! Attributes the kernel remembers, while several programs look at a file and change it at the same time.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, FallocateFlags, StatxFlags, Timespec, Timestamps, fallocate, futimens, open, statx,
};
use rustix::fs::{Mode, OFlags};

use crate::mounted::Mounted;

const ROUNDS: usize = 3000;
/// Fewer rounds where others keep the processors busy.
const LONG_ENOUGH: Duration = Duration::from_secs(4);

/// Ends the other thread, also if an assertion fails.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An answer on its way while the file changes must not be what the kernel remembers afterwards.
///
/// The kernel asks for attributes on behalf of one program; before it has stored the answer another one
/// changes the file, in a way whose answer carries no attributes; the old ones would be believed from then
/// on.
#[test]
fn an_answer_overtaken_by_a_change_is_not_remembered() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    fs::write(&path, [1; 8192]).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let directory = open(mounted.root(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    // One look for each change, so that nothing but the change repairs what is remembered. What is there is
    // asked when that look is over: while the kernel's driver stores an answer, which it marks valid first,
    // even a fresh one, others may see what was there before.
    let (asked, answered, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let begin = Instant::now();
    let old = Timespec { tv_sec: 1, tv_nsec: 0 };
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                while asked.load(Ordering::SeqCst) < round {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    thread::yield_now();
                }
                statx(&directory, "f", AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).unwrap();
                answered.store(round, Ordering::SeqCst);
            }
        });
        let _ends = SetWhenDropped(&done);
        let mut stale = 0;
        for round in (1..=ROUNDS).take_while(|_| begin.elapsed() < LONG_ENOUGH) {
            futimens(&file, &Timestamps { last_access: old, last_modification: old }).unwrap();
            asked.store(round, Ordering::SeqCst);
            // Now sooner, now later after the look has begun.
            for _ in 0..round % 64 * 50 {
                std::hint::spin_loop();
            }
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, punch, 0, 4096).unwrap();
            while answered.load(Ordering::SeqCst) < round {
                thread::yield_now();
            }
            stale += usize::from(file.metadata().unwrap().mtime() == old.tv_sec);
        }
        assert_eq!(stale, 0, "stale modification times in at most {ROUNDS} rounds");
    });
}

/// A name removed before a directory is opened must not be listed, however many others list the directory
/// meanwhile.
///
/// The kernel can keep listings. What one program reads becomes part of the listing that another one is in
/// the middle of.
#[test]
fn a_removed_name_is_not_listed() {
    const NAMES: usize = 1500;
    let Some(mounted) = Mounted::new() else { return };
    for number in 0..NAMES {
        fs::write(mounted.path(&format!("a-name-that-takes-its-room-{number}")), []).unwrap();
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::read_dir(mounted.root()).unwrap().for_each(drop);
            }
        });
        let _ends = SetWhenDropped(&done);
        for number in (0..NAMES).step_by(5) {
            let path = mounted.path(&format!("a-name-that-takes-its-room-{number}"));
            fs::remove_file(&path).unwrap();
            let listed = fs::read_dir(mounted.root()).unwrap().any(|entry| entry.unwrap().path() == path);
            assert!(!listed, "{} is removed and still listed", path.display());
            fs::write(&path, []).unwrap();
        }
    });
}
