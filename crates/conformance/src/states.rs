//! Promises that hold in states which a case cannot bring about by itself: mounted read-only, and full.

use amphi_vfs::acl::DEFAULT;
use amphi_vfs::{
    Cred, Error, FileSystem, FileType, Ino, OpenFlags, RenameMode, Result, SetAttr, WriteMode, XattrMode,
};

use crate::cases::acls::list;
use crate::harness::{Fs, USER, name};

/// An operation on a name.
type Named<'a> = &'a dyn Fn(&str) -> Result<()>;
/// An operation, with a number of its own.
type Operation = fn(&Fs, usize) -> Result<()>;

/// Checks what is answered on a read-only mount: the tree is there, and what would change it is refused as
/// Linux refuses it, a name that exists before the mount's being read-only. `mount_read_only` is handed the
/// only reference to a file system fresh from `make`.
///
/// # Panics
/// Where a promise is broken.
pub fn check_read_only<F: FileSystem + 'static>(
    make: impl FnOnce() -> F,
    mount_read_only: impl FnOnce(F) -> F,
) {
    let fs = make();
    let root = &Cred::ROOT;
    let dir = fs.mkdir(Ino::ROOT, name("dir"), 0o755, root).expect("a directory is made").attr.ino;
    let made = fs.create(Ino::ROOT, name("file"), FileType::Regular, 0o644, 0, root);
    let file = made.expect("a file is made").attr.ino;
    fs.write(file, 0, b"contents", WriteMode::default(), root).expect("it is written");
    for ino in [dir, file] {
        fs.forget(ino, 1);
    }
    let fs = Fs::new(std::sync::Arc::new(mount_read_only(fs)));
    let (before, file) = (fs.find(Ino::ROOT, "file").unwrap(), fs.find(Ino::ROOT, "file").unwrap().ino);
    assert_eq!(fs.get(file, 0, 100), b"contents");
    assert_eq!(fs.names(Ino::ROOT), ["dir", "file"]);

    let make = |text: &str| fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, root).map(drop);
    let mkdir = |text: &str| fs.mkdir(Ino::ROOT, name(text), 0o755, root).map(drop);
    let symlink = |text: &str| fs.symlink(Ino::ROOT, name(text), b"to", root).map(drop);
    let link = |text: &str| fs.link(file, Ino::ROOT, name(text)).map(drop);
    let moved = |text: &str| {
        fs.rename(Ino::ROOT, name("file"), Ino::ROOT, name(text), RenameMode::NoReplace).map(drop)
    };
    let named: [(&str, Named<'_>); 5] =
        [("create", &make), ("mkdir", &mkdir), ("symlink", &symlink), ("link", &link), ("rename", &moved)];
    for (what, operation) in named {
        assert_eq!(operation("dir"), Err(Error::Exists), "{what} of a name that exists");
        assert_eq!(operation("new"), Err(Error::ReadOnly), "{what} of a new name");
    }
    let change = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let cut = OpenFlags { truncate: true, ..OpenFlags::default() };
    for (what, outcome) in [
        ("unlink", fs.unlink(Ino::ROOT, name("file")).map(drop)),
        ("rmdir", fs.rmdir(Ino::ROOT, name("dir")).map(drop)),
        ("setattr", fs.setattr(file, &change, root).map(drop)),
        ("write", fs.write(file, 0, b"x", WriteMode::default(), root).map(drop)),
        ("open to write", fs.open(file, OpenFlags { write: true, ..OpenFlags::default() })),
        ("open to cut", fs.open(file, cut)),
    ] {
        assert_eq!(outcome, Err(Error::ReadOnly), "{what}");
    }
    for (what, outcome) in [
        ("tmpfile", fs.tmpfile(Ino::ROOT, 0o600, root).map(drop)),
        ("setxattr", fs.setxattr(file, b"user.a", b"x", XattrMode::Set)),
    ] {
        assert!(matches!(outcome, Err(Error::ReadOnly | Error::Unsupported(_))), "{what}: {outcome:?}");
    }
    assert_eq!(fs.find(Ino::ROOT, "file").unwrap(), before);
    assert_eq!(fs.names(Ino::ROOT), ["dir", "file"]);
}

/// Bytes of the files that are removed to have a little space.
const SPARE_BYTES: usize = 4096;
/// How many of them.
const SPARES: usize = 16;
/// A name as long as can be, so that few of them fill a block of a directory.
const LONG: usize = 255;

/// Checks that operations on names and attributes find the space which writes to come hold and will not take.
/// `make` gives a small file system, of some megabytes.
///
/// # Panics
/// Where an operation is refused although there is space.
pub fn check_room_for_names<F: FileSystem + 'static>(make: impl Fn() -> F) {
    let operations: [(&str, Operation); 6] = [
        ("create", |fs, number| {
            fs.create(dir(fs), name(&long(number)), FileType::Regular, 0o644, 0, &Cred::ROOT).map(drop)
        }),
        ("mkdir", |fs, number| fs.mkdir(dir(fs), name(&long(number)), 0o755, &Cred::ROOT).map(drop)),
        ("link", |fs, number| fs.link(source(fs), dir(fs), name(&long(number))).map(drop)),
        ("rename", |fs, number| {
            let text = format!("s{number}");
            fs.rename(Ino::ROOT, name(&text), dir(fs), name(&long(number)), RenameMode::Replace).map(drop)
        }),
        ("setxattr", |fs, _| fs.setxattr(source(fs), b"user.a", &[7; 3000], XattrMode::Set)),
        ("tmpfile", |fs, _| fs.tmpfile(dir(fs), 0o644, &Cred::ROOT).map(drop)),
    ];
    let mut refused = Vec::new();
    for (what, operation) in operations {
        let fs = Fs::new(std::sync::Arc::new(make()));
        prepare(&fs);
        // Until the directory's next entry needs a block: as many as the last one took.
        let blocks = |fs: &Fs| fs.attr(dir(fs)).blocks;
        let mut links = 1000..;
        let mut link = || {
            let text = long(links.next().expect("there are more numbers"));
            fs.link(source(&fs), dir(&fs), name(&text)).expect("there is space");
        };
        let mut grow = || {
            let before = blocks(&fs);
            let full = |count: &usize| {
                link();
                *count == 64 || blocks(&fs) != before
            };
            (1..).find(full).expect("64 at the most")
        };
        grow();
        let each = grow();
        (1..each).for_each(|_| link());
        fill(&fs);
        hold_what_is_left(&fs);
        match operation(&fs, 1) {
            Ok(()) | Err(Error::Unsupported(_)) => {}
            Err(error) => refused.push(format!("{what}: {error}")),
        }
    }
    assert!(refused.is_empty(), "there is space, which only writes to come hold; {}", refused.join("; "));
}

