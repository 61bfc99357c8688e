//! A program's side: it connects, maps the range, and calls.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use amphi_queue::Marks;
use amphi_rt::sync::Mutex;
use amphi_rt::{task, time};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::Shutdown;

use crate::call::Call;
use crate::gate;
use crate::hello::{self, Welcome};
use crate::layout::{self, CONTEXTS, DEAD};
use crate::map::Map;
use crate::protection::{Protection, Shield};
use crate::signals::Quiet;

/// Why a program does not get in.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens, or something else does.
    #[error("no shared range is served there: {0}")]
    NoDoor(#[from] io::Error),
    /// The range is another user's.
    #[error("the range lets nobody in but its owner's processes")]
    Refused,
    /// Who listens is neither this user nor the superuser.
    #[error("user {0} serves the range, whom this process does not trust")]
    Stranger(u32),
    /// No gate.
    #[error("{}", gate::WHY_NO_GATE)]
    NoGate,
    /// The range wants protection keys, which are not here.
    #[error("the range is protected by keys, which this processor or kernel does not have")]
    NoKeys,
    /// The range cannot be mapped.
    #[error("the range cannot be mapped at its addresses: {0}")]
    Map(rustix::io::Errno),
}

/// How a process comes into a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// As a program, against whose stray stores the range is protected as its manager wants it.
    Program,
    /// As the range's own server, all of whose code is trusted: it is open all the time.
    Server,
}

/// How long a process that leaves waits for its threads that are inside, ns.
const LEAVING_NS: u64 = 2_000_000_000;
/// How long a thread sleeps that finds all contexts taken, or waits for others to leave, ns.
const WAIT_NS: u64 = 20_000;

#[derive(Debug)]
struct Inside {
    map: Map,
    shield: Shield,
    told: Welcome,
    entry: u64,
    contexts: usize,
    socket: UnixStream,
    /// This client lets none of its threads in any more, or has ended the connection.
    left: AtomicBool,
}

/// A process's way into a range. It is a [`FileSystem`](amphi_vfs::FileSystem): see `proxy.rs`.
///
/// When the range dies, because somebody who was inside did or its manager, each call fails with an I/O
/// error: connect again, and look up again what was in use. A child that `fork` makes has to connect for
/// itself too.
#[derive(Debug)]
pub struct Client {
    inside: Arc<Inside>,
    watcher: Mutex<Option<task::JoinHandle<()>>>,
}

impl Client {
    /// Connects to the range whose manager listens at a name.
    ///
    /// # Errors
    /// [`ConnectError`]: the file system is to be used another way.
    pub fn connect(name: &str) -> Result<Self, ConnectError> {
        Self::connect_as(name, How::Program, |socket| socket)
    }

    /// As [`connect`](Self::connect). The socket gets another number, as `moved` gives it one: for programs
    /// that expect certain numbers.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect_moved(name: &str, moved: impl FnOnce(OwnedFd) -> OwnedFd) -> Result<Self, ConnectError> {
        Self::connect_as(name, How::Program, moved)
    }

    /// As [`connect`](Self::connect), for the process that serves the range to the kernel, which is trusted
    /// as the range's own code is: it is not protected there, and stays mapped until the process ends. With
    /// it come the marks of what the kernel has been told: who serves sets them, and who changes anything in
    /// the range looks at them.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect_server(name: &str) -> Result<(Arc<Self>, &'static Marks), ConnectError> {
        let client = Arc::new(Self::connect_as(name, How::Server, |socket| socket)?);
        // SAFETY: the mapping lives as long as a client does that is never dropped; and what is withdrawn of
        // a dead range, the marks are no part of.
        let marks = unsafe { &*ptr::from_ref(client.inside.map.marks()) };
        std::mem::forget(Arc::clone(&client));
        Ok((client, marks))
    }

    fn connect_as(
        name: &str,
        how: How,
        moved: impl FnOnce(OwnedFd) -> OwnedFd,
    ) -> Result<Self, ConnectError> {
        if !gate::is_here() {
            return Err(ConnectError::NoGate);
        }
        let socket = UnixStream::connect_addr(&hello::address(name)?)?;
        let server = rustix::net::sockopt::socket_peercred(&socket).map_err(io::Error::from)?.uid.as_raw();
        if server != 0 && server != rustix::process::geteuid().as_raw() {
            return Err(ConnectError::Stranger(server));
        }
        let (told, memory, image) = hello::await_welcome(&socket)?.ok_or(ConnectError::Refused)?;
        let map = Map::attach(&memory, &image, told.base, told.image_bytes).map_err(ConnectError::Map)?;
        let entry = map.header().entry.load(Ordering::Relaxed);
        let contexts = (map.header().contexts.load(Ordering::Relaxed) as usize).min(CONTEXTS);
        let protection = match how {
            How::Program => told.protection,
            How::Server => Protection::Nothing,
        };
        let shield = Shield::raise(protection, &map).ok_or(ConnectError::NoKeys)?;
        let socket = UnixStream::from(moved(socket.into()));
        let inside =
            Arc::new(Inside { map, shield, told, entry, contexts, socket, left: AtomicBool::new(false) });
        let of_watcher = Arc::clone(&inside);
        // A thread that the program does not know of takes none of its signals.
        let quiet = Quiet::begin_for_good();
        // A program may have as many threads as it can.
        let spawn = AssertUnwindSafe(|| task::spawn("shared-range", move || of_watcher.watch()));
        let watcher = catch_unwind(spawn).map_err(|_| io::Error::other("no thread can be started"))?;
        drop(quiet);
        Ok(Self { inside, watcher: Mutex::new(Some(watcher)) })
    }

    /// The descriptor that ends the connection when it is closed.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.inside.socket.as_fd()
    }

    /// Leaves the range: its threads that are inside come out, none goes in, and calls fail from now on. For
    /// a program that is about to end or to become another one, whose threads would end inside. It waits for
    /// them for two seconds at the most.
    pub fn leave(&self) {
        if !self.inside.map.is_here() {
            return;
        }
        self.inside.left.store(true, Ordering::SeqCst);
        let watcher = self.watcher.try_lock().and_then(|mut watcher| watcher.take());
        let Some(watcher) = watcher else { return };
        self.inside.await_own(LEAVING_NS);
        let _already_ended = rustix::net::shutdown(&self.inside.socket, Shutdown::Both);
        watcher.join();
    }

    /// Waits, for two seconds at the most, until none of this process's threads is inside that was when this
    /// was called.
    pub fn await_outside(&self) {
        self.inside.await_own(LEAVING_NS);
    }

    /// How the range is protected.
    #[must_use]
    pub fn protection(&self) -> Protection {
        self.inside.told.protection
    }

    /// Where the range lies: its first address, and the bytes of its memory and of its image, which begin at
    /// [`layout::IMAGE_AT`].
    #[must_use]
    pub fn range(&self) -> (u64, u64, u64) {
        (self.inside.told.base, layout::MEMORY_BYTES, self.inside.told.image_bytes)
    }

    /// Makes a call. Its status says what became of it.
    ///
    /// # Safety
    /// The call's buffers can be read, and its room written, as it says.
    #[inline]
    pub unsafe fn call(&self, call: &mut Call) {
        // SAFETY: the caller's promise.
        unsafe { self.inside.call(call) }
    }
}

