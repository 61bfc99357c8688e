//! The shared-memory queue: a client that writes anything anywhere into the memory. The server answers, or
//! gives the lane up.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use amphi_model::{Limits, Model};
use amphi_queue::format::{
    Change, ENTRIES, PAGE, SUBMISSIONS_AT, SUBMITTED_AT, Span, Submission, code, flag, op,
};
use amphi_queue::{Caller, Geometry, Memory, Server, Session, TaskBell};
use amphi_rt::Sim;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name};
use zerocopy::IntoBytes;

use crate::input::Input;

pub const LANES: u32 = 2;
pub const PAYLOAD_BYTES: u32 = 8192;
const FILES_MAX: usize = 8;
/// Paths that lead somewhere, so that commands have something to be done to.
const PATHS: [&[u8]; 8] = [b"", b"a", b"d", b"d/b", b"d/../a", b"l", b"d/e/f", b"/a"];

/// Lets a client do what the input says to a queue over the model.
pub fn queue(input: &[u8]) {
    Sim::new(1).run(|| {
        let mut input = Input::new(input);
        let geometry = Geometry::new(LANES, PAYLOAD_BYTES).expect("a small queue");
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(geometry.bytes() as u64).expect("room for a small queue");
        let server = Server::new(Arc::new(Memory::create(&file, geometry).expect("a mapped queue")));
        let session = Session::new(Arc::new(tree()), (), FILES_MAX);
        let mut lanes: Vec<_> = server.lanes();
        let mut callers = [Caller::new(Cred::ROOT), Caller::new(Cred { uid: 1000, gid: 1000, ..Cred::ROOT })];
        let handles = vec![0, open(&session, &mut callers[0], b"a"), open(&session, &mut callers[0], b"d")];
        let mut client = Client::new(&file, geometry, handles);
        for _ in 0..200 {
            if input.is_empty() {
                break;
            }
            client.act(&mut input);
            for (lane, caller) in lanes.iter_mut().zip(&mut callers) {
                // A lane holds so many; a broken one is not taken from.
                for _ in 0..ENTRIES {
                    let Some(raw) = server.take(lane) else { break };
                    let answer = session.execute(caller, &raw, server.payload(lane));
                    let (status, len) = (answer.status.get(), answer.len.get());
                    assert!(status <= code::LAST, "a status of {status}");
                    assert!(len <= raw.data.len.get(), "{len} bytes where {} had room", raw.data.len);
                    if raw.operation == op::OPEN && status == code::DONE {
                        client.handles.push(answer.value.get());
                    }
                    server.complete(lane, answer, &TaskBell::default());
                }
                assert!(lane.is_broken() || !server.has_work(lane), "a whole lane was served");
            }
        }
        // What a client leaves behind must not be in another's way.
        drop(Memory::attach(&file));
    });
}

/// Opens what `path` names, to read if it is a directory.
fn open(session: &Session<Model>, caller: &mut Caller, path: &[u8]) -> u64 {
    let memory = Memory::private(Geometry::new(1, PAYLOAD_BYTES).expect("a small queue")).expect("memory");
    memory.payload(0).put(path);
    let flags = flag::READ | if path == b"d" { 0 } else { flag::WRITE };
    let first = Span::new(0, path.len() as u32);
    let raw = Submission { operation: op::OPEN.into(), flags: flags.into(), first, ..Submission::default() };
    let answer = session.execute(caller, &raw, memory.payload(0));
    assert_eq!(answer.status.get(), code::DONE);
    answer.value.get()
}

/// Something for commands to be done to: what most of [`PATHS`] name.
fn tree() -> Model {
    let limits = Limits { pages: 4096, inodes: 100, ..Limits::default() };
    let model = Model::with_limits(limits);
    let name = |name: &'static str| Name::new(name.as_bytes()).expect("a name");
    let dir = model.mkdir(Ino::ROOT, name("d"), 0o777, &Cred::ROOT).expect("a new directory").attr.ino;
    for (dir, file) in [(Ino::ROOT, "a"), (dir, "b")] {
        model.create(dir, name(file), FileType::Regular, 0o666, 0, &Cred::ROOT).expect("a new file");
    }
    model.symlink(Ino::ROOT, name("l"), b"d/b", &Cred::ROOT).expect("a new link");
    model
}

