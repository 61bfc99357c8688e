//! Attributes: what new files get, what `setattr` changes, what clears set-id bits, and which times move.

use amphi_vfs::{AccessTimes, Cred, Error, FileType, Ino, SetAttr, SetTime, TimeSpec, WriteMode};

use super::case_list;
use crate::harness::{Fs, USER, name};

case_list!(
    new_files_belong_to_the_caller,
    all_node_types_are_made,
    create_refuses_directories_and_symlinks,
    a_set_group_id_directory_passes_on_its_group,
    setattr_changes_what_is_given_and_nothing_else,
    times_are_kept_to_the_nanosecond,
    changes_move_the_right_times,
    a_change_of_owner_clears_set_id,
    writes_and_truncates_clear_set_id_for_users,
    reading_moves_the_access_time_after_a_change,
    a_size_is_for_regular_files,
    statfs_counts_files_and_blocks,
    attributes_of_the_root,
);

/// A time no clock of ours shows: 1 s after 1970.
const OLD: TimeSpec = TimeSpec { ns: 1_000_000_001 };

fn set_old_times(fs: &Fs, ino: Ino) {
    let old = Some(SetTime::At(OLD));
    fs.change(ino, &SetAttr { atime: old, mtime: old, ctime: Some(OLD), ..SetAttr::default() });
    let attr = fs.attr(ino);
    assert_eq!((attr.atime, attr.mtime, attr.ctime), (OLD, OLD, OLD), "times given are times kept");
}

fn new_files_belong_to_the_caller(fs: &Fs) {
    let made = fs.create(Ino::ROOT, name("f"), FileType::Regular, 0o6751, 0, &USER).unwrap().attr;
    assert_eq!((made.uid, made.gid, made.mode), (USER.uid, USER.gid, 0o6751));
    assert_eq!((made.nlink, made.size, made.file_type), (1, 0, FileType::Regular));
    assert_eq!(fs.attr(made.ino), made, "getattr agrees with the answer of create");
    let made = fs.mkdir(Ino::ROOT, name("d"), 0o1770, &USER).unwrap().attr;
    assert_eq!((made.uid, made.gid, made.mode, made.nlink), (USER.uid, USER.gid, 0o1770, 2));
    let made = fs.symlink(Ino::ROOT, name("s"), b"target", &USER).unwrap().attr;
    assert_eq!((made.uid, made.gid, made.size), (USER.uid, USER.gid, 6));
    assert_eq!((made.file_type, made.mode), (FileType::Symlink, 0o777));
}

fn all_node_types_are_made(fs: &Fs) {
    let nodes = [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("char", FileType::CharDevice, 0x0102_0304),
        ("block", FileType::BlockDevice, 0x0000_0801),
    ];
    for (text, file_type, rdev) in nodes {
        let made = fs.create(Ino::ROOT, name(text), file_type, 0o600, rdev, &Cred::ROOT).unwrap().attr;
        assert_eq!((made.file_type, made.rdev), (file_type, rdev), "{text}");
        let found = fs.find(Ino::ROOT, text).unwrap();
        assert_eq!((found.file_type, found.rdev, found.ino), (file_type, rdev, made.ino), "{text}");
        assert!(matches!(fs.read(made.ino, 0, &mut [0], false), Err(Error::Invalid(_))), "read of a {text}");
    }
}

fn create_refuses_directories_and_symlinks(fs: &Fs) {
    for file_type in [FileType::Directory, FileType::Symlink] {
        let made = fs.create(Ino::ROOT, name("x"), file_type, 0o755, 0, &Cred::ROOT);
        assert!(matches!(made, Err(Error::Invalid(_))), "{file_type:?}: {made:?}");
    }
    assert_eq!(fs.find(Ino::ROOT, "x"), Err(Error::NotFound));
}

fn a_set_group_id_directory_passes_on_its_group(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    fs.change(dir, &SetAttr { gid: Some(77), mode: Some(0o2775), ..SetAttr::default() });
    let file = fs.create(dir, name("f"), FileType::Regular, 0o644, 0, &USER).unwrap().attr;
    assert_eq!((file.uid, file.gid, file.mode), (USER.uid, 77, 0o644));
    let inner = fs.mkdir(dir, name("inner"), 0o755, &USER).unwrap().attr;
    assert_eq!((inner.uid, inner.gid, inner.mode), (USER.uid, 77, 0o2755));
    let link = fs.symlink(dir, name("l"), b"f", &USER).unwrap().attr;
    assert_eq!((link.uid, link.gid), (USER.uid, 77));
}