fn dir(fs: &Fs) -> Ino {
    fs.find(Ino::ROOT, "dir").expect("it was made").ino
}

/// What fills each page of the file that [`check_unreadable_ahead`] reads.
const PAGES: [u8; 3] = [0x51, 0x52, 0x53];

/// Checks that a page which is read ahead spoils no read if the device cannot read it, and is an error for
/// who asks for it. `spoil_and_mount` has the device fail where the given bytes are, with nothing in memory.
///
/// # Panics
/// Where a promise is broken.
pub fn check_unreadable_ahead<F: FileSystem + 'static>(fs: F, spoil_and_mount: impl FnOnce(F, &[u8]) -> F) {
    let made = fs.create(Ino::ROOT, name("file"), FileType::Regular, 0o644, 0, &Cred::ROOT);
    let file = made.expect("a file is made").attr.ino;
    let bytes = PAGES.map(|byte| [byte; 4096]);
    let written = fs.write(file, 0, bytes.as_flattened(), WriteMode::default(), &Cred::ROOT);
    written.expect("it is written");
    fs.sync().expect("an idle file system is written back");
    fs.forget(file, 1);
    let fs = Fs::new(std::sync::Arc::new(spoil_and_mount(fs, &bytes[2])));
    let file = fs.find(Ino::ROOT, "file").expect("it was made").ino;
    for (page, bytes) in bytes[..2].iter().enumerate() {
        assert!(fs.get(file, page as u64 * 4096, 4096) == bytes, "page {page} can be read");
    }
    for (offset, len) in [(8192, 4096), (0, 12288)] {
        let read = fs.read(file, offset, &mut vec![0; len], false);
        assert!(matches!(read, Err(Error::Io(_))), "{len} bytes at {offset}: {read:?}");
    }
}

fn source(fs: &Fs) -> Ino {
    fs.find(Ino::ROOT, "s0").expect("it was made").ino
}

fn long(number: usize) -> String {
    format!("{number:0>LONG$}")
}

fn drop_file(fs: &Fs, text: &str) {
    let ino = fs.find(Ino::ROOT, text).expect("it was made").ino;
    fs.unlink(Ino::ROOT, name(text)).expect("it can be removed");
    fs.forget(ino, 1);
}

/// Files to link and to move, files to remove, and a directory whose files begin with an attribute.
fn prepare(fs: &Fs) {
    for number in 0..SPARES {
        fs.file(Ino::ROOT, &format!("s{number}"));
        let spare = fs.file(Ino::ROOT, &format!("spare{number}"));
        fs.put(spare, 0, &[7; SPARE_BYTES]);
    }
    fs.file(Ino::ROOT, "held");
    let dir = fs.dir(Ino::ROOT, "dir");
    match fs.setxattr(dir, DEFAULT, &list(7, (USER.uid, 6), 4, 6, 0), XattrMode::Set) {
        Ok(()) | Err(Error::Unsupported(_)) => {}
        Err(error) => panic!("a default list: {error}"),
    }
    fs.sync().expect("an idle file system is written back");
}

/// Fills the file system to the last block.
fn fill(fs: &Fs) {
    let filler = fs.file(Ino::ROOT, "filler");
    let mut end = 0;
    for bytes in [1 << 20, 1 << 16, 1 << 12] {
        let data = vec![7; bytes];
        while let Ok(written) = fs.write(filler, end, &data, WriteMode::default(), &Cred::ROOT) {
            end += written as u64;
        }
    }
    fs.sync().expect("space was reserved");
}

/// Frees a little space and has writes to come hold all of it.
fn hold_what_is_left(fs: &Fs) {
    let held = fs.find(Ino::ROOT, "held").expect("it was made").ino;
    for number in 0..SPARES {
        drop_file(fs, &format!("spare{number}"));
    }
    fs.sync().expect("an idle file system is written back");
    let mut at = 0;
    while fs.statfs().expect("it can be asked").blocks_available > 0 && at < 2 * SPARES as u64 {
        if fs.write(held, at << 20, b"x", WriteMode::default(), &Cred::ROOT).is_err() {
            break;
        }
        at += 1;
    }
}
