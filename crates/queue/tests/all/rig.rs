//! A session over the model whose commands are asked one by one.

use std::sync::Arc;

use amphi_model::Model;
use amphi_queue::format::{Change, Completion, Span, Submission, change, code, flag, op};
use amphi_queue::{Caller, Geometry, Memory, Session, Watcher};
use amphi_rt::sync::Mutex;
use amphi_vfs::{Cred, Ino, Name};
use zerocopy::IntoBytes;

pub const PAYLOAD: u32 = 64 << 10;
/// Where data lie, behind the paths.
pub const DATA_AT: u32 = 16 << 10;

#[derive(Default)]
pub struct Noted(pub Mutex<Vec<String>>);

impl Watcher for &Noted {
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

pub struct Rig<W: Watcher> {
    pub memory: Memory,
    pub session: Session<Model, W>,
    pub caller: Caller,
}

/// A command with its paths and data.
#[derive(Clone, Default)]
pub struct Ask<'a> {
    pub operation: u16,
    pub flags: u16,
    pub handle: u64,
    pub other: u64,
    pub first: &'a [u8],
    pub second: &'a [u8],
    pub data: &'a [u8],
    pub room: u32,
    pub offset: u64,
    pub length: u64,
    pub argument: u64,
}

impl<W: Watcher> Rig<W> {
    pub fn new(watcher: W, cred: Cred) -> Self {
        Self::over(Arc::new(Model::new()), watcher, cred)
    }

    pub fn over(fs: Arc<Model>, watcher: W, cred: Cred) -> Self {
        let memory = Memory::private(Geometry::new(1, PAYLOAD).unwrap()).unwrap();
        Self { memory, session: Session::new(fs, watcher, 16), caller: Caller::new(cred) }
    }

    pub fn raw(&mut self, raw: &Submission) -> Completion {
        self.session.execute(&mut self.caller, raw, self.memory.payload(0))
    }

    pub fn ask(&mut self, ask: Ask<'_>) -> Completion {
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

    pub fn done(&mut self, ask: Ask<'_>) -> Completion {
        let done = self.ask(ask);
        assert_eq!(done.status.get(), code::DONE);
        done
    }

    pub fn data(&self, len: u32) -> Vec<u8> {
        self.memory.payload(0).part(DATA_AT, len).unwrap().to_vec()
    }

    pub fn create(&mut self, path: &[u8]) -> u64 {
        let flags = flag::CREATE | flag::READ | flag::WRITE;
        self.done(Ask { operation: op::OPEN, flags, first: path, argument: 0o644, ..Ask::default() })
            .value
            .get()
    }

    pub fn set_mode(&mut self, path: &[u8], mode: u32) {
        let mode = Change { which: change::MODE.into(), mode: mode.into(), ..Change::default() };
        let data = mode.as_bytes();
        self.done(Ask { operation: op::SET_ATTRIBUTES, first: path, data, ..Ask::default() });
    }

    pub fn mkdir(&mut self, path: &[u8]) {
        self.done(Ask {
            operation: op::MAKE_DIRECTORY,
            first: path,
            argument: 0o777 | 0o022 << 16,
            ..Ask::default()
        });
    }

    pub fn status(&mut self, ask: Ask<'_>) -> u16 {
        self.ask(ask).status.get()
    }

    pub fn symlink(&mut self, target: &[u8], path: &[u8]) {
        self.done(Ask { operation: op::SYMLINK, first: path, second: target, ..Ask::default() });
    }

    pub fn stat(&mut self, path: &[u8], flags: u16) -> Completion {
        self.ask(Ask { operation: op::ATTRIBUTES, flags, first: path, ..Ask::default() })
    }
}
