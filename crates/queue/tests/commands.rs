//! Each command over the model: what it answers, and what it refuses.

use std::sync::Arc;

use amphi_model::Model;
use amphi_queue::format::{
    Change, Completion, ListedName, Space, Span, Submission, change, code, flag, kind, op,
};
use amphi_queue::{Caller, Geometry, Memory, Session};
use amphi_rt::sync::Mutex;
use amphi_vfs::permission::Protected;
use amphi_vfs::{Cred, FileSystem, Ino, Name};
use zerocopy::{FromBytes, IntoBytes};

const PAYLOAD: u32 = 64 << 10;
/// Where data lie, behind the paths.
const DATA_AT: u32 = 16 << 10;

#[derive(Default)]
struct Noted(Mutex<Vec<String>>);

impl amphi_queue::Watcher for &Noted {
    fn inode(&self, ino: Ino) {
        self.0.lock().push(format!("inode {}", ino.0));
    }

    fn name(&self, dir: Ino, name: Name<'_>, _renames: u64) -> bool {
        self.0.lock().push(format!("name {} in {}", String::from_utf8_lossy(name.bytes()), dir.0));
        name.bytes() == b"known"
    }

    fn pass(&self, ino: Ino) -> Option<u128> {
        Some(u128::from(ino.0) << 64 | 5)
    }
}

struct Rig<'n> {
    memory: Memory,
    session: Session<Model, &'n Noted>,
    caller: Caller,
}

/// A command with its paths and data.
#[derive(Clone, Default)]
struct Ask<'a> {
    operation: u16,
    flags: u16,
    handle: u64,
    other: u64,
    first: &'a [u8],
    second: &'a [u8],
    data: &'a [u8],
    room: u32,
    offset: u64,
    length: u64,
    argument: u64,
}

impl<'n> Rig<'n> {
    fn new(noted: &'n Noted, cred: Cred) -> Self {
        Self::over(Arc::new(Model::new()), noted, cred)
    }

    fn over(fs: Arc<Model>, noted: &'n Noted, cred: Cred) -> Self {
        let memory = Memory::private(Geometry::new(1, PAYLOAD).unwrap()).unwrap();
        Self { memory, session: Session::new(fs, noted, 16), caller: Caller::new(cred) }
    }

    fn raw(&mut self, raw: &Submission) -> Completion {
        self.session.execute(&mut self.caller, raw, self.memory.payload(0))
    }

    fn ask(&mut self, ask: Ask<'_>) -> Completion {
        let payload = self.memory.payload(0);
        payload.put(ask.first);
        let second_at = 8192;
        payload.part(second_at, ask.second.len() as u32).unwrap().put(ask.second);
        let len = if ask.data.is_empty() { ask.room } else { ask.data.len() as u32 };
        payload.part(DATA_AT, ask.data.len() as u32).unwrap().put(ask.data);
        self.raw(&Submission {
            operation: ask.operation.into(),
            flags: ask.flags.into(),
            handle: ask.handle.into(),
            other: ask.other.into(),
            offset: ask.offset.into(),
            length: ask.length.into(),
            argument: ask.argument.into(),
            first: Span::new(0, ask.first.len() as u32),
            second: Span::new(second_at, ask.second.len() as u32),
            data: Span::new(DATA_AT, len),
            ..Submission::default()
        })
    }

    fn done(&mut self, ask: Ask<'_>) -> Completion {
        let done = self.ask(ask);
        assert_eq!(done.status.get(), code::DONE);
        done
    }

    fn data(&self, len: u32) -> Vec<u8> {
        self.memory.payload(0).part(DATA_AT, len).unwrap().to_vec()
    }

    fn create(&mut self, path: &[u8]) -> u64 {
        let flags = flag::CREATE | flag::READ | flag::WRITE;
        self.done(Ask { operation: op::OPEN, flags, first: path, argument: 0o644, ..Ask::default() })
            .value
            .get()
    }

    fn set_mode(&mut self, path: &[u8], mode: u32) {
        let mode = Change { which: change::MODE.into(), mode: mode.into(), ..Change::default() };
        let data = mode.as_bytes();
        self.done(Ask { operation: op::SET_ATTRIBUTES, first: path, data, ..Ask::default() });
    }

    fn mkdir(&mut self, path: &[u8]) {
        self.done(Ask {
            operation: op::MAKE_DIRECTORY,
            first: path,
            argument: 0o777 | 0o022 << 16,
            ..Ask::default()
        });
    }

    fn status(&mut self, ask: Ask<'_>) -> u16 {
        self.ask(ask).status.get()
    }

    fn symlink(&mut self, target: &[u8], path: &[u8]) {
        self.done(Ask { operation: op::SYMLINK, first: path, second: target, ..Ask::default() });
    }

