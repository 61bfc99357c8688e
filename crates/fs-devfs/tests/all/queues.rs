//! Queues of files that are deleted while others take their slots and their blocks, on a device that takes
//! time. Whoever is late would write into blocks that are another file's by then.

use std::sync::Arc;

use amphi_fs_devfs::{DevFs, FormatOptions, MountOptions};
use amphi_rt::{Sim, task};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::{Allocate, Cred, FileSystem, FileType, Ino};

use crate::small::{name, write};

/// Tasks that make files and delete them, and files that each makes.
const TASKS: u64 = 6;
const FILES: u64 = 25;
/// Blocks that are left to them: their files have the same ones again and again.
const BLOCKS_LEFT: u64 = 24;

fn create(fs: &DevFs<Ssd>, text: &str) -> Ino {
    let made = fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
    made.expect("there is room").attr.ino
}

/// A file system with few blocks left, and with so few slots that each task takes others' away.
fn full() -> DevFs<Ssd> {
    let mut profile = Profile::named("mssd-pcie3").expect("the profile exists");
    profile.firmware.kind = Firmware::FileSystem;
    profile.firmware.memory_bytes = 256 << 10;
    profile.log.region_bytes = 256 << 10;
    let ssd = Arc::new(Ssd::try_in_memory(&profile, 16 << 20, &OpenOptions::default()).expect("an SSD"));
    let format = FormatOptions { inodes: Some(200), ..FormatOptions::default() };
    DevFs::format(&ssd, &format).expect("it can be formatted");
    let options = MountOptions { memory: Some(96 << 10), ..MountOptions::default() };
    let fs = DevFs::mount(&ssd, &options).expect("it can be mounted");
    let ballast = create(&fs, "ballast");
    let mut blocks = fs.statfs().expect("it works").blocks_free - BLOCKS_LEFT;
    while fs.allocate(ballast, 0, blocks * 4096, Allocate::Reserve { keep_size: false }, &Cred::ROOT).is_err()
    {
        blocks -= 1;
    }
    fs
}

/// Makes files, writes each whole and then in parts, looks at it and deletes it.
fn churn(fs: &DevFs<Ssd>, task: u64) -> u64 {
    let mut wrong = 0;
    for number in 0..FILES {
        let text = format!("t{task}-{number}");
        let ino = create(fs, &text);
        let mut expected = vec![(task * FILES + number) as u8; 4096];
        write(fs, ino, 0, &expected);
        for part in 0..3_u64 {
            let offset = (part * 1000 + task * 7) as usize;
            expected[offset..offset + 100].fill(0xF0 + task as u8);
            write(fs, ino, offset as u64, &[0xF0 + task as u8; 100]);
            let mut found = vec![0; 4096];
            assert_eq!(fs.read(ino, 0, &mut found, false), Ok(4096));
            wrong += u64::from(found != expected);
        }
        fs.unlink(Ino::ROOT, name(&text)).expect("it is there");
        fs.forget(ino, 1);
    }
    wrong
}

#[test]
fn files_hold_their_own_bytes_while_slots_and_blocks_change_hands() {
    for seed in 0..8 {
        let wrong = Sim::new(seed).run(|| {
            let fs = Arc::new(full());
            let tasks: Vec<_> = (0..TASKS)
                .map(|number| {
                    let fs = Arc::clone(&fs);
                    task::spawn("churn", move || churn(&fs, number))
                })
                .collect();
            let wrong: u64 = tasks.into_iter().map(task::JoinHandle::join).sum();
            let taken = fs.stats()["slots_taken_away"].as_u64().expect("a counter");
            assert!(taken > 100, "{taken} slots changed hands");
            Arc::into_inner(fs).expect("nobody else has it").unmount().expect("it is idle");
            wrong
        });
        assert_eq!(wrong, 0, "files that held something else, with seed {seed}");
    }
}
