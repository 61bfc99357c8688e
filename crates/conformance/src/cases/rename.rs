//! Renames in all three modes, over every kind of target, and their errors.

use amphi_vfs::{Cred, Error, Ino, RenameMode, Renamed, Result};

use super::case_list;
use crate::harness::{Fs, name};

case_list!(
    a_rename_moves_a_name,
    a_rename_replaces_a_file,
    a_rename_replaces_an_empty_directory,
    a_rename_refuses_other_targets,
    a_directory_is_not_moved_into_itself,
    a_directory_takes_its_link_along,
    names_of_one_file_are_not_merged,
    no_replace_refuses_an_existing_name,
    exchange_swaps,
    exchange_of_directories_keeps_the_counts,
    a_missing_source_is_not_found,
    a_rename_to_itself_changes_nothing,
    long_and_short_names_change_places,
);

fn rename(fs: &Fs, from: (Ino, &str), to: (Ino, &str)) -> Result<()> {
    fs.rename(from.0, name(from.1), to.0, name(to.1), RenameMode::Replace).map(drop)
}

fn a_rename_moves_a_name(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, b"moved");
    rename(fs, (Ino::ROOT, "f"), (dir, "g")).unwrap();
    assert_eq!((fs.names(Ino::ROOT), fs.names(dir)), (vec!["d".to_owned()], vec!["g".to_owned()]));
    let moved = fs.find(dir, "g").unwrap();
    assert_eq!((moved.ino, moved.nlink), (file, 1));
    assert_eq!(fs.get(file, 0, 10), b"moved");
    rename(fs, (dir, "g"), (dir, "h")).unwrap();
    assert_eq!(fs.names(dir), ["h"]);
}

fn a_rename_replaces_a_file(fs: &Fs) {
    let (old, new) = (fs.file(Ino::ROOT, "old"), fs.file(Ino::ROOT, "new"));
    fs.link(old, Ino::ROOT, name("other")).unwrap();
    rename(fs, (Ino::ROOT, "new"), (Ino::ROOT, "old")).unwrap();
    assert_eq!(fs.names(Ino::ROOT), ["old", "other"]);
    assert_eq!(fs.find(Ino::ROOT, "old").unwrap().ino, new);
    assert_eq!((fs.attr(old).nlink, fs.attr(new).nlink), (1, 1));
    fs.symlink(Ino::ROOT, name("s"), b"x", &Cred::ROOT).unwrap();
    rename(fs, (Ino::ROOT, "s"), (Ino::ROOT, "old")).unwrap();
    assert_eq!(fs.attr(new).nlink, 0);
}

fn a_rename_replaces_an_empty_directory(fs: &Fs) {
    let (one, two) = (fs.dir(Ino::ROOT, "one"), fs.dir(Ino::ROOT, "two"));
    fs.file(one, "inside");
    assert_eq!(rename(fs, (Ino::ROOT, "two"), (Ino::ROOT, "one")), Err(Error::NotEmpty));
    rename(fs, (Ino::ROOT, "one"), (Ino::ROOT, "two")).unwrap();
    assert_eq!(fs.names(Ino::ROOT), ["two"]);
    assert_eq!(fs.find(Ino::ROOT, "two").unwrap().ino, one);
    assert_eq!((fs.attr(Ino::ROOT).nlink, fs.attr(two).nlink), (3, 0));
}

fn a_rename_refuses_other_targets(fs: &Fs) {
    fs.dir(Ino::ROOT, "dir");
    let file = fs.file(Ino::ROOT, "file");
    assert_eq!(rename(fs, (Ino::ROOT, "file"), (Ino::ROOT, "dir")), Err(Error::IsDirectory));
    assert_eq!(rename(fs, (Ino::ROOT, "dir"), (Ino::ROOT, "file")), Err(Error::NotDirectory));
    assert_eq!(rename(fs, (Ino::ROOT, "dir"), (file, "x")), Err(Error::NotDirectory));
    assert_eq!(rename(fs, (file, "x"), (Ino::ROOT, "y")), Err(Error::NotDirectory));
    assert_eq!(fs.names(Ino::ROOT), ["dir", "file"]);
}

fn a_directory_is_not_moved_into_itself(fs: &Fs) {
    let one = fs.dir(Ino::ROOT, "one");
    let two = fs.dir(one, "two");
    let three = fs.dir(two, "three");
    for (dir, text) in [(one, "x"), (two, "x"), (three, "x")] {
        assert_eq!(rename(fs, (Ino::ROOT, "one"), (dir, text)), Err(Error::IntoItself));
    }
    fs.file(two, "file");
    for moved in ["three", "file"] {
        assert_eq!(rename(fs, (two, moved), (Ino::ROOT, "one")), Err(Error::NotEmpty), "onto an ancestor");
    }
    let swap = fs.rename(two, name("three"), Ino::ROOT, name("one"), RenameMode::Exchange);
    assert_eq!(swap, Err(Error::IntoItself), "an exchange with an ancestor");
    assert_eq!((fs.parent(one), fs.parent(two), fs.parent(three)), (Ok(Ino::ROOT), Ok(one), Ok(two)));
}