    fn stat(&mut self, path: &[u8], flags: u16) -> Completion {
        self.ask(Ask { operation: op::ATTRIBUTES, flags, first: path, ..Ask::default() })
    }
}

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
fn paths_are_walked_as_the_kernel_walks_them() {
    let noted = Noted::default();
    let mut rig = Rig::new(&noted, Cred::ROOT);
    rig.mkdir(b"a");
    rig.mkdir(b"a/b/");
    rig.create(b"a/b/f");
    rig.symlink(b"b", b"a/to-b");
    rig.symlink(b"a/to-b/../to-b/f", b"to-f");
    rig.symlink(b"loop", b"loop");
    rig.symlink(b"/etc", b"outside");
    rig.symlink(b"a/b/new", b"to-new");
    let ino = rig.stat(b"a/b/f", 0).attributes.ino;
    for path in [&b"a//b/./f"[..], b"to-f", b"./a/to-b/f", b"a/to-b/../b/f"] {
        assert_eq!(rig.stat(path, 0).attributes.ino, ino, "{}", String::from_utf8_lossy(path));
    }
    assert_eq!(rig.stat(b"to-f", flag::NO_FOLLOW).attributes.kind.get(), kind::SYMLINK);
    assert_eq!(rig.stat(b"a/to-b/", flag::NO_FOLLOW).attributes.kind.get(), kind::DIRECTORY);
    for (path, status) in [
        (&b"loop"[..], code::LINK_LOOP),
        (b"outside", code::OUTSIDE),
        (b"outside/passwd", code::OUTSIDE),
        (b"/a", code::OUTSIDE),
        (b"..", code::OUTSIDE),
        (b"a/../../x", code::OUTSIDE),
        (b"a/b/f/", code::NOT_DIRECTORY),
        (b"a/b/f/x", code::NOT_DIRECTORY),
        (b"a/none/x", code::NOT_FOUND),
        (b"a/\0", code::INVALID),
    ] {
        assert_eq!(rig.stat(path, 0).status.get(), status, "{}", String::from_utf8_lossy(path));
    }
    let long = [b'n'; 256];
    assert_eq!(rig.stat(&long, 0).status.get(), code::NAME_TOO_LONG);
    rig.create(b"to-new");
    assert_eq!(rig.stat(b"a/b/new", 0).status.get(), code::DONE, "a file is made where a link leads");
    let exclusive = flag::CREATE | flag::EXCLUSIVE | flag::WRITE;
    let again = Ask { operation: op::OPEN, flags: exclusive, first: b"to-f", ..Ask::default() };
    assert_eq!(rig.status(again), code::EXISTS, "a link is in the way of an exclusive create");
    let dir =
        rig.done(Ask { operation: op::OPEN, flags: flag::READ, first: b"a", ..Ask::default() }).value.get();
    let inside = Ask { operation: op::ATTRIBUTES, handle: dir, first: b"b/f", ..Ask::default() };
    assert_eq!(rig.done(inside).attributes.ino, ino, "a path may begin at an open directory");
}

#[test]
fn names_are_moved_linked_removed_and_listed() {
    let noted = Noted::default();
    let mut rig = Rig::new(&noted, Cred::ROOT);
    rig.mkdir(b"d");
    rig.create(b"f");
    rig.done(Ask { operation: op::LINK, first: b"f", second: b"d/g", ..Ask::default() });
    assert_eq!(rig.stat(b"f", 0).attributes.nlink.get(), 2);
    rig.done(Ask { operation: op::RENAME, first: b"f", second: b"d/h", ..Ask::default() });
    let refused =
        Ask { operation: op::RENAME, flags: flag::NO_REPLACE, first: b"d/g", second: b"d", ..Ask::default() };
    assert_eq!(rig.status(refused), code::EXISTS);
    assert_eq!(
        rig.status(Ask { operation: op::REMOVE_DIRECTORY, first: b"d", ..Ask::default() }),
        code::NOT_EMPTY
    );
    let dir = rig.done(Ask {
        operation: op::OPEN,
        flags: flag::READ | flag::DIRECTORY,
        first: b"d",
        ..Ask::default()
    });
    let dir = dir.value.get();
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        // Room for one entry at a time.
        let listed =
            rig.done(Ask { operation: op::LIST, handle: dir, offset: cookie, room: 32, ..Ask::default() });
        let bytes = rig.data(listed.len.get());
        let Ok((head, behind)) = ListedName::read_from_prefix(&bytes) else { break };
        names.push(String::from_utf8(behind[..usize::from(head.len.get())].to_vec()).unwrap());
        cookie = listed.other.get();
    }
    names.sort();
    assert_eq!(names, [".", "..", "g", "h"]);
    assert_eq!(
        rig.status(Ask { operation: op::LIST, handle: dir, room: 8, ..Ask::default() }),
        code::BUFFER_TOO_SMALL
    );
    // The other door knows this name: of a directory it has to learn the new one.
    rig.mkdir(b"known");
    let rename = |first, second| Ask { operation: op::RENAME, first, second, ..Ask::default() };
    assert_eq!(rig.done(rename(b"known", b"elsewhere")).value.get(), 1);
    assert_eq!(rig.done(rename(b"elsewhere", b"anywhere")).value.get(), 0);
    rig.create(b"known");
    assert_eq!(rig.done(rename(b"known", b"elsewhere")).value.get(), 0);
    let handle = rig.create(b"d/g");
    assert_eq!(
        rig.status(Ask { operation: op::LIST, handle, room: 64, ..Ask::default() }),
        code::NOT_DIRECTORY
    );
    rig.done(Ask { operation: op::CLOSE, handle, ..Ask::default() });
    assert_eq!(rig.status(Ask { operation: op::UNLINK, first: b"d", ..Ask::default() }), code::IS_DIRECTORY);
    for name in [b"d/g", b"d/h"] {
        rig.done(Ask { operation: op::UNLINK, first: name, ..Ask::default() });
    }
    rig.done(Ask { operation: op::REMOVE_DIRECTORY, first: b"d/", ..Ask::default() });
    assert_eq!(rig.stat(b"d", 0).status.get(), code::NOT_FOUND);
    rig.symlink(b"anywhere", b"s");
    let link = rig.done(Ask { operation: op::READ_LINK, first: b"s", room: 100, ..Ask::default() });
    assert_eq!(rig.data(link.len.get()), b"anywhere");
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

