//! Each command over the model: what it answers, and what it refuses.

use std::sync::Arc;

use amphi_model::Model;
use amphi_queue::format::{Change, Space, Span, Submission, change, code, flag, kind, op};
use amphi_vfs::{Cred, FileSystem, Ino};
use zerocopy::{FromBytes, IntoBytes};

use crate::rig::{Ask, Noted, PAYLOAD, Rig};

#[test]
fn a_file_is_made_written_read_cut_and_closed() {
    let noted = Noted::default();
    let mut rig = Rig::new(&noted, Cred::ROOT);
    let handle = rig.create(b"f");
    let written = rig.done(Ask { operation: op::WRITE, handle, offset: 3, data: b"bytes", ..Ask::default() });
    assert_eq!(written.value.get(), 5);
    let append = Ask { operation: op::WRITE, flags: flag::APPEND, handle, data: b"!", ..Ask::default() };
    assert_eq!(rig.done(append).other.get(), 9, "an append says where the file ends now");
    let read = rig.done(Ask { operation: op::READ, handle, offset: 2, room: 100, ..Ask::default() });
    assert_eq!((read.value.get(), rig.data(7)), (7, b"\0bytes!".to_vec()));
    rig.done(Ask { operation: op::SYNC_FILE, flags: flag::DATA_ONLY, handle, ..Ask::default() });
    let cut = Change { which: change::SIZE.into(), size: 4.into(), ..Change::default() };
    let cut = Ask { operation: op::SET_ATTRIBUTES, handle, data: cut.as_bytes(), ..Ask::default() };
    assert_eq!(rig.done(cut).attributes.size.get(), 4);
    let attributes = rig.done(Ask { operation: op::ATTRIBUTES, handle, ..Ask::default() }).attributes;
    assert_eq!(
        (attributes.kind.get(), attributes.mode.get(), attributes.size.get()),
        (kind::REGULAR, 0o644, 4)
    );
    let hole = Ask { operation: op::SEEK, flags: flag::HOLE, handle, offset: 0, ..Ask::default() };
    assert!(rig.done(hole).value.get() <= 4);
    rig.done(Ask { operation: op::ALLOCATE, handle, length: 8, ..Ask::default() });
    assert_eq!(rig.stat(b"f", 0).attributes.size.get(), 8);
    rig.done(Ask { operation: op::CLOSE, handle, ..Ask::default() });
    assert_eq!(rig.status(Ask { operation: op::READ, handle, room: 1, ..Ask::default() }), code::BAD_HANDLE);
    assert_eq!(rig.status(Ask { operation: op::CLOSE, handle, ..Ask::default() }), code::BAD_HANDLE);
    let noted = noted.0.into_inner();
    assert_eq!(noted[0], "name f in 1");
    assert!(noted[1..].iter().all(|note| note.starts_with("inode ")) && noted.len() >= 5, "{noted:?}");
}

#[test]
fn attributes_space_and_copies() {
    let noted = Noted::default();
    let mut rig = Rig::new(&noted, Cred::ROOT);
    let (from, to) = (rig.create(b"from"), rig.create(b"to"));
    let bytes: Vec<u8> = (0..40_000_u32).map(|n| (n % 251) as u8).collect();
    rig.done(Ask { operation: op::WRITE, handle: from, data: &bytes, ..Ask::default() });
    let copy = Ask {
        operation: op::COPY,
        handle: from,
        other: to,
        offset: 10,
        argument: 5,
        length: 1 << 40,
        ..Ask::default()
    };
    assert_eq!(rig.done(copy).value.get(), 39_990);
    let read = rig.done(Ask { operation: op::READ, handle: to, offset: 5, room: 40_000, ..Ask::default() });
    assert_eq!(rig.data(read.len.get()), bytes[10..]);
    // Within a file, ranges that overlap are refused, and what was copied is not copied again.
    let within = |offset, argument, length| Ask {
        operation: op::COPY,
        handle: to,
        other: to,
        offset,
        argument,
        length,
        ..Ask::default()
    };
    assert_eq!(rig.status(within(0, 99, 100)), code::INVALID);
    assert_eq!(rig.status(within(99, 0, 100)), code::INVALID);
    assert_eq!(rig.done(within(0, 100, 100)).value.get(), 100);
    assert_eq!(rig.done(within(39_990, 39_995, 1 << 40)).value.get(), 5, "up to the end as it was");
    let named = |operation, data, room| Ask {
        operation,
        first: b"to",
        second: b"user.x",
        data,
        room,
        ..Ask::default()
    };
    rig.done(named(op::SET_XATTR, b"value", 0));
    assert_eq!(rig.done(named(op::GET_XATTR, b"", 0)).value.get(), 5, "no room asks for the length");
    assert_eq!(rig.status(named(op::GET_XATTR, b"", 3)), code::BUFFER_TOO_SMALL);
    let got = rig.done(named(op::GET_XATTR, b"", 100));
    assert_eq!(rig.data(got.len.get()), b"value");
    let list = rig.done(named(op::LIST_XATTR, b"", 100));
    assert_eq!(rig.data(list.len.get()), b"user.x\0");
    rig.done(named(op::REMOVE_XATTR, b"", 0));
    assert_eq!(rig.status(named(op::GET_XATTR, b"", 100)), code::NO_DATA);
    let space = rig.done(Ask { operation: op::SPACE, room: 48, ..Ask::default() });
    let space = Space::read_from_bytes(&rig.data(space.len.get())).unwrap();
    assert_eq!(space.name_bytes_max.get(), 255);
    let times =
        Change { which: (change::MTIME | change::ATIME_NOW).into(), mtime: 7.into(), ..Change::default() };
    let set = Ask { operation: op::SET_ATTRIBUTES, first: b"to", data: times.as_bytes(), ..Ask::default() };
    assert_eq!(rig.done(set).attributes.mtime.get(), 7);
    rig.done(Ask { operation: op::SYNC, ..Ask::default() });
}

