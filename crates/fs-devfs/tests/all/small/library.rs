//! A program's library at a command buffer of the device.

use std::sync::Arc;

use amphi_fs_devfs::{CredentialId, DevFs, Door, Speaks};
use amphi_queue::format::{Change, Completion, Span, Submission, change, code, flag, op};
use amphi_queue::{Client, Geometry, Memory, Patience};
use amphi_ssd::Ssd;
use amphi_vfs::{Capabilities, Cred};
use zerocopy::IntoBytes;

pub const PAYLOAD: u32 = 16 << 10;
pub const DATA_AT: u32 = 4096;
const PATIENCE: Patience = Patience { spin_ns: 0, sleep_ns: 1_000_000_000 };

pub fn user(uid: u32) -> Cred {
    Cred { uid, gid: uid, capabilities: Capabilities::NONE, ..Cred::ROOT }
}

pub fn grant(fs: &DevFs<Ssd>, cred: Cred) -> CredentialId {
    fs.credentials().grant(cred).expect("the table has room")
}

/// A buffer of `lanes` lanes that speaks for `cred`.
pub fn door(fs: &DevFs<Ssd>, lanes: u32, cred: Cred) -> Arc<Door<Ssd>> {
    let memory = Memory::private(Geometry::new(lanes, PAYLOAD).unwrap()).unwrap();
    fs.register(Arc::new(memory), Speaks::ForOne(grant(fs, cred)))
}

/// A program's library: one lane of a buffer.
pub struct Library<'d> {
    pub door: &'d Door<Ssd>,
    pub client: Client<'d>,
    pub credential: u64,
}

impl<'d> Library<'d> {
    pub fn new(door: &'d Door<Ssd>, lane: u32) -> Self {
        Self { door, client: Client::new(door.memory(), lane), credential: 0 }
    }

    pub fn raw(&mut self, command: Submission) -> Completion {
        self.client.submit(command, self.door.bell());
        self.client.wait(PATIENCE, self.door.bell(), || true).expect("the device answers")
    }

    pub fn send(&mut self, command: Submission, path: &[u8], data: &[u8], room: u32) -> Completion {
        let payload = self.client.payload();
        payload.put(path);
        payload.part(DATA_AT, data.len() as u32).unwrap().put(data);
        self.raw(Submission {
            first: Span::new(0, path.len() as u32),
            data: Span::new(DATA_AT, room.max(data.len() as u32)),
            credential: self.credential.into(),
            ..command
        })
    }

    pub fn open(&mut self, path: &[u8], flags: u16, mode: u64) -> Completion {
        let command = Submission {
            operation: op::OPEN.into(),
            flags: flags.into(),
            argument: mode.into(),
            ..Submission::default()
        };
        self.send(command, path, &[], 0)
    }

    pub fn create(&mut self, path: &[u8], mode: u64) -> u64 {
        let made = self.open(path, flag::CREATE | flag::READ | flag::WRITE, mode);
        assert_eq!(made.status.get(), code::DONE);
        made.value.get()
    }

    pub fn write(&mut self, handle: u64, offset: u64, data: &[u8]) -> u16 {
        let command = Submission {
            operation: op::WRITE.into(),
            handle: handle.into(),
            offset: offset.into(),
            ..Submission::default()
        };
        self.send(command, &[], data, 0).status.get()
    }

    pub fn read(&mut self, handle: u64, len: u32) -> Result<Vec<u8>, u16> {
        let command =
            Submission { operation: op::READ.into(), handle: handle.into(), ..Submission::default() };
        let answer = self.send(command, &[], &[], len);
        match answer.status.get() {
            code::DONE => {
                Ok(self.client.payload().part(DATA_AT, answer.value.get() as u32).unwrap().to_vec())
            }
            refused => Err(refused),
        }
    }

    pub fn chmod(&mut self, path: &[u8], mode: u32) -> u16 {
        let change = Change { which: change::MODE.into(), mode: mode.into(), ..Change::default() };
        let command = Submission { operation: op::SET_ATTRIBUTES.into(), ..Submission::default() };
        self.send(command, path, change.as_bytes(), 0).status.get()
    }
}