/// A client that writes what an input says.
pub struct Client<'f> {
    file: &'f File,
    geometry: Geometry,
    /// What it counts, if it counts at all.
    submitted: [u32; LANES as usize],
    /// Handles that it has heard of.
    handles: Vec<u64>,
}

impl<'f> Client<'f> {
    /// Of the queue in a file, with handles to begin with.
    pub const fn new(file: &'f File, geometry: Geometry, handles: Vec<u64>) -> Self {
        Self { file, geometry, submitted: [0; LANES as usize], handles }
    }

    /// Does the next thing.
    pub fn act(&mut self, input: &mut Input<'_>) {
        match input.u8() % 16 {
            // Anywhere, the header and the other side's counts included.
            0 => {
                let at = input.below(self.geometry.bytes() as u64 - 8);
                let bytes = input.take(8);
                self.put(at as usize, bytes);
            }
            1 => {
                let lane = input.u8() as u32 % LANES;
                let count = input.telling(u64::from(self.submitted[lane as usize])) as u32;
                self.put(self.geometry.lane_at(lane) + SUBMITTED_AT, count.as_bytes());
            }
            _ => self.submit(input),
        }
    }

    fn submit(&mut self, input: &mut Input<'_>) {
        let lane = input.u8() as u32 % LANES;
        let (first, second) = (self.path(input), self.path(input));
        let payload = self.geometry.payload_at(lane);
        self.put(payload, first);
        self.put(payload + 4096, second);
        let operation = u16::from(input.u8() % 27);
        let bytes = if operation == op::SET_ATTRIBUTES { size_of::<Change>() as u8 } else { input.u8() };
        self.put(payload + 6144, &vec![bytes; usize::from(bytes)]);
        if operation == op::SET_ATTRIBUTES {
            self.put(payload + 6144, u32::from(input.u8()).as_bytes());
        }
        let flags = match (input.u8(), operation) {
            (0..64, _) => u16::from(input.u8()),
            (64..128, op::OPEN) => flag::READ,
            (_, op::OPEN) => flag::READ | flag::WRITE | flag::CREATE,
            _ => 0,
        };
        let mut raw = Submission {
            sequence: self.submitted[lane as usize].into(),
            operation: operation.into(),
            flags: flags.into(),
            handle: self.handle(input).into(),
            other: self.handle(input).into(),
            offset: number(input).into(),
            length: number(input).into(),
            argument: number(input).into(),
            first: Span::new(0, first.len() as u32),
            second: Span::new(4096, second.len() as u32),
            data: Span::new(6144, u32::from(bytes)),
            ..Submission::default()
        };
        if input.one_in(8) {
            // One byte is something else.
            let at = input.below(size_of::<Submission>() as u64) as usize;
            raw.as_mut_bytes()[at] = input.u8();
        }
        let slot = (self.submitted[lane as usize] % ENTRIES) as usize;
        let at = self.geometry.lane_at(lane);
        self.put(at + SUBMISSIONS_AT + slot * size_of::<Submission>(), raw.as_bytes());
        let submitted = &mut self.submitted[lane as usize];
        *submitted = submitted.wrapping_add(1);
        let count = *submitted;
        self.put(at + SUBMITTED_AT, count.as_bytes());
    }

    fn path<'i>(&self, input: &mut Input<'i>) -> &'i [u8] {
        match input.u8() {
            known @ 0..240 => PATHS[usize::from(known % 8)],
            length => input.take(usize::from(length - 240) * 4),
        }
    }

    fn handle(&self, input: &mut Input<'_>) -> u64 {
        match input.u8() {
            0 => input.telling(u64::from(u32::MAX)),
            known => self.handles[usize::from(known) % self.handles.len()],
        }
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.geometry.bytes().next_multiple_of(PAGE));
        self.file.write_all_at(bytes, at as u64).expect("a write into the memory's file");
    }
}

/// An offset, a length or an argument: mostly such that the command is done.
fn number(input: &mut Input<'_>) -> u64 {
    if input.one_in(3) { input.telling(1 << 40) } else { u64::from(input.u8()) }
}
