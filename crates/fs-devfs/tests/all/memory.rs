//! Device memory and host memory that are full (DV-7): commands wait for room to be made, nothing is lost,
//! and what is refused is refused with the error that the documentation names.

use std::sync::Arc;

use amphi_fs_devfs::{DevFs, FormatOptions, MountOptions, OnClose};
use amphi_ssd::Ssd;
use amphi_vfs::{Allocate, Cred, Error, FileSystem, FileType, Ino, OpenFlags, SetAttr};
use amphi_volume::Volume;

use crate::small::{self, count, cramped, make, make_on, name, read, remount, write};

const WRITE: OpenFlags = OpenFlags { write: true, direct: false, truncate: false };

fn file(fs: &DevFs<Ssd>, dir: Ino, text: &str) -> Ino {
    let made = fs.create(dir, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
    let ino = made.expect("it can be created").attr.ino;
    fs.forget(ino, 1);
    ino
}

fn assert_clean(fs: DevFs<Ssd>) {
    let ssd = Arc::clone(fs.device());
    fs.unmount().expect("it is idle");
    let report = <DevFs<Ssd> as Volume<Ssd>>::check(&ssd, &mut |_| ()).expect("the SSD works");
    assert!(report.is_clean(), "the check found {:?}", report.findings);
}

#[test]
fn more_files_than_memory_holds_are_not_opened_and_those_that_are_go_on() {
    let fs = make(&MountOptions { memory: Some(512 << 10), ..MountOptions::default() });
    let files: Vec<_> = (0..2000).map(|number| file(&fs, Ino::ROOT, &format!("f{number}"))).collect();
    let opened = files.iter().take_while(|ino| fs.open(**ino, WRITE).is_ok()).count();
    assert!((100..1000).contains(&opened), "{opened} of 2000 are open");
    assert!(matches!(fs.open(files[opened], WRITE), Err(Error::Busy(_))), "the documented error");
    assert!(count(&fs, &["refused_opens"]) >= 1);
    // What is open works, and so does all that opens nothing.
    for (number, ino) in files[..opened].iter().enumerate() {
        write(&fs, *ino, 0, format!("file {number}").as_bytes());
    }
    assert_eq!(fs.getattr(files[1999]).expect("it is there").size, 0);
    fs.unlink(Ino::ROOT, name("f1999")).expect("it is there");
    file(&fs, Ino::ROOT, "another");
    let (memory, used) = (count(&fs, &["memory", "budget"]), count(&fs, &["memory", "used_max"]));
    assert!(used <= memory, "{used} of {memory} bytes");
    // Each that is closed makes room for one.
    files[..opened].iter().for_each(|ino| fs.release(*ino));
    for (number, ino) in files[..opened].iter().enumerate() {
        assert_eq!(fs.open(*ino, WRITE), Ok(()));
        let text = format!("file {number}");
        assert_eq!(read(&fs, *ino, 0, text.len()), text.as_bytes());
        fs.release(*ino);
    }
    assert_clean(fs);
}

#[test]
fn a_map_that_memory_has_no_room_for_is_read_leaf_by_leaf() {
    let fs = make(&cramped());
    let ino = file(&fs, Ino::ROOT, "file");
    assert_eq!(fs.open(ino, WRITE), Ok(()));
    // No two blocks lie one after the other: a node of the map each.
    for block in 0..2500_u64 {
        write(&fs, ino, 2 * block * 4096, &block.to_le_bytes());
    }
    for block in (0..2500_u64).rev() {
        assert_eq!(read(&fs, ino, 2 * block * 4096, 8), block.to_le_bytes());
    }
    assert!(count(&fs, &["memory", "filemaps"]) < 100 << 10, "one leaf at the most");
    assert!(count(&fs, &["reliefs"]) > 0);
    fs.release(ino);
    assert_clean(fs);
}

#[test]
fn a_directory_whose_names_memory_has_no_room_for_is_searched_in_its_pages() {
    let fs = make_on(64 << 20, &cramped());
    let dir = fs.mkdir(Ino::ROOT, name("dir"), 0o755, &Cred::ROOT).expect("there is room").attr.ino;
    let files: Vec<_> = (0..1200).map(|number| file(&fs, dir, &format!("n{number}"))).collect();
    assert!(count(&fs, &["memory", "dentries"]) < 48 << 10, "not all names are in memory");
    for number in (0..1200).step_by(3) {
        fs.unlink(dir, name(&format!("n{number}"))).expect("it is there");
    }
    for (number, ino) in files.iter().enumerate() {
        let found = fs.lookup(dir, name(&format!("n{number}"))).map(|entry| entry.attr.ino);
        assert_eq!(found, if number % 3 == 0 { Err(Error::NotFound) } else { Ok(*ino) }, "n{number}");
        if found.is_ok() {
            fs.forget(*ino, 1);
        }
    }
    assert_clean(fs);
}

#[test]
fn without_room_in_host_memory_everything_comes_from_flash() {
    let fs = make(&MountOptions { host_memory: 1000, ..cramped() });
    let files: Vec<_> = (0..300).map(|number| file(&fs, Ino::ROOT, &format!("f{number}"))).collect();
    files.iter().enumerate().for_each(|(number, ino)| write(&fs, *ino, 0, &[number as u8; 10]));
    assert!(count(&fs, &["host_full"]) > 100 && count(&fs, &["host_memory_used"]) <= 1000);
    for (number, ino) in files.iter().enumerate() {
        assert_eq!(read(&fs, *ino, 0, 10), [number as u8; 10]);
    }
    assert_eq!(count(&fs, &["host_damage"]), 0);
    let fs = remount(fs, &cramped());
    assert_eq!(read(&fs, files[299], 0, 10), [43; 10]);
}

#[test]
fn what_a_hole_is_already_takes_no_record_to_punch_however_large_it_is() {
    let fs = make(&MountOptions::default());
    let ino = file(&fs, Ino::ROOT, "sparse");
    let size = SetAttr { size: Some(16 << 40), ..SetAttr::default() };
    fs.setattr(ino, &size, &Cred::ROOT).expect("it can be so long");
    write(&fs, ino, 8 << 40, &[7; 5000]);
    fs.allocate(ino, 0, 16 << 40, Allocate::PunchHole, &Cred::ROOT).expect("it can be punched");
    assert_eq!(read(&fs, ino, 8 << 40, 5000), [0; 5000]);
    assert_eq!(fs.getattr(ino).expect("it is there").blocks / 8, 4, "pointer pages alone");
    assert_clean(fs);
}

/// Makes so many files, most of them empty, in directories of a thousand with so much device memory, and
/// looks at them again.
fn many_files(files: u64, memory_bytes: u64, bytes: u64) {
    let ssd = small::ssd(memory_bytes, bytes);
    let format = FormatOptions { inodes: Some(files as u32 + 4096), ..FormatOptions::default() };
    DevFs::format(&ssd, &format).expect("the SSD can be formatted");
    let fs = DevFs::mount(&ssd, &MountOptions::default()).expect("it can be mounted");
    let mut dirs = Vec::new();
    for number in 0..files {
        if number % 1000 == 0 {
            let text = format!("d{}", number / 1000);
            let dir = fs.mkdir(Ino::ROOT, name(&text), 0o755, &Cred::ROOT).expect("there is room").attr.ino;
            fs.forget(dir, 1);
            dirs.push(dir);
        }
        let ino = file(&fs, dirs[number as usize / 1000], &format!("f{number}"));
        fs.open(ino, WRITE).expect("others are closed");
        if number % 16 == 0 {
            write(&fs, ino, 0, &number.to_le_bytes());
        }
        fs.release(ino);
    }
    let used = count(&fs, &["memory", "used_max"]);
    assert!(used <= memory_bytes, "{used} of {memory_bytes} bytes");
    for number in (0..files).step_by(997) {
        let entry =
            fs.lookup(dirs[number as usize / 1000], name(&format!("f{number}"))).expect("it is there");
        let expected = if number % 16 == 0 { number.to_le_bytes().to_vec() } else { Vec::new() };
        assert_eq!(read(&fs, entry.attr.ino, 0, expected.len()), expected);
        fs.forget(entry.attr.ino, 1);
    }
    assert_eq!(count(&fs, &["host_damage"]), 0);
    assert_clean(fs);
}

#[test]
fn many_files_in_little_memory() {
    if std::env::var_os("AMPHI_TEST_LONG").is_some() {
        return many_files(1_000_000, 64 << 20, 4 << 30);
    }
    many_files(15_000, 1 << 20, 256 << 20);
}

/// What bytes are counted for is counted too: as much as there is, and none of what has gone.
#[test]
fn structures_in_memory_are_counted() {
    let on_close = OnClose::Inodes;
    let fs = make(&MountOptions { on_close, ..MountOptions::default() });
    let of = |kind: &str| count(&fs, &["memory", &format!("{kind}_count")]);
    let files: Vec<_> = (0..10)
        .map(|number| {
            let made =
                fs.create(Ino::ROOT, name(&format!("f{number}")), FileType::Regular, 0o644, 0, &Cred::ROOT);
            let ino = made.expect("it can be created").attr.ino;
            assert_eq!(fs.open(ino, WRITE), Ok(()));
            write(&fs, ino, 0, b"content");
            fs.fsync(ino, false).expect("the SSD works");
            ino
        })
        .collect();
    assert_eq!((of("dentries"), of("filemaps")), (10, 10));
    // The root may be in use.
    assert!((10..=11).contains(&of("inodes")), "{} inodes", of("inodes"));
    for ino in &files {
        fs.release(*ino);
        fs.forget(*ino, 1);
    }
    assert!(of("inodes") <= 1 && of("filemaps") == 0, "they have left");
    assert!((10..=12).contains(&of("inodes_away")), "{} away", of("inodes_away"));
    fs.unlink(Ino::ROOT, name("f3")).expect("it is there");
    assert_eq!(of("dentries"), 9);
}
