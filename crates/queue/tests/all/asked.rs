//! How much a command asks the file system: a program pays for it each time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use amphi_model::Model;
use amphi_queue::format::{Completion, Span, Submission, code, flag, op};
use amphi_queue::{Caller, Geometry, Memory, Session};
use amphi_vfs::{
    Attr, Capabilities, Cred, DirSink, Entry, FileSystem, FileType, Ino, Name, OpenFlags, Promise, Removed,
    RenameMode, Renamed, Result, Seek, SetAttr, StatFs, WriteMode,
};

/// The model, whose calls are counted.
struct Counted {
    model: Model,
    calls: AtomicU64,
    /// References that were taken and not given back.
    held: AtomicI64,
    /// As many when a name was last removed.
    held_at_removal: AtomicI64,
}

impl Counted {
    fn new() -> Self {
        Self {
            model: Model::new(),
            calls: AtomicU64::new(0),
            held: AtomicI64::new(0),
            held_at_removal: AtomicI64::new(0),
        }
    }

    fn called(&self) -> &Model {
        self.calls.fetch_add(1, Ordering::Relaxed);
        &self.model
    }

    fn took(&self, entry: Result<Entry>) -> Result<Entry> {
        self.held.fetch_add(i64::from(entry.is_ok()), Ordering::Relaxed);
        entry
    }

    fn removes(&self) -> &Model {
        self.held_at_removal.store(self.held.load(Ordering::Relaxed), Ordering::Relaxed);
        self.called()
    }
}

impl FileSystem for Counted {
    fn promise(&self) -> Promise {
        self.model.promise()
    }

    fn lookup(&self, dir: Ino, name: Name<'_>) -> Result<Entry> {
        self.took(self.called().lookup(dir, name))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.called().parent(dir)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.held.fetch_sub(count as i64, Ordering::Relaxed);
        self.called().forget(ino, count);
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.called().getattr(ino)
    }

    fn setattr(&self, ino: Ino, change: &SetAttr, cred: &Cred) -> Result<Attr> {
        self.called().setattr(ino, change, cred)
    }

    fn create(
        &self,
        dir: Ino,
        name: Name<'_>,
        kind: FileType,
        mode: u16,
        rdev: u32,
        cred: &Cred,
    ) -> Result<Entry> {
        self.took(self.called().create(dir, name, kind, mode, rdev, cred))
    }

    fn mkdir(&self, dir: Ino, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry> {
        self.took(self.called().mkdir(dir, name, mode, cred))
    }

    fn symlink(&self, dir: Ino, name: Name<'_>, target: &[u8], cred: &Cred) -> Result<Entry> {
        self.took(self.called().symlink(dir, name, target, cred))
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.called().readlink(ino)
    }

    fn link(&self, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry> {
        self.took(self.called().link(ino, dir, name))
    }

    fn unlink(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        self.removes().unlink(dir, name)
    }

    fn unlink_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        self.removes().unlink_as(dir, name, cred)
    }

    fn rmdir(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        self.removes().rmdir(dir, name)
    }

    fn rmdir_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        self.removes().rmdir_as(dir, name, cred)
    }

