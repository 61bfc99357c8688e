//! References: what keeps an inode alive, and when it goes.

use amphi_vfs::{Error, Ino, OpenFlags, RenameMode};

use super::case_list;
use crate::harness::{Fs, name};

case_list!(
    a_lookup_keeps_a_file_without_names,
    an_open_keeps_a_file_without_names,
    both_kinds_of_references_count,
    every_entry_returned_is_a_reference,
    a_replaced_file_lives_on_while_referenced,
    forgetting_a_named_file_keeps_it,
    excess_forgets_do_no_harm,
    data_of_a_file_without_names_can_change,
    an_inode_is_found_by_its_number,
);

fn a_lookup_keeps_a_file_without_names(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, b"still here");
    fs.unlink(Ino::ROOT, name("f")).unwrap();
    assert_eq!((fs.attr(file).nlink, fs.get(file, 0, 20)), (0, b"still here".to_vec()));
    fs.forget(file, 1);
    assert!(fs.is_gone(file));
}

fn an_open_keeps_a_file_without_names(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, b"still here");
    fs.open(file, OpenFlags::default()).unwrap();
    fs.open(file, OpenFlags { write: true, ..OpenFlags::default() }).unwrap();
    fs.unlink(Ino::ROOT, name("f")).unwrap();
    fs.forget(file, 1);
    assert_eq!(fs.get(file, 0, 20), b"still here");
    fs.release(file);
    assert_eq!(fs.get(file, 0, 20), b"still here");
    fs.release(file);
    assert!(fs.is_gone(file));
}

fn both_kinds_of_references_count(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.open(file, OpenFlags::default()).unwrap();
    fs.unlink(Ino::ROOT, name("f")).unwrap();
    fs.release(file);
    assert_eq!(fs.attr(file).nlink, 0, "the lookup still counts");
    fs.forget(file, 1);
    assert!(fs.is_gone(file));
}

fn every_entry_returned_is_a_reference(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    for _ in 0..3 {
        fs.lookup(Ino::ROOT, name("f")).unwrap();
    }
    fs.link(file, Ino::ROOT, name("g")).unwrap();
    fs.unlink(Ino::ROOT, name("f")).unwrap();
    fs.unlink(Ino::ROOT, name("g")).unwrap();
    fs.forget(file, 4);
    assert_eq!(fs.attr(file).nlink, 0, "one of five references is left");
    fs.forget(file, 1);
    assert!(fs.is_gone(file));
}

fn a_replaced_file_lives_on_while_referenced(fs: &Fs) {
    let old = fs.file(Ino::ROOT, "old");
    let new = fs.file(Ino::ROOT, "new");
    fs.put(old, 0, b"old");
    fs.put(new, 0, b"new");
    fs.rename(Ino::ROOT, name("new"), Ino::ROOT, name("old"), RenameMode::Replace).unwrap();
    assert_eq!(fs.find(Ino::ROOT, "old").unwrap().ino, new);
    assert_eq!((fs.attr(old).nlink, fs.get(old, 0, 10)), (0, b"old".to_vec()));
    assert_eq!(fs.get(new, 0, 10), b"new");
    fs.forget(old, 1);
    assert!(fs.is_gone(old));
}

fn forgetting_a_named_file_keeps_it(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, b"kept");
    fs.forget(file, 1);
    let again = fs.find(Ino::ROOT, "f").unwrap();
    assert_eq!((again.ino, again.size), (file, 4));
    let again = fs.lookup(Ino::ROOT, name("f")).unwrap().attr.ino;
    assert_eq!(fs.get(again, 0, 10), b"kept");
}

fn excess_forgets_do_no_harm(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.forget(file, 1_000_000);
    fs.release(file);
    fs.forget(Ino(0xFFFF_FF00), 5);
    fs.release(Ino(0xFFFF_FF00));
    assert_eq!(fs.find(Ino::ROOT, "f").unwrap().ino, file);
    let other = fs.file(Ino::ROOT, "g");
    assert_ne!(file, other, "an inode in use is not given away");
    fs.unlink(Ino::ROOT, name("f")).unwrap();
    assert!(fs.is_gone(file));
    assert_eq!(fs.find(Ino::ROOT, "f"), Err(Error::NotFound));
}

fn data_of_a_file_without_names_can_change(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.unlink(Ino::ROOT, name("f")).unwrap();
    fs.put(file, 100_000, b"written after");
    fs.resize(file, 100_004);
    assert_eq!(fs.get(file, 99_999, 20), b"\0writ");
    fs.fsync(file, false).unwrap();
    fs.sync().unwrap();
    assert_eq!(fs.get(file, 99_999, 20), b"\0writ");
    let other = fs.file(Ino::ROOT, "other");
    fs.put(other, 0, &[1; 10_000]);
    assert_ne!(other, file);
    assert_eq!(fs.get(file, 99_999, 20), b"\0writ", "its space is its own");
}

fn an_inode_is_found_by_its_number(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    let found = match fs.reference(file) {
        Err(Error::Unsupported(_)) => return,
        found => found.unwrap().attr,
    };
    assert_eq!(found, fs.attr(file));
    fs.forget(file, 2);
    assert_eq!(fs.reference(file).unwrap().attr.generation, found.generation);
    fs.unlink(Ino::ROOT, name("f")).unwrap();
    assert!(matches!(fs.reference(file), Err(Error::Stale(_))), "a file without names");
    assert_eq!(fs.attr(file).nlink, 0, "the reference taken before keeps it");
    fs.open(file, OpenFlags::default()).unwrap();
    assert_eq!(fs.reference(file).unwrap().attr.nlink, 0, "without names, but open");
    fs.forget(file, 1);
    fs.release(file);
    fs.forget(file, 1);
    assert!(matches!(fs.reference(file), Err(Error::Stale(_) | Error::NotFound)));
    let again = fs.file(Ino::ROOT, "f");
    let same_number = again == file;
    assert!(
        !same_number || fs.attr(again).generation != found.generation,
        "a handle of the old file must not open the new one"
    );
    assert_eq!(fs.reference(Ino::ROOT).unwrap().attr.ino, Ino::ROOT);
}
