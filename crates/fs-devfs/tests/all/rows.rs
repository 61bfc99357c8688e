//! What the paper asks for, as far as a single mount can show it; the rest is seen where the power fails (the
//! crash laboratory's `devfs.rs`).

use std::sync::Arc;

use amphi_fs_devfs::{DevFs, FormatOptions, MountOptions, OnClose};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, OpenFlags};

use crate::small::{self, count, cramped, make, naive, name, read, write};

fn file(fs: &DevFs<Ssd>, text: &str) -> Ino {
    let made = fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
    made.expect("it can be created").attr.ino
}

/// Pages that `body` writes to flash.
fn written(fs: &DevFs<Ssd>, body: impl FnOnce()) -> u64 {
    let before = fs.device().stats().block_write.bytes();
    body();
    (fs.device().stats().block_write.bytes() - before) / 4096
}

#[test]
fn a_file_that_lies_in_one_piece_is_one_node_of_its_map() {
    let fs = make(&MountOptions::default());
    let ino = file(&fs, "file");
    fs.open(ino, OpenFlags { write: true, ..OpenFlags::default() }).expect("it is there");
    let empty = count(&fs, &["memory", "filemaps"]);
    // The first block has the pointer page behind it.
    write(&fs, ino, 0, &[1; 4096]);
    write(&fs, ino, 4096, &[1; 4096]);
    let few = count(&fs, &["memory", "filemaps"]);
    for block in 2..100 {
        write(&fs, ino, block * 4096, &[1; 4096]);
    }
    assert!(few > empty, "a map takes device memory");
    assert_eq!(count(&fs, &["memory", "filemaps"]), few, "what lies behind it belongs to the same run");
}

#[test]
fn only_without_capacitors_is_anything_written_twice() {
    let small_writes = |fs: &DevFs<Ssd>| {
        let ino = file(fs, "file");
        write(fs, ino, 0, &[1; 4096]);
        written(fs, || (0..10).for_each(|part| write(fs, ino, part * 100, &[2; 100])))
    };
    let (saved, journaled) = (small_writes(&make(&MountOptions::default())), small_writes(&make(&naive())));
    assert_eq!(saved, 0, "capacitors save the queue and the journal");
    assert!(journaled >= 20, "each write has its data and its record copied to flash, {journaled} pages");
}

#[test]
fn a_full_queue_is_brought_in_place_at_once() {
    let fs = make(&MountOptions::default());
    let ino = file(&fs, "file");
    write(&fs, ino, 0, &[1; 4096]);
    let pages = written(&fs, || (0..30).for_each(|part| write(&fs, ino, part * 100, &[2; 100])));
    assert!((1..=2 + 4 * 30 / 15).contains(&pages), "{pages} pages for 3000 bytes of one block");
    assert_eq!(read(&fs, ino, 0, 3001), [vec![2; 3000], vec![1]].concat());
}

#[test]
fn what_nobody_uses_goes_to_the_host_and_comes_back() {
    let fs = make(&cramped());
    let files: Vec<_> = (0..300).map(|number| file(&fs, &format!("file-{number}"))).collect();
    files.iter().for_each(|ino| fs.forget(*ino, 1));
    assert!(count(&fs, &["inodes_away"]) > 100, "inodes go away");
    assert!(count(&fs, &["memory", "inodes"]) < 100 * 1000, "few stay in device memory");
    for (number, ino) in files.iter().enumerate() {
        let entry = fs.lookup(Ino::ROOT, name(&format!("file-{number}"))).expect("it is there");
        assert_eq!(entry.attr.ino, *ino);
    }
    assert!(count(&fs, &["inodes_back"]) > 100, "and come back");
    assert_eq!(count(&fs, &["host_damage"]), 0);
}

#[test]
fn what_the_host_returns_is_not_trusted() {
    let fs = make(&cramped());
    let files: Vec<_> = (0..300).map(|number| file(&fs, &format!("file-{number}"))).collect();
    files.iter().for_each(|ino| fs.forget(*ino, 1));
    // An inode of another owner, with another size: whatever the host likes.
    fs.host_memory().scribble(|bytes| bytes.iter_mut().skip(2).for_each(|byte| *byte ^= 0x5A));
    for number in 0..300 {
        let entry = fs.lookup(Ino::ROOT, name(&format!("file-{number}"))).expect("it is there");
        assert_eq!((entry.attr.uid, entry.attr.size), (0, 0), "file-{number}");
        fs.forget(entry.attr.ino, 1);
    }
    assert!(count(&fs, &["host_damage"]) > 100, "the damage is noticed");
}

#[test]
fn slots_are_taken_from_those_who_need_them_less() {
    let fs = make(&cramped());
    let files: Vec<_> = (0..40).map(|number| file(&fs, &format!("file-{number}"))).collect();
    for round in 0..3 {
        files.iter().for_each(|ino| write(&fs, *ino, round * 50, &[round as u8 + 1; 50]));
    }
    for ino in files {
        assert_eq!(read(&fs, ino, 0, 150), [vec![1; 50], vec![2; 50], vec![3; 50]].concat());
    }
    assert!(count(&fs, &["slots_taken_away"]) > 40, "there are fewer slots than files");
    assert!(count(&fs, &["slots_in_use"]) <= count(&fs, &["slots"]));
}