/// `fs.protected_symlinks` and `fs.protected_regular`: whoever has put a link or a file into a directory for
/// all cannot have others write through it. Root neither.
#[test]
fn in_directories_that_users_share_others_links_and_files_are_not_trusted() {
    let fs = Arc::new(Model::new());
    let noted = [Noted::default(), Noted::default(), Noted::default()];
    let mut root = Rig::over(Arc::clone(&fs), &noted[0], Cred::ROOT);
    let mut trap = Rig::over(Arc::clone(&fs), &noted[1], Cred::user(7, 7));
    let mut user = Rig::over(Arc::clone(&fs), &noted[2], Cred::user(8, 8));
    for (dir, mode) in [(&b"all"[..], 0o1777), (b"open", 0o777), (b"group", 0o1775)] {
        root.mkdir(dir);
        root.set_mode(dir, 0o777);
        let (link, file) = ([dir, b"/link"].concat(), [dir, b"/file"].concat());
        trap.done(Ask { operation: op::SYMLINK, first: &link, second: b"file", ..Ask::default() });
        let handle = trap.create(&file);
        trap.done(Ask { operation: op::CLOSE, handle, ..Ask::default() });
        root.set_mode(&file, 0o666);
        root.set_mode(dir, mode);
    }
    let open = |path, flags| Ask { operation: op::OPEN, flags, first: path, ..Ask::default() };
    let stat = |flags| Ask { operation: op::ATTRIBUTES, flags, first: b"all/link", ..Ask::default() };
    let (write, make) = (flag::WRITE, flag::WRITE | flag::CREATE);
    let denied = code::PERMISSION_DENIED;
    let cases = [
        (open(b"all/link", write), denied),
        (open(b"all/link", make), denied),
        (open(b"all/file", make), denied),
        (open(b"all/file", write), code::DONE),
        (stat(0), denied),
        (stat(flag::NO_FOLLOW), code::DONE),
        (open(b"open/link", write), code::DONE),
        (open(b"open/file", make), code::DONE),
        (open(b"group/link", write), code::DONE),
        (open(b"group/file", make), code::DONE),
    ];
    for (ask, status) in &cases {
        let shown = String::from_utf8_lossy(ask.first);
        assert_eq!(user.status(ask.clone()), *status, "{shown}, flags {:x}", ask.flags);
        assert_eq!(root.status(ask.clone()), *status, "{shown}, flags {:x}, root", ask.flags);
        assert_eq!(trap.status(ask.clone()), code::DONE, "{shown}: its own");
    }
    let strict = Protected { regular: 2, ..Protected::default() };
    let none = Protected { hardlinks: false, symlinks: false, regular: 0 };
    user.session = Session::new(Arc::clone(&fs), &noted[2], 16).protecting(strict);
    assert_eq!(user.status(open(b"group/file", make)), denied, "a group's directory, at level 2");
    user.session = Session::new(fs, &noted[2], 16).protecting(none);
    for (ask, _) in cases {
        let shown = String::from_utf8_lossy(ask.first).into_owned();
        assert_eq!(user.status(ask), code::DONE, "{shown}: nothing is restricted");
    }
}