    fn rename(
        &self,
        from: Ino,
        name: Name<'_>,
        to: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<Renamed> {
        self.removes().rename(from, name, to, new_name, mode)
    }

    fn open(&self, ino: Ino, flags: OpenFlags) -> Result<()> {
        self.called().open(ino, flags)
    }

    fn release(&self, ino: Ino) {
        self.called().release(ino);
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize> {
        self.called().read(ino, offset, into, direct)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        self.called().write(ino, offset, data, mode, cred)
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        self.called().fsync(ino, data_only)
    }

    fn sync(&self) -> Result<()> {
        self.called().sync()
    }

    fn readdir(&self, dir: Ino, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        self.called().readdir(dir, cookie, sink)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.called().statfs()
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.called().seek(ino, offset, what)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.called().getxattr(ino, name)
    }
}

struct Rig {
    fs: Arc<Counted>,
    memory: Memory,
    session: Session<Counted>,
    caller: Caller,
}

impl Rig {
    fn new(cred: Cred) -> Self {
        let fs = Arc::new(Counted::new());
        let memory = Memory::private(Geometry::new(1, 64 << 10).unwrap()).unwrap();
        Self { session: Session::new(Arc::clone(&fs), (), 16), fs, memory, caller: Caller::new(cred) }
    }

    /// Carries a command on one or two paths out, and says how many calls it took.
    fn ask(&mut self, operation: u16, flags: u16, first: &[u8], second: &[u8]) -> (Completion, u64) {
        let payload = self.memory.payload(0);
        payload.put(first);
        payload.part(4096, second.len() as u32).unwrap().put(second);
        let command = Submission {
            operation: operation.into(),
            flags: flags.into(),
            argument: 0o755.into(),
            first: Span::new(0, first.len() as u32),
            second: Span::new(4096, second.len() as u32),
            ..Submission::default()
        };
        let before = self.fs.calls.load(Ordering::Relaxed);
        let answer = self.session.execute(&mut self.caller, &command, payload);
        (answer, self.fs.calls.load(Ordering::Relaxed) - before)
    }

    fn done(&mut self, operation: u16, flags: u16, first: &[u8], second: &[u8]) -> u64 {
        let (answer, calls) = self.ask(operation, flags, first, second);
        assert_eq!(answer.status.get(), code::DONE);
        calls
    }
}

const MAKE: u16 = flag::WRITE | flag::CREATE | flag::EXCLUSIVE;

/// The superuser, and one whom no capability helps and who owns what is there.
fn callers() -> [Cred; 2] {
    let owner = Cred { capabilities: Capabilities::NONE, ..Cred::ROOT };
    [Cred::ROOT, owner]
}

#[test]
fn names_are_made_and_moved_in_few_calls() {
    for cred in callers() {
        let mut rig = Rig::new(cred);
        rig.done(op::MAKE_DIRECTORY, 0, b"d", b"");
        // A directory on the way is asked for twice, and let go of.
        let way = 3;
        // The attributes of the directory, and what the command is about.
        assert_eq!(rig.done(op::MAKE_DIRECTORY, 0, b"d/e", b""), way + 3, "forgotten at once");
        assert_eq!(rig.done(op::OPEN, MAKE, b"d/f", b""), way + 4, "opened, and forgotten");
        assert_eq!(rig.done(op::RENAME, 0, b"d/f", b"d/g"), 2 * way + 2);
        assert_eq!(rig.ask(op::OPEN, MAKE, b"d/g", b"").0.status.get(), code::EXISTS);
        assert_eq!(rig.fs.held.load(Ordering::Relaxed), 0, "all was given back");
    }
}

#[test]
fn what_loses_its_name_is_not_held_meanwhile() {
    for cred in callers() {
        let mut rig = Rig::new(cred);
        for name in [&b"f"[..], b"g", b"h"] {
            let opened = rig.ask(op::OPEN, MAKE, name, b"").0;
            let close =
                Submission { operation: op::CLOSE.into(), handle: opened.value, ..Submission::default() };
            rig.session.execute(&mut rig.caller, &close, rig.memory.payload(0));
        }
        rig.done(op::MAKE_DIRECTORY, 0, b"d", b"");
        let removals = [
            (op::UNLINK, &b"f"[..], &b""[..]),
            (op::RENAME, b"g", b"h"),
            (op::UNLINK, b"h", b""),
            (op::REMOVE_DIRECTORY, b"d/", b""),
        ];
        for (operation, first, second) in removals {
            rig.fs.held_at_removal.store(-1, Ordering::Relaxed);
            rig.done(operation, 0, first, second);
            assert_eq!(
                rig.fs.held_at_removal.load(Ordering::Relaxed),
                0,
                "{operation} holds what it removes"
            );
        }
    }
}
