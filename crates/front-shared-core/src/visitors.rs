//! Who uses the file system: the references that each client holds, and for programs that give commands their
//! open files, and who they are.

use std::cell::Cell;
use std::sync::Arc;

use amphi_queue::format::{Completion, Submission};
use amphi_queue::{Caller, Payload, Session, protected};
use amphi_rt::sync::RwLock;
use amphi_rt::sync::atomic::AtomicU64;
use amphi_vfs::{Cred, FileSystem};

use crate::errands::Errands;
use crate::guests::Guest;

/// Most clients at a time.
pub(crate) const CLIENTS_MAX: usize = 256;
/// Most files that a client has open.
const FILES_MAX: usize = 1 << 16;

/// A program that gives commands.
struct Program<F: FileSystem> {
    session: Session<F, Errands>,
    cred: Cred,
    /// Which program this is, of all that came.
    turn: u64,
}

/// One client.
pub(crate) struct Visitor<F: FileSystem> {
    /// What it holds by calls.
    pub(crate) guest: Guest,
    program: RwLock<Option<Program<F>>>,
}

thread_local! {
    /// What this context carried commands out with last, and for whom: buffers are used again.
    static CALLER: Cell<Option<(u64, Caller)>> = const { Cell::new(None) };
}

impl<F: FileSystem> Default for Visitor<F> {
    fn default() -> Self {
        Self { guest: Guest::default(), program: RwLock::new(None) }
    }
}

impl<F: FileSystem> Visitor<F> {
    /// Somebody has come in, for whom the kernel has vouched.
    pub(crate) fn come(&self, fs: &Arc<F>, cred: Cred) {
        static TURNS: AtomicU64 = AtomicU64::new(0);
        let turn = TURNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let session = Session::new(Arc::clone(fs), Errands, FILES_MAX).protecting(protected());
        *self.program.write() = Some(Program { session, cred, turn });
    }

    /// Carries out a command. None: nobody is there.
    pub(crate) fn command(&self, submission: &Submission, payload: Payload<'_>) -> Option<Completion> {
        let program = self.program.read();
        let program = program.as_ref()?;
        let last = CALLER.take().filter(|(turn, _)| *turn == program.turn);
        let (turn, mut caller) = last.unwrap_or_else(|| (program.turn, Caller::new(program.cred.clone())));
        let completion = program.session.execute(&mut caller, submission, payload);
        CALLER.set(Some((turn, caller)));
        Some(completion)
    }

    /// It has gone: lets go of everything.
    pub(crate) fn see_off(&self, fs: &F) {
        if let Some(program) = self.program.write().take() {
            program.session.close_all();
        }
        self.guest.see_off(fs);
    }
}
