//! What only rings can do, what only they could get wrong, and who gets them.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use amphi_front_fuse::{MountError, MountOptions, Session, Transport};
use amphi_vfs::FileSystem;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tempfile::TempDir;

use crate::mounted::{can_mount, mount, options, own_model};
use crate::observed::Observed;
use crate::offered::Offered;

/// Threads of each queue.
const AT_ONCE: usize = 4;

/// A mount on a directory of its own.
fn mounted<F: FileSystem + 'static>(fs: &Arc<F>) -> (Session, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let session = mount(Arc::clone(fs), directory.path(), &options()).unwrap();
    (session, directory)
}

fn leave(session: Session) {
    session.unmount().unwrap();
    session.wait().unwrap();
}

/// Keeps this thread on one processor.
fn stay_on(processor: usize) {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only).unwrap();
}

fn processors() -> Vec<usize> {
    let ours = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|&processor| ours.is_set(processor)).collect()
}

/// Does `what` while the processor has other work.
fn while_busy<R>(processor: usize, what: impl FnOnce() -> R) -> R {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                stay_on(processor);
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let result = what();
        over.store(true, Ordering::Relaxed);
        result
    })
}

#[test]
fn a_request_is_served_on_the_processor_it_comes_from() {
    if !can_mount() {
        return;
    }
    let fs = Observed::new(own_model(), |_, _| ());
    let (session, directory) = mounted(&fs);
    for processor in processors() {
        let (fs, directory) = (Arc::clone(&fs), directory.path().to_owned());
        let caller = thread::spawn(move || {
            stay_on(processor);
            for index in 0..200 {
                // A name that nobody has asked for yet has to be looked up, and its attributes to be read.
                let path = directory.join(format!("{processor}-{index}"));
                fs::create_dir(&path).unwrap();
                fs::rename(&path, directory.join(format!("{processor}-{index} again"))).unwrap();
                *fs.served_on.lock().unwrap() = usize::MAX;
                directory.metadata().unwrap().mtime();
                assert_eq!(*fs.served_on.lock().unwrap(), processor);
            }
        });
        caller.join().unwrap();
    }
    leave(session);
}

#[test]
fn programs_of_one_processor_do_not_wait_for_each_others_requests() {
    if !can_mount() {
        return;
    }
    let (under_way, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    // Each is done only when as many as can be are under way; nobody waits on when they never are.
    let fs = Observed::new(own_model(), move |_, _| {
        let now = under_way.fetch_add(1, Ordering::SeqCst) + 1;
        seen.fetch_max(now, Ordering::SeqCst);
        let begin = Instant::now();
        while seen.load(Ordering::SeqCst) < AT_ONCE {
            if begin.elapsed() > Duration::from_secs(20) {
                seen.store(usize::MAX, Ordering::SeqCst);
            }
            thread::sleep(Duration::from_millis(1));
        }
        under_way.fetch_sub(1, Ordering::SeqCst);
    });
    let processor = processors()[0];
    // The queue's threads begin late, and one that was not there when the first requests came would get none
    // of those.
    let (session, _directory) = while_busy(processor, || {
        let (session, directory) = mounted(&fs);
        thread::scope(|scope| {
            for number in 0..3 * AT_ONCE {
                let path = directory.path().join(number.to_string());
                scope.spawn(move || {
                    stay_on(processor);
                    for round in 0..3_u8 {
                        fs::write(&path, [round; 5000]).unwrap();
                    }
                    assert_eq!(fs::read(&path).unwrap(), [2; 5000]);
                });
            }
        });
        (session, directory)
    });
    assert_eq!(most.load(Ordering::SeqCst), AT_ONCE);
    leave(session);
}

#[test]
fn a_request_may_wait_for_one_that_comes_later_on_the_same_processor() {
    if !can_mount() {
        return;
    }
    let second_came = Arc::new(AtomicUsize::new(0));
    let came = Arc::clone(&second_came);
    let fs = Observed::new(own_model(), move |_, data| match data {
        b"first" => {
            let begin = Instant::now();
            while came.load(Ordering::SeqCst) == 0 {
                assert!(begin.elapsed() < Duration::from_secs(20), "the second one never came");
                thread::sleep(Duration::from_millis(1));
            }
        }
        _ => came.store(1, Ordering::SeqCst),
    });
    let (session, directory) = mounted(&fs);
    let processor = processors()[0];
    let write = |name: &str, data: &'static [u8]| {
        let path = directory.path().join(name);
        thread::spawn(move || {
            stay_on(processor);
            fs::write(path, data).unwrap();
        })
    };
    let first = write("a", b"first");
    thread::sleep(Duration::from_millis(50));
    let second = write("b", b"second");
    second.join().unwrap();
    first.join().unwrap();
    leave(session);
}