#[test]
fn permissions_are_the_callers() {
    let fs = Arc::new(Model::new());
    let (first, second) = (Noted::default(), Noted::default());
    let mut root = Rig::over(Arc::clone(&fs), &first, Cred::ROOT);
    let mut user = Rig::over(Arc::clone(&fs), &second, Cred::user(7, 7));
    root.mkdir(b"private");
    root.create(b"private/f");
    root.create(b"f");
    let closed = Change { which: change::MODE.into(), mode: 0o700.into(), ..Change::default() };
    root.done(Ask {
        operation: op::SET_ATTRIBUTES,
        first: b"private",
        data: closed.as_bytes(),
        ..Ask::default()
    });
    assert_eq!(user.stat(b"private/f", 0).status.get(), code::PERMISSION_DENIED);
    assert_eq!(
        user.stat(b"private/../f", 0).status.get(),
        code::PERMISSION_DENIED,
        "not through a closed directory"
    );
    let open = |flags| Ask { operation: op::OPEN, flags, first: b"f", argument: 0o600, ..Ask::default() };
    assert_eq!(user.status(open(flag::WRITE)), code::PERMISSION_DENIED);
    assert_eq!(user.status(open(flag::READ | flag::TRUNCATE)), code::PERMISSION_DENIED);
    let handle = user.done(open(flag::READ)).value.get();
    assert_eq!(
        user.status(Ask { operation: op::WRITE, handle, data: b"x", ..Ask::default() }),
        code::BAD_HANDLE
    );
    let cut = Change { which: change::SIZE.into(), ..Change::default() };
    let cut = Ask { operation: op::SET_ATTRIBUTES, handle, data: cut.as_bytes(), ..Ask::default() };
    assert_eq!(user.status(cut), code::BAD_HANDLE);
    assert_eq!(
        user.status(Ask { operation: op::UNLINK, first: b"f", ..Ask::default() }),
        code::PERMISSION_DENIED
    );
    let wanted = Ask { operation: op::ACCESS, first: b"f", argument: 2, ..Ask::default() };
    assert_eq!(user.status(wanted.clone()), code::PERMISSION_DENIED);
    assert_eq!(root.status(wanted), code::DONE);
    // A handle is one client's.
    let theirs = root.create(b"g");
    assert_eq!(
        user.status(Ask { operation: op::WRITE, handle: theirs, data: b"x", ..Ask::default() }),
        code::BAD_HANDLE
    );
}

#[test]
fn an_open_file_outlives_its_name_and_handles_run_out() {
    let fs = Arc::new(Model::new());
    let noted = Noted::default();
    let mut rig = Rig::over(Arc::clone(&fs), &noted, Cred::ROOT);
    let handle = rig.create(b"f");
    let ino = Ino(rig.stat(b"f", 0).attributes.ino.get());
    rig.done(Ask { operation: op::UNLINK, first: b"f", ..Ask::default() });
    rig.done(Ask { operation: op::WRITE, handle, data: b"still", ..Ask::default() });
    rig.done(Ask { operation: op::CLOSE, handle, ..Ask::default() });
    assert!(fs.getattr(ino).is_err(), "no reference is left behind");
    let unnamed = flag::UNNAMED | flag::WRITE;
    rig.done(Ask { operation: op::OPEN, flags: unnamed, first: b".", argument: 0o600, ..Ask::default() });
    for _ in 0..15 {
        rig.create(b"g");
    }
    let one_more = Ask { operation: op::OPEN, flags: flag::READ, first: b"g", ..Ask::default() };
    assert_eq!(rig.status(one_more), code::TOO_MANY_OPEN);
    let ino = Ino(rig.stat(b"g", 0).attributes.ino.get());
    rig.done(Ask { operation: op::UNLINK, first: b"g", ..Ask::default() });
    drop(rig);
    assert!(fs.getattr(ino).is_err(), "a client that goes away closes its files");
}