/// Device memory, in bytes, that inodes, names and maps take once so many files of 16 KB were made and
/// closed, a hundred in a directory (figure 8).
fn memory_of_files(files: u64, options: &MountOptions) -> u64 {
    let fs = small::make_with(64 << 20, 512 << 20, options);
    for directory in 0..files / 100 {
        let dir = fs.mkdir(Ino::ROOT, name(&format!("d{directory}")), 0o755, &Cred::ROOT).unwrap().attr.ino;
        for file in 0..100 {
            let name = format!("f{file}");
            let made =
                fs.create(dir, self::name(&name), FileType::Regular, 0o644, 0, &Cred::ROOT).unwrap().attr.ino;
            fs.open(made, OpenFlags { write: true, ..OpenFlags::default() }).unwrap();
            write(&fs, made, 0, &[7; 16 << 10]);
            fs.release(made);
            fs.forget(made, 1);
        }
        fs.forget(dir, 1);
    }
    ["inodes", "inodes_away", "dentries", "filemaps"].iter().map(|kind| count(&fs, &["memory", kind])).sum()
}

#[test]
fn files_that_nobody_uses_take_a_fifth_of_the_device_memory() {
    let with = |inode_cache| memory_of_files(5000, &MountOptions { inode_cache, ..MountOptions::default() });
    let (kept, away) = (with(1 << 20), with(0));
    println!("{away} bytes of device memory in the place of {kept}");
    assert!(away * 5 <= kept, "{away} of {kept}");
}

#[test]
fn what_leaves_device_memory_when_a_file_is_closed_is_what_the_mount_says() {
    let steps = [OnClose::Nothing, OnClose::Maps, OnClose::Entries, OnClose::Inodes];
    let [nothing, maps, entries, inodes] = steps.map(|on_close| {
        memory_of_files(500, &MountOptions { on_close, inode_cache: 1 << 20, ..MountOptions::default() })
    });
    println!("device memory of 500 files: {nothing}, {maps}, {entries}, {inodes} bytes");
    assert!(nothing > maps && maps > entries && entries > inodes, "{nothing} {maps} {entries} {inodes}");
    assert!(inodes * 5 <= nothing, "{inodes} of {nothing}");
}

#[test]
fn a_file_that_has_left_is_there_when_it_is_opened_again() {
    let fs = make(&MountOptions { on_close: OnClose::Inodes, ..MountOptions::default() });
    let opened = OpenFlags { write: true, ..OpenFlags::default() };
    let files: Vec<_> = (0..50).map(|number| file(&fs, &format!("file-{number}"))).collect();
    for round in 0..3 {
        for (number, ino) in files.iter().enumerate() {
            fs.open(*ino, opened).expect("it is there");
            let text = format!("{number} in round {round}");
            write(&fs, *ino, 0, text.as_bytes());
            fs.release(*ino);
            assert_eq!(read(&fs, *ino, 0, text.len()), text.as_bytes());
        }
    }
    assert!(count(&fs, &["inodes_away"]) >= 150 && count(&fs, &["inodes_back"]) >= 100);
    assert!(count(&fs, &["dentries_away"]) > 0, "nobody has looked a name up since the first was closed");
    assert_eq!(count(&fs, &["host_damage"]), 0);
    // One without a name stays until it is closed, and is gone then.
    let free = fs.statfs().expect("it works").inodes_free;
    fs.open(files[7], opened).expect("it is there");
    fs.unlink(Ino::ROOT, name("file-7")).expect("it is there");
    assert!(count(&fs, &["dentries_back"]) > 0);
    assert_eq!(read(&fs, files[7], 0, 1), b"7");
    fs.release(files[7]);
    fs.forget(files[7], 1);
    assert_eq!(fs.statfs().expect("it works").inodes_free, free + 1);
}

#[test]
fn no_more_is_accepted_than_capacitors_save() {
    let with = |capacitance_uf: u64| {
        let mut profile = Profile::named("mssd-pcie3").expect("the profile exists");
        profile.firmware.kind = Firmware::FileSystem;
        profile.firmware.memory_bytes = 4 << 20;
        profile.log.region_bytes = 4 << 20;
        profile.ba_buffer.capacitance_uf = capacitance_uf;
        let options = OpenOptions { free: true, ..OpenOptions::default() };
        Arc::new(Ssd::try_in_memory(&profile, 128 << 20, &options).expect("an SSD in memory"))
    };
    // Half of the memory at the most, whatever there is of energy.
    let fs = made(&with(1_000_000));
    assert_eq!(count(&fs, &["slots"]), 512);
    let weak = with(45);
    let fs = made(&weak);
    let (slots, saved) = (count(&fs, &["slots"]), count(&fs, &["capacitors", "saved_bytes"]));
    assert!(slots < 512 && slots * 4096 <= saved && saved < (slots + 1) * 4096, "{slots} slots of {saved} B");
    // More files are changed at once than there are slots: each is saved or in place.
    let files: Vec<_> = (0..slots + 50).map(|number| file(&fs, &format!("f{number}"))).collect();
    files.iter().for_each(|ino| write(&fs, *ino, 0, b"words"));
    drop(fs);
    weak.power_cut(1);
    let ssd = Arc::new(Arc::into_inner(weak).expect("nobody else has it").restart().expect("powers up"));
    let fs = DevFs::mount(&ssd, &MountOptions::default()).expect("it can be mounted");
    for (number, ino) in files.iter().enumerate() {
        assert_eq!(read(&fs, *ino, 0, 5), b"words", "file {number}");
    }
    let refused = DevFs::format(&with(0), &FormatOptions::default()).expect_err("nothing is saved");
    assert!(refused.to_string().contains("capacitors that save"), "{refused}");
}

fn made(ssd: &Arc<Ssd>) -> DevFs<Ssd> {
    let format = FormatOptions { inodes: Some(12_000), ..FormatOptions::default() };
    DevFs::format(ssd, &format).expect("the SSD can be formatted");
    DevFs::mount(ssd, &MountOptions::default()).expect("it can be mounted")
}
