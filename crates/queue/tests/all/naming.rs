//! Paths, and commands that make, move and remove names: what they answer, and what the watcher is told.

use std::sync::Arc;

use amphi_model::Model;
use amphi_queue::format::{Change, ListedName, change, code, flag, kind, op};
use amphi_queue::{Session, Watcher};
use amphi_rt::sync::Mutex;
use amphi_vfs::permission::Protected;
use amphi_vfs::{Cred, FileSystem, Ino, Name};
use zerocopy::{FromBytes, IntoBytes};

use crate::rig::{Ask, Noted, Rig};

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

/// Asked for renames it counts the root directory's names: what comes back with a name says whether that was
/// asked before the change.
struct Counts(Arc<Model>, Mutex<Vec<u64>>);

impl Watcher for &Counts {
    fn inode(&self, _ino: Ino) {}

    fn renames(&self) -> u64 {
        let mut names = 0;
        self.0
            .readdir(Ino::ROOT, 0, &mut |_| {
                names += 1;
                true
            })
            .expect("the root can be listed");
        names
    }

    fn name(&self, _dir: Ino, _name: Name<'_>, renames: u64) -> bool {
        self.1.lock().push(renames);
        false
    }
}

#[test]
fn renames_of_the_other_door_are_counted_before_a_name_changes() {
    let fs = Arc::new(Model::new());
    let counts = Counts(Arc::clone(&fs), Mutex::default());
    let mut rig = Rig::over(fs, &counts, Cred::ROOT);
    let told = |rig: &mut Rig<&Counts>, act: &dyn Fn(&mut Rig<&Counts>)| {
        act(rig);
        std::mem::take(&mut *counts.1.lock())
    };
    let empty = (&counts).renames();
    assert_eq!(
        told(&mut rig, &|rig| {
            rig.create(b"f");
        }),
        [empty]
    );
    assert_eq!(told(&mut rig, &|rig| rig.mkdir(b"d")), [empty + 1]);
    assert_eq!(told(&mut rig, &|rig| rig.symlink(b"f", b"s")), [empty + 2]);
    let two = |operation, second: &'static [u8]| {
        move |rig: &mut Rig<&Counts>| {
            rig.done(Ask { operation, first: b"f", second, ..Ask::default() });
        }
    };
    assert_eq!(told(&mut rig, &two(op::LINK, b"g")), [empty + 3]);
    assert_eq!(told(&mut rig, &two(op::RENAME, b"s")), [empty + 4; 2]);
    let one = |operation, first: &'static [u8]| {
        move |rig: &mut Rig<&Counts>| {
            rig.done(Ask { operation, first, ..Ask::default() });
        }
    };
    assert_eq!(told(&mut rig, &one(op::UNLINK, b"g")), [empty + 3]);
    assert_eq!(told(&mut rig, &one(op::REMOVE_DIRECTORY, b"d")), [empty + 2]);
}