#[test]
fn a_closed_handle_does_not_name_the_file_that_has_its_place_now() {
    let noted = Noted::default();
    let mut rig = Rig::new(&noted, Cred::ROOT);
    let old = rig.create(b"old");
    rig.done(Ask { operation: op::CLOSE, handle: old, ..Ask::default() });
    let new = rig.create(b"new");
    assert!(old != new && old as u32 == new as u32, "{old:x} and {new:x} have one place");
    let write = |handle| Ask { operation: op::WRITE, handle, data: b"data", ..Ask::default() };
    assert_eq!(rig.status(write(old)), code::BAD_HANDLE);
    assert_eq!(rig.stat(b"new", 0).attributes.size.get(), 0);
    rig.done(write(new));
    assert_eq!(rig.stat(b"new", 0).attributes.size.get(), 4);
}

#[test]
fn malformed_commands_are_refused() {
    let noted = Noted::default();
    let mut rig = Rig::new(&noted, Cred::ROOT);
    let mut reserved = [0.into(); 6];
    reserved[5] = 1.into();
    let stat = Submission { operation: op::ATTRIBUTES.into(), ..Submission::default() };
    for (what, raw) in [
        ("operation", Submission { operation: 999.into(), ..stat }),
        ("flag", Submission { flags: 0x8000.into(), ..stat }),
        ("reserved", Submission { reserved, ..stat }),
        ("span", Submission { first: Span::new(PAYLOAD, 1), ..stat }),
        ("span that wraps", Submission { data: Span::new(u32::MAX, 2), ..stat }),
        ("long path", Submission { first: Span::new(0, 4097), ..stat }),
        ("mode", Submission { operation: op::MAKE_DIRECTORY.into(), argument: (1 << 40).into(), ..stat }),
        ("access", Submission { operation: op::ACCESS.into(), argument: 8.into(), ..stat }),
        ("renames", Submission { operation: op::RENAME.into(), flags: 3.into(), ..stat }),
        ("hole", Submission { operation: op::ALLOCATE.into(), flags: flag::PUNCH_HOLE.into(), ..stat }),
        ("change", Submission { operation: op::SET_ATTRIBUTES.into(), data: Span::new(0, 39), ..stat }),
    ] {
        assert_eq!(rig.raw(&raw).status.get(), code::MALFORMED, "{what}");
    }
    assert_eq!(rig.raw(&stat).status.get(), code::DONE);
    assert!(noted.0.lock().is_empty(), "nothing was done");
}

#[test]
fn a_copy_of_a_hole_as_long_as_a_file_can_be_keeps_no_thread() {
    let noted = Noted::default();
    let mut rig = Rig::new(&noted, Cred::ROOT);
    let (from, to) = (rig.create(b"from"), rig.create(b"to"));
    let long = Change { which: change::SIZE.into(), size: (1 << 42).into(), ..Change::default() };
    let long = Ask { operation: op::SET_ATTRIBUTES, handle: from, data: long.as_bytes(), ..Ask::default() };
    rig.done(long);
    let copy = Ask { operation: op::COPY, handle: from, other: to, length: u64::MAX, ..Ask::default() };
    assert_eq!(rig.done(copy).value.get(), 16 << 20);
}

#[test]
fn only_an_open_regular_file_gets_a_pass() {
    let noted = Noted::default();
    let mut rig = Rig::new(&noted, Cred::ROOT);
    let handle = rig.create(b"f");
    let ino = rig.stat(b"f", 0).attributes.ino;
    rig.done(Ask { operation: op::UNLINK, first: b"f", ..Ask::default() });
    let pass = rig.done(Ask { operation: op::PASS, handle, ..Ask::default() });
    assert_eq!((pass.other, pass.value.get()), (ino, 5), "without a name");
    rig.done(Ask { operation: op::CLOSE, handle, ..Ask::default() });
    assert_eq!(rig.status(Ask { operation: op::PASS, handle, ..Ask::default() }), code::BAD_HANDLE);
    rig.mkdir(b"d");
    let flags = flag::READ;
    let directory = rig.done(Ask { operation: op::OPEN, flags, first: b"d", ..Ask::default() }).value.get();
    let refused = rig.status(Ask { operation: op::PASS, handle: directory, ..Ask::default() });
    assert_eq!(refused, code::UNSUPPORTED);
}
