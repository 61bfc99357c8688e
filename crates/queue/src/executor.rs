//! Who carries out the commands of a client: a session of a file system that is called, or a device whose
//! firmware is the file system. The threads that take commands out of the memory are written against this.

use std::sync::Arc;

use amphi_vfs::{Cred, FileSystem};

use crate::format::{Completion, Submission};
use crate::memory::Payload;
use crate::protected::protected;
use crate::session::{Caller, Session, Watcher};

/// Carries out the commands of one client.
pub trait Executor: Send + Sync + 'static {
    /// Carries out one command, a copy of what the client submitted, whose names and data are in `payload`.
    fn execute(&self, caller: &mut Caller, command: &Submission, payload: Payload<'_>) -> Completion;

    /// The client has gone, and none of its commands is under way: closes what it had open, and forgets it.
    fn close(&self);
}

/// What clients come to.
pub trait Host: Send + Sync + 'static {
    /// What carries out a client's commands.
    type Executor: Executor;

    /// Lets a client in, for whom the kernel has vouched. None: there is no room for another one.
    fn admit(&self, cred: &Cred) -> Option<Self::Executor>;
}

impl<F: FileSystem + 'static, W: Watcher + 'static> Executor for Session<F, W> {
    fn execute(&self, caller: &mut Caller, command: &Submission, payload: Payload<'_>) -> Completion {
        self.execute(caller, command, payload)
    }

    fn close(&self) {
        self.close_all();
    }
}

/// A file system that is called, as the kernel calls it.
#[derive(Debug)]
pub struct Called<F, W> {
    /// The file system.
    pub fs: Arc<F>,
    /// Who must know what clients change.
    pub watcher: W,
    /// Most files that a client has open.
    pub files_max: usize,
}

impl<F: FileSystem + 'static, W: Watcher + Clone + 'static> Host for Called<F, W> {
    type Executor = Session<F, W>;

    fn admit(&self, _: &Cred) -> Option<Session<F, W>> {
        self.watcher.begins();
        let session = Session::new(Arc::clone(&self.fs), self.watcher.clone(), self.files_max);
        Some(session.protecting(protected()))
    }
}

/// A device whose firmware takes commands itself (DevFS §4.6).
pub trait CommandDevice: Send + Sync + 'static {
    /// The device's end of a command buffer.
    type Executor<W: Watcher + 'static>: Executor;

    /// Registers a command buffer, as the operating system does: from now on its commands are those of
    /// `cred`, whatever they say of themselves, and may have `files_max` files open. None: the device knows
    /// as many credentials as it can.
    fn register<W: Watcher + 'static>(
        &self,
        cred: &Cred,
        files_max: usize,
        watcher: W,
    ) -> Option<Self::Executor<W>>;
}

/// A device that takes commands itself, and who else must know what they change.
#[derive(Debug)]
pub struct Taken<C, W> {
    /// The device.
    pub device: Arc<C>,
    /// Who must know what clients change.
    pub watcher: W,
    /// Most files that a client has open.
    pub files_max: usize,
}

impl<C: CommandDevice, W: Watcher + Clone + 'static> Host for Taken<C, W> {
    type Executor = C::Executor<W>;

    fn admit(&self, cred: &Cred) -> Option<Self::Executor> {
        self.watcher.begins();
        self.device.register(cred, self.files_max, self.watcher.clone())
    }
}
