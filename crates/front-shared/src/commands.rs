//! What a mount's programs and its daemon ask of a range beside the methods of a file system: commands in the
//! queue's format, the daemon's errands, and what there is to tell.
#![allow(unsafe_code)]

use amphi_queue::format::{Completion, Submission};
use amphi_queue::{Payload, Watcher};
use amphi_vfs::{Error, Ino, Name, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::call::{Bytes, Call, Room, status};
use crate::client::Client;
use crate::operation::{Operation, errand, told};

/// Bytes of a name.
const NAME_ROOM: usize = 256;

impl Client {
    /// Carries out a command of the queue's format, whose names and data lie in `payload`, as who the kernel
    /// says that this process is. None if the range has died, or this client has left it.
    #[must_use]
    pub fn command(&self, submission: &Submission, payload: Payload<'_>) -> Option<Completion> {
        let mut call = Call::new(Operation::Command as u32, [0; 8]);
        call.first = Bytes::of(submission.as_bytes());
        call.room = Room { at: payload.start(), len: payload.len(), used: 0 };
        // SAFETY: the submission is borrowed, and the payload is this caller's to be written to, as long as
        // the call takes.
        unsafe { self.call(&mut call) };
        let completion = Completion::read_from_bytes(call.answer.as_bytes()).ok()?;
        (call.status == status::DONE).then_some(completion)
    }

    /// What the device and the file system are, as JSON.
    ///
    /// # Errors
    /// The range has died.
    pub fn info(&self) -> Result<String> {
        self.told(told::INFO, 0)
    }

    /// What they count, as JSON.
    ///
    /// # Errors
    /// The range has died.
    pub fn stats(&self) -> Result<String> {
        self.told(told::STATS, 0)
    }

    /// Cuts the device's power; `seed` decides what is left of what was not durable. The range dies of it.
    pub fn cut_power(&self, seed: u64) {
        // The call is abandoned when the range is dead: there is no answer.
        let _ = self.told(told::POWER_CUT, seed);
    }

    fn told(&self, what: u64, number: u64) -> Result<String> {
        let text = self
            .sized(|| Call::new(Operation::Tell as u32, [what, number, 0, 0, 0, 0, 0, 0]))
            .map(String::from_utf8)?;
        text.map_err(|_| Error::Invalid("text"))
    }

    /// Carries out errands for those who change something in the range, until the range has ended or is about
    /// to: `watcher` tells the kernel.
    pub fn run_errands(&self, watcher: &impl Watcher) {
        let mut came = [0; 4];
        let mut name = [0; NAME_ROOM];
        loop {
            let [number, is_given, low, high] = came;
            let mut call = Call::new(Operation::Errand as u32, [number, is_given, low, high, 0, 0, 0, 0]);
            call.room = Room::of(&mut name);
            // SAFETY: the room is this function's.
            unsafe { self.call(&mut call) };
            let [number, kind, ino, renames, ..] = call.answer;
            if call.status != status::DONE || number == 0 {
                return;
            }
            came = [number, 0, 0, 0];
            match kind {
                errand::INODE => watcher.inode(Ino(ino)),
                errand::NAME => {
                    let bytes = name.get(..call.room.used).unwrap_or(&[]);
                    if let Ok(name) = Name::new(bytes) {
                        watcher.name(Ino(ino), name, renames);
                    }
                }
                errand::PASS => {
                    if let Some(pass) = watcher.pass(Ino(ino)) {
                        came = [number, 1, pass as u64, (pass >> 64) as u64];
                    }
                }
                // A kind of a later version: nothing came of it.
                _ => {}
            }
        }
    }
}