/// That a removed file is forgotten comes another way than the question how much room there is, to a thread
/// that may be late.
#[test]
fn what_a_removed_file_took_is_free_for_who_asks_next() {
    if !can_mount() {
        return;
    }
    let fs = Observed::new(own_model(), |_, _| ());
    let (session, directory) = mounted(&fs);
    let free = || rustix::fs::statvfs(directory.path()).unwrap().f_ffree;
    let (first, second) = (directory.path().join("first"), directory.path().join("second"));
    let before = free();
    fs::write(&first, b"x").unwrap();
    fs::write(&second, b"x").unwrap();
    fs.next_forget_takes(Duration::from_millis(200));
    fs::remove_file(first).unwrap();
    fs::remove_file(second).unwrap();
    assert_eq!(free(), before);
    leave(session);
}

#[test]
fn a_panic_in_a_request_is_an_error_and_no_more() {
    if !can_mount() {
        return;
    }
    let fs = Observed::new(own_model(), |_, data| assert_ne!(data, b"panic", "on purpose"));
    let (session, directory) = mounted(&fs);
    let path = directory.path().join("f");
    for _ in 0..3 * AT_ONCE * processors().len() {
        let error = fs::write(&path, b"panic").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(5), "{error}");
    }
    fs::write(&path, b"fine").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"fine");
    leave(session);
}

#[test]
fn what_is_under_way_when_the_mount_goes_is_done() {
    if !can_mount() {
        return;
    }
    let fs = Observed::new(own_model(), |_, _| thread::sleep(Duration::from_millis(20)));
    let (session, directory) = mounted(&fs);
    let open = |number: usize| {
        let path = directory.path().join(number.to_string());
        File::options().create(true).truncate(true).read(true).write(true).open(path).unwrap()
    };
    let files: Vec<File> = (0..6).map(open).collect();
    thread::scope(|scope| {
        for file in files {
            scope.spawn(move || {
                for round in 0..10 {
                    file.write_all_at(&[round; 100], 0).unwrap();
                }
                let mut read = [0; 100];
                file.read_exact_at(&mut read, 0).unwrap();
                assert_eq!(read, [9; 100]);
            });
        }
        thread::sleep(Duration::from_millis(30));
        session.detach().unwrap();
        assert!(!directory.path().join("0").exists());
    });
    session.wait().unwrap();
}

/// The server of this mount is another process, which is killed while it serves.
#[test]
fn who_waits_for_a_killed_server_is_told() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    // Who is killed sets nothing back.
    let offered = Offered::begin();
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "rings::serves_slowly_until_killed", "--include-ignored"])
        .env("AMPHI_TEST_MOUNTPOINT", directory.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while !is_mounted(directory.path()) {
        assert!(begin.elapsed() < Duration::from_secs(60), "the other process has mounted");
        thread::sleep(Duration::from_millis(10));
    }
    drop(offered);
    let waiting: Vec<_> = (0..3 * AT_ONCE)
        .map(|number| {
            let path = directory.path().join(number.to_string());
            thread::spawn(move || fs::write(path, b"never written").unwrap_err())
        })
        .collect();
    thread::sleep(Duration::from_millis(300));
    server.kill().unwrap();
    server.wait().unwrap();
    for caller in waiting {
        let error = caller.join().unwrap();
        // ENOTCONN, ECONNABORTED or ECANCELED, by how far it had got.
        let told = [Some(107), Some(103), Some(125)].contains(&error.raw_os_error());
        assert!(told || error.kind() == ErrorKind::NotConnected, "{error}");
    }
    let session = mount(own_model(), directory.path(), &options()).unwrap();
    fs::write(directory.path().join("f"), b"alive").unwrap();
    leave(session);
}