fn setattr_changes_what_is_given_and_nothing_else(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, b"contents");
    let before = fs.attr(file);
    let after = fs.change(file, &SetAttr { mode: Some(0o4711), ..SetAttr::default() });
    assert_eq!(after.mode, 0o4711);
    assert_eq!((after.uid, after.gid, after.size, after.nlink), (before.uid, before.gid, 8, 1));
    assert_eq!(after.mtime, before.mtime, "a new mode leaves the contents' time alone");
    let after = fs.change(file, &SetAttr { uid: Some(5), gid: Some(6), size: Some(3), ..SetAttr::default() });
    assert_eq!((after.uid, after.gid, after.size), (5, 6, 3));
    assert_eq!(fs.attr(file), after);
    assert_eq!(fs.get(file, 0, 100), b"con");
}

fn times_are_kept_to_the_nanosecond(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    for ns in [0, 1, 999_999_999, 1_234_567_890_123_456_789, 4_294_967_296_000_000_001] {
        let (atime, mtime) = (TimeSpec { ns }, TimeSpec { ns: ns + 5 });
        let at = |time| Some(SetTime::At(time));
        fs.change(file, &SetAttr { atime: at(atime), mtime: at(mtime), ..SetAttr::default() });
        let attr = fs.attr(file);
        assert_eq!((attr.atime, attr.mtime), (atime, mtime));
    }
    fs.change(file, &SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() });
    let attr = fs.attr(file);
    assert!(attr.mtime.ns > 1_500_000_000_000_000_000 && attr.mtime == attr.ctime, "{attr:?}");
}

fn changes_move_the_right_times(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    let file = fs.file(dir, "f");
    let moved = |ino| {
        let attr = fs.attr(ino);
        set_old_times(fs, ino);
        (attr.mtime != OLD, attr.ctime != OLD)
    };
    moved(dir);
    moved(file);
    fs.put(file, 0, b"x");
    assert_eq!(moved(file), (true, true), "a write changes contents and attributes");
    fs.resize(file, 1000);
    assert_eq!(moved(file), (true, true), "a truncate changes contents and attributes");
    fs.change(file, &SetAttr { mode: Some(0o600), ..SetAttr::default() });
    assert_eq!(moved(file), (false, true), "a chmod changes attributes only");
    assert_eq!(moved(dir), (false, false), "none of this changes the directory");
    fs.link(file, dir, name("g")).unwrap();
    assert_eq!(moved(file), (false, true), "a link changes the file's attributes");
    assert_eq!(moved(dir), (true, true), "a link changes the directory");
    fs.rename(dir, name("g"), Ino::ROOT, name("h"), amphi_vfs::RenameMode::Replace).unwrap();
    assert_eq!(moved(dir), (true, true), "a rename changes the directory it leaves");
    assert_eq!(moved(file), (false, true), "a rename changes the file's attributes");
    fs.unlink(Ino::ROOT, name("h")).unwrap();
    assert_eq!(moved(file), (false, true), "an unlink changes the file's attributes");
    assert_eq!(moved(dir), (false, false), "the unlink was elsewhere");
    fs.unlink(dir, name("f")).unwrap();
    assert_eq!(moved(dir), (true, true), "an unlink changes the directory");
    fs.get(file, 0, 1);
    let attr = fs.attr(file);
    assert_eq!(
        (attr.mtime, attr.ctime.ns > OLD.ns),
        (OLD, true),
        "a read changes neither contents nor mtime"
    );
}

fn a_change_of_owner_clears_set_id(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.change(file, &SetAttr { mode: Some(0o6755), ..SetAttr::default() });
    assert_eq!(fs.change(file, &SetAttr { uid: Some(9), ..SetAttr::default() }).mode, 0o755);
    fs.change(file, &SetAttr { mode: Some(0o2644), ..SetAttr::default() });
    let locking = fs.change(file, &SetAttr { gid: Some(9), ..SetAttr::default() }).mode;
    assert_eq!(locking, 0o2644, "set-group-id without group execution is not a set-id bit");
    let dir = fs.dir(Ino::ROOT, "d");
    fs.change(dir, &SetAttr { mode: Some(0o2775), ..SetAttr::default() });
    assert_eq!(fs.change(dir, &SetAttr { gid: Some(9), ..SetAttr::default() }).mode, 0o2775, "a directory");
    let both = SetAttr { uid: Some(1), mode: Some(0o4755), ..SetAttr::default() };
    assert_eq!(fs.change(file, &both).mode, 0o4755, "a mode given with the owner is the mode");
}