/// The other door may count a name less for what it believed a name to be, until it hears of the name.
#[test]
fn what_has_lost_or_changed_a_name_is_told_of_before_the_names_and_after() {
    let noted = Noted::default();
    let fs = Arc::new(Model::new());
    let mut rig = Rig::over(Arc::clone(&fs), &noted, Cred::ROOT);
    let [one, two] = [b"one", b"two"].map(|name| {
        rig.create(name);
        format!("inode {}", fs.lookup(Ino::ROOT, Name::new(name).unwrap()).unwrap().attr.ino.0)
    });
    let (from, to) = ("name one in 1".to_owned(), "name two in 1".to_owned());
    noted.0.lock().clear();
    rig.done(Ask { operation: op::RENAME, first: b"one", second: b"two", ..Ask::default() });
    let inodes = [one.clone(), two];
    assert_eq!(*noted.0.lock(), [&inodes[..], &[from, to.clone()], &inodes[..]].concat());
    noted.0.lock().clear();
    rig.done(Ask { operation: op::UNLINK, first: b"two", ..Ask::default() });
    assert_eq!(*noted.0.lock(), [one.clone(), to, one]);
}

/// What Linux answers where a path ends in a slash or in dots, and more than one thing is wrong.
#[test]
fn last_names_with_slashes_and_dots_are_refused_as_the_kernel_does() {
    let fs = Arc::new(Model::new());
    let (first, second) = (Noted::default(), Noted::default());
    let mut root = Rig::over(Arc::clone(&fs), &first, Cred::ROOT);
    let mut user = Rig::over(Arc::clone(&fs), &second, Cred::user(7, 7));
    for dir in [&b"d"[..], b"closed"] {
        root.mkdir(dir);
    }
    root.create(b"f");
    let closed = Change { which: change::MODE.into(), mode: 0o700.into(), ..Change::default() };
    let close =
        Ask { operation: op::SET_ATTRIBUTES, first: b"closed", data: closed.as_bytes(), ..Ask::default() };
    root.done(close);
    let symlink = |path| Ask { operation: op::SYMLINK, first: path, second: b"x", ..Ask::default() };
    let link = |path| Ask { operation: op::LINK, first: b"f", second: path, ..Ask::default() };
    let rename = |first, second| Ask { operation: op::RENAME, first, second, ..Ask::default() };
    let swap =
        |first, second| Ask { operation: op::RENAME, flags: flag::EXCHANGE, first, second, ..Ask::default() };
    let create = |path, how| Ask {
        operation: op::OPEN,
        flags: flag::CREATE | flag::WRITE | how,
        first: path,
        ..Ask::default()
    };
    for (ask, status) in [
        (symlink(b"f/"), code::EXISTS),
        (symlink(b"new/"), code::NOT_FOUND),
        (symlink(b"d/."), code::EXISTS),
        (link(b"d/"), code::EXISTS),
        (link(b"new/"), code::NOT_FOUND),
        (link(b"f"), code::EXISTS),
        (Ask { operation: op::LINK, first: b"d", second: b"f", ..Ask::default() }, code::EXISTS),
        (Ask { operation: op::UNLINK, first: b"d/.", ..Ask::default() }, code::IS_DIRECTORY),
        (Ask { operation: op::REMOVE_DIRECTORY, first: b"d/.", ..Ask::default() }, code::INVALID),
        (Ask { operation: op::REMOVE_DIRECTORY, first: b"d/..", ..Ask::default() }, code::NOT_EMPTY),
        (rename(b"d/.", b"new"), code::BUSY),
        (rename(b"f", b"d/.."), code::BUSY),
        (create(b"d/.", 0), code::IS_DIRECTORY),
        (create(b"d/..", flag::EXCLUSIVE), code::EXISTS),
        (create(b"new/", flag::EXCLUSIVE), code::IS_DIRECTORY),
        (rename(b"f/", b"new"), code::NOT_DIRECTORY),
        (rename(b"f", b"new/"), code::NOT_DIRECTORY),
        (rename(b"none/", b"new"), code::NOT_FOUND),
        (swap(b"d/", b"new"), code::NOT_FOUND),
        (swap(b"d", b"f/"), code::NOT_DIRECTORY),
        (swap(b"d/", b"f"), code::DONE),
        (swap(b"f/", b"d"), code::DONE),
    ] {
        let shown = [ask.first, b" ", ask.second].concat();
        assert_eq!(root.status(ask), status, "{}", String::from_utf8_lossy(&shown));
    }
    for ask in [
        symlink(b"closed/."),
        create(b"closed/..", 0),
        rename(b"none/", b"closed/x"),
        rename(b"closed/x", b"f/x"),
        rename(b"closed/.", b"f"),
    ] {
        let shown = [ask.first, b" ", ask.second].concat();
        assert_eq!(user.status(ask), code::PERMISSION_DENIED, "{}", String::from_utf8_lossy(&shown));
    }
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