fn a_directory_takes_its_link_along(fs: &Fs) {
    let (from, to) = (fs.dir(Ino::ROOT, "from"), fs.dir(Ino::ROOT, "to"));
    let moved = fs.dir(from, "moved");
    rename(fs, (from, "moved"), (to, "moved")).unwrap();
    assert_eq!((fs.attr(from).nlink, fs.attr(to).nlink, fs.attr(moved).nlink), (2, 3, 2));
    assert_eq!(fs.parent(moved), Ok(to));
    let dots = fs.list(moved, 10).unwrap();
    assert_eq!((dots[0].2, dots[1].2), (moved, to));
    let empty = fs.dir(Ino::ROOT, "empty");
    rename(fs, (to, "moved"), (Ino::ROOT, "empty")).unwrap();
    assert_eq!((fs.attr(to).nlink, fs.attr(Ino::ROOT).nlink, fs.attr(empty).nlink), (2, 5, 0));
}

fn names_of_one_file_are_not_merged(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "a");
    fs.link(file, Ino::ROOT, name("b")).unwrap();
    rename(fs, (Ino::ROOT, "a"), (Ino::ROOT, "b")).unwrap();
    assert_eq!(fs.names(Ino::ROOT), ["a", "b"]);
    assert_eq!(fs.attr(file).nlink, 2);
}

fn no_replace_refuses_an_existing_name(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.file(Ino::ROOT, "g");
    fs.dir(Ino::ROOT, "d");
    let attempt = |to: &str| fs.rename(Ino::ROOT, name("f"), Ino::ROOT, name(to), RenameMode::NoReplace);
    for taken in ["g", "d", "f"] {
        assert_eq!(attempt(taken), Err(Error::Exists), "onto {taken}");
    }
    assert_eq!(attempt("new"), Ok(Renamed { moved: file, target: None }));
    assert_eq!(fs.names(Ino::ROOT), ["d", "g", "new"]);
    assert_eq!(fs.find(Ino::ROOT, "new").unwrap().ino, file);
}

fn exchange_swaps(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    let (one, two) = (fs.file(Ino::ROOT, "one"), fs.file(dir, "two"));
    let swap = |from: (Ino, &str), to: (Ino, &str)| {
        fs.rename(from.0, name(from.1), to.0, name(to.1), RenameMode::Exchange)
    };
    swap((Ino::ROOT, "one"), (dir, "two")).unwrap();
    assert_eq!(fs.find(Ino::ROOT, "one").unwrap().ino, two);
    assert_eq!(fs.find(dir, "two").unwrap().ino, one);
    assert_eq!(swap((Ino::ROOT, "one"), (dir, "none")), Err(Error::NotFound));
    assert_eq!(swap((Ino::ROOT, "none"), (dir, "two")), Err(Error::NotFound));
    swap((Ino::ROOT, "one"), (Ino::ROOT, "one")).unwrap();
    assert_eq!(fs.find(Ino::ROOT, "one").unwrap().ino, two);
}

fn exchange_of_directories_keeps_the_counts(fs: &Fs) {
    let (left, right) = (fs.dir(Ino::ROOT, "left"), fs.dir(Ino::ROOT, "right"));
    let sub = fs.dir(left, "sub");
    fs.file(sub, "inside");
    let file = fs.file(right, "file");
    fs.rename(left, name("sub"), right, name("file"), RenameMode::Exchange).unwrap();
    assert_eq!((fs.attr(left).nlink, fs.attr(right).nlink), (2, 3));
    assert_eq!((fs.find(left, "sub").unwrap().ino, fs.find(right, "file").unwrap().ino), (file, sub));
    assert_eq!((fs.parent(sub), fs.names(sub)), (Ok(right), vec!["inside".to_owned()]));
    let other = fs.dir(left, "other");
    fs.rename(left, name("other"), right, name("file"), RenameMode::Exchange).unwrap();
    assert_eq!((fs.parent(other), fs.parent(sub)), (Ok(right), Ok(left)));
    assert_eq!((fs.attr(left).nlink, fs.attr(right).nlink), (3, 3));
}

fn a_missing_source_is_not_found(fs: &Fs) {
    fs.file(Ino::ROOT, "f");
    for mode in [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange] {
        let moved = fs.rename(Ino::ROOT, name("none"), Ino::ROOT, name("f"), mode);
        assert_eq!(moved, Err(Error::NotFound), "{mode:?}");
    }
    assert_eq!(fs.names(Ino::ROOT), ["f"]);
}

fn a_rename_to_itself_changes_nothing(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    let dir = fs.dir(Ino::ROOT, "d");
    fs.file(dir, "inside");
    rename(fs, (Ino::ROOT, "f"), (Ino::ROOT, "f")).unwrap();
    rename(fs, (Ino::ROOT, "d"), (Ino::ROOT, "d")).unwrap();
    assert_eq!((fs.names(Ino::ROOT), fs.attr(file).nlink), (vec!["d".to_owned(), "f".to_owned()], 1));
    assert_eq!((fs.names(dir), fs.attr(Ino::ROOT).nlink), (vec!["inside".to_owned()], 3));
}

fn long_and_short_names_change_places(fs: &Fs) {
    let long = "L".repeat(255);
    let file = fs.file(Ino::ROOT, "s");
    for number in 0..40 {
        fs.file(Ino::ROOT, &format!("neighbour-{number}"));
    }
    for _ in 0..20 {
        rename(fs, (Ino::ROOT, "s"), (Ino::ROOT, &long)).unwrap();
        assert_eq!(fs.find(Ino::ROOT, &long).unwrap().ino, file);
        assert_eq!(fs.find(Ino::ROOT, "s"), Err(Error::NotFound));
        rename(fs, (Ino::ROOT, &long), (Ino::ROOT, "s")).unwrap();
    }
    assert_eq!(fs.names(Ino::ROOT).len(), 41);
}
