//! How much of the device files that come and go take up: an SSD keeps, and its garbage collection moves,
//! what was ever written (BY-11).

use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_rt::{Sim, cpu, random, task};
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};

const DEVICE: usize = 192 << 20;
const PAGE: u64 = 4096;
/// Pages of a group of the block bitmap.
const GROUP: u64 = 512;
/// Files that a task has at any time, and pages of the largest.
const FILES: usize = 8;
const PAGES_MAX: u64 = 300;
/// How often a task replaces each of its files.
const ROUNDS: u64 = 12;

/// Replaces a file by a new one, whose pages are durable. Returns how many.
fn replace(fs: &ByteFs<Ssd>, task: usize, number: usize) -> u64 {
    let text = format!("{task}-{number}");
    let name = Name::new(text.as_bytes()).expect("a plain name");
    let _not_there_the_first_time = fs.unlink(Ino::ROOT, name);
    let entry = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
    let ino = entry.expect("there is room for a file").attr.ino;
    let pages = 1 + random::below(PAGES_MAX);
    let data = vec![task as u8; (pages * PAGE) as usize];
    assert_eq!(fs.write(ino, 0, &data, WriteMode::default(), &Cred::ROOT), Ok(data.len()));
    fs.fsync(ino, false).expect("it can be synced");
    fs.forget(ino, 1);
    pages
}

/// Replaces files on all processors. Returns how many pages were written.
fn churn(fs: &Arc<ByteFs<Ssd>>) -> u64 {
    let tasks: Vec<_> = (0..cpu::count())
        .map(|number| {
            let fs = Arc::clone(fs);
            task::spawn("replaces-files", move || {
                let files = (0..ROUNDS).flat_map(|_| 0..FILES);
                files.map(|file| replace(&fs, number, file)).sum::<u64>()
            })
        })
        .collect();
    tasks.into_iter().map(|task| task.join()).sum()
}

#[test]
fn files_that_come_and_go_use_the_same_pages_again() {
    Sim::new(11).run(|| {
        let device =
            Arc::new(Ssd::in_memory(&Profile::named("mssd-pcie3").expect("built in"), DEVICE as u64));
        ByteFs::format(&*device, &FormatOptions::default()).expect("it can be formatted");
        let mount =
            || ByteFs::mount(Arc::clone(&device), MountOptions::default()).expect("it can be mounted");
        let pages = DEVICE as u64 / PAGE;
        // What may lie unused in groups that were used, one group that each processor has begun, and what is
        // not files.
        let beside = pages / 8 + cpu::count() as u64 * GROUP + pages / 50;
        let live = (cpu::count() * FILES) as u64 * PAGES_MAX;
        for mounted in ["once", "again"] {
            let fs = Arc::new(mount());
            let written = churn(&fs);
            assert!(written > 2 * pages, "mounted {mounted}: {written} pages of {pages} were written");
            let held = device.mapped_pages().len() as u64;
            let report =
                format!("mounted {mounted}: of {pages} pages the device holds {held}, files at most {live}");
            assert!(held <= live + beside, "{report}");
            println!("{report}");
            Arc::into_inner(fs).expect("the tasks have ended").unmount().expect("it can be unmounted");
        }
    });
}