thread_local! {
    /// This thread's number, and the context that it had last.
    static LAST: Cell<(u32, usize)> = const { Cell::new((0, 0)) };
}

impl Inside {
    unsafe fn call(&self, call: &mut Call) {
        if !self.map.is_here() {
            return;
        }
        call.client = self.told.client;
        let mut quiet = Quiet::begin(self.shield.lets_signals_in());
        if !self.shield.open(&self.map) {
            return;
        }
        if let Some(number) = self.take() {
            quiet.insist();
            let context = self.map.context(number);
            // SAFETY: the context is this thread's until its owner word is cleared; signals wait, the
            // range is open, and the range's code is a client's trusted library.
            unsafe {
                (*context).clock = gate::clock();
                gate::call(call, context, self.entry);
            }
            self.map.owner(number).store(0, Ordering::Release);
            if self.map.header().dead.load(Ordering::Relaxed) == DEAD {
                self.tell_of_death();
            }
        }
        self.shield.close(&self.map);
    }

    /// A call has come out of a range that has died: the manager learns it by the end of this connection, if
    /// the range died of what the call did.
    #[cold]
    fn tell_of_death(&self) {
        let _already_ended = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// A context that nobody has; none if the range is dead.
    fn take(&self) -> Option<usize> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let (mut thread, mut last) = LAST.get();
        if thread == 0 {
            thread = gate::thread();
            last = self.told.client as usize * 4 + NEXT.fetch_add(1, Ordering::Relaxed);
            LAST.set((thread, last));
        }
        let owner = layout::owner(self.told.client, thread);
        loop {
            if self.left.load(Ordering::Relaxed) {
                return None;
            }
            for step in 0..self.contexts {
                let number = (last + step) % self.contexts;
                let word = self.map.owner(number);
                if word.load(Ordering::Relaxed) == 0
                    && word.compare_exchange(0, owner, Ordering::SeqCst, Ordering::Relaxed).is_ok()
                {
                    // Looked at after the word is set: who declares the range dead waits for words after
                    // that.
                    if self.is_dead() || self.left.load(Ordering::SeqCst) {
                        word.store(0, Ordering::Release);
                        return None;
                    }
                    if step > 0 {
                        LAST.set((thread, number));
                    }
                    return Some(number);
                }
            }
            if self.is_dead() {
                return None;
            }
            time::sleep_ns(WAIT_NS);
        }
    }

    fn is_dead(&self) -> bool {
        self.map.header().dead.load(Ordering::SeqCst) != 0
    }

    /// Waits for the manager's end, or for this client's, then lets everybody of this process leave and takes
    /// the range away.
    fn watch(&self) {
        loop {
            let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
            // It says nothing after its welcome: whatever is heard is its end.
            if !matches!(poll(&mut fds, None), Err(rustix::io::Errno::INTR)) {
                break;
            }
        }
        if self.shield.open(&self.map) {
            if !self.left.load(Ordering::SeqCst) {
                self.map.header().dead.store(DEAD, Ordering::SeqCst);
            }
            fence(Ordering::SeqCst);
            self.shield.close(&self.map);
        }
        self.await_own(u64::MAX);
        self.map.withdraw();
    }

    /// Waits, so long at the most, until none of this client's threads is inside.
    fn await_own(&self, limit_ns: u64) {
        if self.shield.open(&self.map) {
            let deadline_ns = time::now_ns().saturating_add(limit_ns);
            while self.has_own_inside() && time::now_ns() < deadline_ns {
                time::sleep_ns(WAIT_NS);
            }
            self.shield.close(&self.map);
        }
    }

    fn has_own_inside(&self) -> bool {
        (0..self.contexts).any(|number| {
            layout::client_of(self.map.owner(number).load(Ordering::SeqCst)) == Some(self.told.client)
        })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.leave();
    }
}
