//! Command buffers (§4.6): memory of the host that a program puts commands into and rings for. The device
//! takes them out, checks who sends them and what they may (§4.5), carries them out on its processors, and
//! sets the completion.
//!
//! The format is `amphi_queue`'s. What takes commands out of a buffer is a task for each lane that waits for
//! the doorbell ([`Door`]), or the threads of a mount's daemon, which look at all lanes of a client
//! (`front-queue`). Either gives them to the device ([`Reception`]), where a command runs when it has a
//! processor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use amphi_device::{BlockPort, CommandPort, MemoryArea};
use amphi_queue::format::{Completion, Submission, code, op};
use amphi_queue::{
    Caller, Executor, Lane, Memory, Payload, Refusal, Server, Session, TaskBell, Watcher, protected, status,
};
use amphi_rt::sync::Mutex;
use amphi_rt::task;
use amphi_vfs::{Cred, Result};

use crate::controller::Controller;
use crate::credentials::{CredentialId, Credentials};
use crate::later::Later;
use crate::planted::{self, Bug};
use crate::processors::Processors;

/// Files that the commands of one buffer may have open.
const FILES_MAX: usize = 1 << 16;
/// How long a lane's task sleeps at a time, ns, unless the doorbell rings: nothing depends on it.
const SLEEP_NS: u64 = 10_000_000_000;

/// Whom a buffer's commands may speak for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// Whom the operating system said when it registered the buffer, whatever a command says.
    ForOne(CredentialId),
    /// Whom each command says: a buffer of the operating system itself, or of a server that it trusts.
    ForMany,
}

/// What the device needs for commands.
pub struct Inside<D: BlockPort + MemoryArea + CommandPort + 'static> {
    pub controller: Arc<Controller<D>>,
    pub processors: Processors,
    pub credentials: Credentials,
}

/// The device's end of a command buffer.
pub struct Reception<D: BlockPort + MemoryArea + CommandPort + 'static, W: Watcher = ()> {
    inside: Arc<Inside<D>>,
    session: Session<Controller<D>, Later<W>>,
    speaks: Speaks,
    /// An entry of the credential table that ends with the buffer.
    granted: Option<CredentialId>,
}

/// A registered command buffer whose lanes have tasks of their own.
pub struct Door<D: BlockPort + MemoryArea + CommandPort + 'static> {
    memory: Arc<Memory>,
    server: Server,
    reception: Reception<D>,
    bell: TaskBell,
    stopped: AtomicBool,
    tasks: Mutex<Vec<task::JoinHandle<()>>>,
}

impl<D: BlockPort + MemoryArea + CommandPort + 'static> Door<D> {
    /// Registers a buffer in which a queue was begun, and waits for its commands.
    pub(crate) fn open(inside: &Arc<Inside<D>>, memory: Arc<Memory>, speaks: Speaks) -> Arc<Self> {
        let server = Server::new(Arc::clone(&memory));
        let door = Arc::new(Self {
            reception: Reception::new(inside, (), FILES_MAX, speaks),
            memory,
            bell: TaskBell::default(),
            stopped: AtomicBool::new(false),
            tasks: Mutex::default(),
            server,
        });
        let waiting = |lane: Lane| {
            let door = Arc::clone(&door);
            task::spawn("command lane", move || door.serve(lane))
        };
        *door.tasks.lock() = door.server.lanes().into_iter().map(waiting).collect();
        door
    }

    /// The buffer.
    #[must_use]
    pub const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The doorbell, and what a completion rings.
    #[must_use]
    pub const fn bell(&self) -> &TaskBell {
        &self.bell
    }

    /// Rings the doorbell by hand: for who puts commands into the buffer without [`amphi_queue::Client`].
    pub fn ring(&self) {
        self.server.wake(&self.bell);
    }

    /// Ends what is under way, takes no more commands, and closes the files that commands have opened.
    pub fn close(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.server.end(&self.bell);
        self.server.wake(&self.bell);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        tasks.into_iter().for_each(task::JoinHandle::join);
        self.reception.close();
    }

    fn serve(&self, mut lane: Lane) {
        // Of version 0 is nobody.
        let mut caller = Caller::new(Cred::ROOT);
        while !self.stopped.load(Ordering::SeqCst) && !lane.is_broken() {
            let Some(command) = self.server.take(&mut lane) else {
                let found = || self.stopped.load(Ordering::SeqCst) || self.server.has_work(&lane);
                self.server.sleep(&self.bell, SLEEP_NS, found);
                continue;
            };
            let answer = if self.server.is_fresh(&lane, &command) {
                self.reception.execute(&mut caller, &command, self.server.payload(&lane))
            } else {
                refused(code::MALFORMED)
            };
            self.server.complete(&mut lane, answer, &self.bell);
        }
    }
}