fn is_mounted(directory: &Path) -> bool {
    const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;
    rustix::fs::statfs(directory).is_ok_and(|stat| stat.f_type == FUSE_SUPER_MAGIC)
}

#[test]
#[ignore = "the other process of who_waits_for_a_killed_server_is_told"]
fn serves_slowly_until_killed() {
    let Some(directory) = std::env::var_os("AMPHI_TEST_MOUNTPOINT") else { return };
    let fs = Observed::new(own_model(), |_, _| thread::sleep(Duration::from_secs(600)));
    amphi_front_fuse::mount(fs, directory.as_ref(), &options()).unwrap().wait().unwrap();
}

#[test]
fn programs_killed_while_they_wait_harm_nobody() {
    if !can_mount() {
        return;
    }
    let is_slow = Arc::new(AtomicBool::new(true));
    let waits = Arc::clone(&is_slow);
    let fs = Observed::new(own_model(), move |_, _| {
        while waits.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
    });
    let (session, directory) = mounted(&fs);
    // More than can be under way: some wait in the kernel.
    let mut programs: Vec<_> = (0..3 * AT_ONCE * processors().len())
        .map(|number| {
            // Nothing of starting it may ask this file system, which keeps everybody waiting.
            let path = directory.path().join(number.to_string());
            Command::new("sh").args(["-c", "echo x > $0"]).arg(path).spawn().unwrap()
        })
        .collect();
    thread::sleep(Duration::from_millis(500));
    for program in &mut programs {
        program.kill().unwrap();
    }
    is_slow.store(false, Ordering::SeqCst);
    for program in &mut programs {
        program.wait().unwrap();
    }
    for number in 0..40 {
        let path = directory.path().join(format!("after {number}"));
        fs::write(&path, b"fine").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"fine");
    }
    leave(session);
}

#[test]
fn many_programs_at_once_find_what_they_wrote() {
    if !can_mount() {
        return;
    }
    let (session, directory) = mounted(&own_model());
    thread::scope(|scope| {
        for number in 0..16_u8 {
            let own = directory.path().join(format!("d{number}"));
            let shared = directory.path().to_owned();
            scope.spawn(move || {
                fs::create_dir(&own).unwrap();
                for round in 0..40_usize {
                    let path = own.join(round.to_string());
                    let data: Vec<u8> = (0..1 + round * 4000).map(|at| (at % 251) as u8 ^ number).collect();
                    fs::write(&path, &data).unwrap();
                    fs::rename(&path, shared.join(format!("{number}-{round}"))).unwrap();
                    assert_eq!(fs::read(shared.join(format!("{number}-{round}"))).unwrap(), data);
                    assert!(fs::read_dir(&shared).unwrap().count() > round);
                }
                fs::remove_dir(&own).unwrap();
            });
        }
    });
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 16 * 40);
    leave(session);
}

#[test]
fn who_insists_on_rings_that_are_not_offered_hears_what_to_do() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let offered = Offered::begin();
    offered.set(false);
    let error = amphi_front_fuse::mount(own_model(), directory.path(), &options()).unwrap_err();
    assert!(matches!(error, MountError::NoRing), "{error}");
    assert!(error.to_string().contains("enable_uring") && error.to_string().contains("transport=device"));
    assert!(!is_mounted(directory.path()), "nothing stays mounted");
    let automatic = MountOptions { transport: Transport::Auto, ..options() };
    for is_offered in [false, true] {
        offered.set(is_offered);
        let session = amphi_front_fuse::mount(own_model(), directory.path(), &automatic).unwrap();
        assert_eq!(session.has_rings(), is_offered);
        fs::write(directory.path().join("f"), b"either way").unwrap();
        leave(session);
    }
}