fn writes_and_truncates_clear_set_id_for_users(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    let set = SetAttr { mode: Some(0o6755), ..SetAttr::default() };
    fs.change(file, &set);
    fs.put(file, 0, b"root may");
    assert_eq!(fs.attr(file).mode, 0o6755);
    fs.write(file, 0, b"user", WriteMode::default(), &USER).unwrap();
    assert_eq!(fs.attr(file).mode, 0o755, "a write by a user");
    fs.change(file, &set);
    fs.resize(file, 2);
    assert_eq!(fs.attr(file).mode, 0o6755, "a truncate by root");
    let cut = SetAttr { size: Some(1), ..SetAttr::default() };
    assert_eq!(fs.setattr(file, &cut, &USER).unwrap().mode, 0o755, "a truncate by a user");
}

fn reading_moves_the_access_time_after_a_change(fs: &Fs) {
    if fs.access_times() != AccessTimes::Relative {
        return;
    }
    let dir = fs.dir(Ino::ROOT, "d");
    let file = fs.file(dir, "f");
    let link = fs.symlink(dir, name("l"), b"f", &Cred::ROOT).unwrap().attr.ino;
    fs.put(file, 0, b"contents");
    let read = |ino| {
        if ino == file {
            fs.get(file, 0, 3);
        } else if ino == dir {
            fs.names(dir);
        } else {
            fs.readlink(link).unwrap();
        }
        fs.attr(ino)
    };
    let (recent, older) = (TimeSpec { ns: OLD.ns + 5 }, TimeSpec { ns: OLD.ns - 5 });
    let now = TimeSpec { ns: amphi_rt::time::wall_ns() + 1_000_000_000 };
    let set = |ino, atime, changed| {
        let at = |time| Some(SetTime::At(time));
        let change =
            SetAttr { atime: at(atime), mtime: at(changed), ctime: Some(changed), ..SetAttr::default() };
        fs.change(ino, &change);
    };
    for ino in [file, dir, link] {
        set(ino, older, OLD);
        let attr = read(ino);
        assert!(attr.atime > OLD, "inode {}: read after a change, {attr:?}", ino.0);
        assert_eq!((attr.mtime, attr.ctime), (OLD, OLD), "inode {}: reading moves nothing else", ino.0);
        // Later than any change, and less than a day ago.
        set(ino, now, OLD);
        assert_eq!(read(ino).atime, now, "inode {}: it has been read since", ino.0);
        set(ino, recent, OLD);
        assert!(read(ino).atime > recent, "inode {}: that was more than a day ago", ino.0);
    }
    set(file, older, OLD);
    fs.find(dir, "f").unwrap();
    assert_eq!(fs.attr(file).atime, older, "looking is not reading");
}

fn a_size_is_for_regular_files(fs: &Fs) {
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    let dir = fs.dir(Ino::ROOT, "d");
    let refused = fs.setattr(dir, &cut, &Cred::ROOT);
    assert!(matches!(refused, Err(Error::IsDirectory | Error::Invalid(_))), "{refused:?}");
    let link = fs.symlink(Ino::ROOT, name("l"), b"d", &Cred::ROOT).unwrap().attr.ino;
    let refused = fs.setattr(link, &cut, &Cred::ROOT);
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    assert_eq!(fs.readlink(link).unwrap(), b"d");
}

fn statfs_counts_files_and_blocks(fs: &Fs) {
    let empty = fs.statfs().unwrap();
    assert!(empty.block_bytes > 0 && empty.blocks > 0 && empty.blocks >= empty.blocks_free, "{empty:?}");
    assert!(empty.blocks_free >= empty.blocks_available && empty.inodes > empty.inodes_free, "{empty:?}");
    assert_eq!(empty.name_bytes_max, 255);
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, &vec![7; 1 << 20]);
    fs.fsync(file, false).unwrap();
    let full = fs.statfs().unwrap();
    let used = (empty.blocks_free - full.blocks_free) * u64::from(full.block_bytes);
    assert!((1 << 20..2 << 20).contains(&used), "1 MiB of data took {used} bytes");
    assert_eq!(full.inodes_free, empty.inodes_free - 1);
    fs.unlink(Ino::ROOT, name("f")).unwrap();
    fs.forget(file, 1);
    fs.sync().unwrap();
    let again = fs.statfs().unwrap();
    assert_eq!(again.inodes_free, empty.inodes_free, "the inode came back");
    let kept = (empty.blocks_free - again.blocks_free) * u64::from(again.block_bytes);
    assert!(kept <= 64 << 10, "{kept} bytes did not come back after the file was removed");
}

fn attributes_of_the_root(fs: &Fs) {
    let root = fs.attr(Ino::ROOT);
    assert_eq!((root.ino, root.file_type, root.nlink), (Ino::ROOT, FileType::Directory, 2));
    assert_eq!(fs.parent(Ino::ROOT), Ok(Ino::ROOT));
    fs.forget(Ino::ROOT, 1_000);
    assert_eq!(fs.attr(Ino::ROOT).nlink, 2, "the root needs no references");
}