impl<D: BlockPort + MemoryArea + CommandPort + 'static, W: Watcher + 'static> Executor for Reception<D, W> {
    fn execute(&self, caller: &mut Caller, command: &Submission, payload: Payload<'_>) -> Completion {
        let controller = &self.inside.controller;
        controller.counters.buffered.fetch_add(1, Ordering::Relaxed);
        let device = &controller.media.device;
        let (given, taken) = moved(command, payload.len() as u64);
        if device.receive(given).is_err() {
            return refused(code::IO);
        }
        let answer = {
            let processors = &self.inside.processors;
            let _processor = (!planted::has(Bug::ProcessorNotTaken)).then(|| processors.take());
            device.compute(given + taken);
            let answer = match self.admit(command, caller) {
                true => match self.make_room(command) {
                    Ok(()) => self.session.execute(
                        caller,
                        &Submission { credential: 0.into(), ..*command },
                        payload,
                    ),
                    Err(error) => refused(status(&Refusal::FileSystem(error))),
                },
                false => refused(code::BAD_CREDENTIAL),
            };
            controller.pay_for_moves();
            answer
        };
        self.session.watcher().tell();
        match device.complete(taken.min(answer.len.get().into())) {
            Ok(()) => answer,
            Err(_) => refused(code::IO),
        }
    }

    fn close(&self) {
        self.session.close_all();
        if let Some(id) = self.granted {
            let _was_there = self.inside.credentials.revoke(id);
        }
    }
}

impl<D: BlockPort + MemoryArea + CommandPort + 'static, W: Watcher> Reception<D, W> {
    fn new(inside: &Arc<Inside<D>>, watcher: W, files_max: usize, speaks: Speaks) -> Self {
        let session =
            Session::new(Arc::clone(&inside.controller), Later::new(watcher), files_max).asking_each_time();
        Self { inside: Arc::clone(inside), session, speaks, granted: None }
    }

    /// For one program, whose entry in the credential table is made here and ends with the buffer. None: the
    /// table is full.
    pub(crate) fn for_one(
        inside: &Arc<Inside<D>>,
        cred: &Cred,
        files_max: usize,
        watcher: W,
    ) -> Option<Self> {
        let id = inside.credentials.grant(cred.clone())?;
        let reception = Self::new(inside, watcher, files_max, Speaks::ForOne(id));
        let session = reception.session.protecting(protected());
        Some(Self { granted: Some(id), session, ..reception })
    }

    /// Sees to it that there is device memory for a command.
    fn make_room(&self, command: &Submission) -> Result<()> {
        let controller = &self.inside.controller;
        controller.relieve();
        if command.operation.get() == op::OPEN { controller.may_open() } else { Ok(()) }
    }

    /// Looks up who sends a command. False: nobody whom the operating system has put into the table.
    fn admit(&self, command: &Submission, caller: &mut Caller) -> bool {
        let said = command.credential.get();
        let id = match self.speaks {
            Speaks::ForOne(id) if said == 0 || said == id.number() => id.number(),
            // It says that it is somebody else.
            Speaks::ForOne(_) => return false,
            Speaks::ForMany => said,
        };
        let Some((now, cred)) = self.inside.credentials.get(id) else { return false };
        if now != caller.version && !(caller.version > 0 && planted::has(Bug::CredentialKept)) {
            caller.cred = Cred::clone(&cred);
            caller.version = now;
        }
        true
    }
}

/// Bytes that a command brings and takes away, of a payload of `most` bytes.
fn moved(command: &Submission, most: u64) -> (u64, u64) {
    let bytes = |span: amphi_queue::format::Span| u64::from(span.len.get()).min(most);
    let (names, data) = (bytes(command.first) + bytes(command.second), bytes(command.data));
    match command.operation.get() {
        op::WRITE | op::SET_XATTR | op::SET_ATTRIBUTES => (names + data, 0),
        _ => (names, data),
    }
}

fn refused(code: u16) -> Completion {
    Completion { status: code.into(), ..Completion::default() }
}
