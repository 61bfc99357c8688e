//! A program's side of the door: it connects, gets the memory, and gives each of its threads a lane.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use amphi_queue::{Client, Memory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::door::socket_name;
use crate::hello;
use crate::lanes::FreeLanes;

/// Why a program has to use the kernel.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No daemon listens for this mount, or it is not one of ours.
    #[error("no queue is served for this mount: {0}")]
    NoDoor(#[from] io::Error),
    /// The server lets this user not in, or nobody any more.
    #[error("the mount's daemon lets nobody else in")]
    Refused,
    /// Who listens is neither the mount's owner nor the superuser.
    #[error("user {0} listens at the mount's socket, who does not own the mount")]
    Stranger(u32),
}

/// A program's connection to one mount.
#[derive(Debug)]
pub struct Connection {
    memory: Memory,
    socket: UnixStream,
    free: FreeLanes,
}

/// A door that this process stands before.
#[derive(Debug)]
pub struct Reached {
    socket: UnixStream,
    /// The process that serves the mount, as this process knows it.
    pub process: u32,
}

/// Goes to the door of the mount with the device number, which `owner` mounted.
///
/// # Errors
/// [`ConnectError`]: the mount is to be used through the kernel.
pub fn reach(device: u64, owner: u32) -> Result<Reached, ConnectError> {
    let address = SocketAddr::from_abstract_name(socket_name(device))?;
    let socket = UnixStream::connect_addr(&address)?;
    let server = rustix::net::sockopt::socket_peercred(&socket).map_err(io::Error::from)?;
    let user = server.uid.as_raw();
    if user != owner && user != 0 {
        return Err(ConnectError::Stranger(user));
    }
    Ok(Reached { socket, process: server.pid.as_raw_pid().unsigned_abs() })
}

/// Connects to the daemon of the mount with the device number, which `owner` mounted. `root` is open on the
/// mount's root directory, if only as a path.
///
/// # Errors
/// [`ConnectError`]: the mount is to be used through the kernel.
pub fn connect(device: u64, owner: u32, root: impl AsFd) -> Result<Connection, ConnectError> {
    reach(device, owner)?.enter(root)
}

impl Reached {
    /// Goes in. `root` is open on the mount's root directory, if only as a path.
    ///
    /// # Errors
    /// As [`connect`].
    pub fn enter(self, root: impl AsFd) -> Result<Connection, ConnectError> {
        hello::knock(&self.socket, root.as_fd())?;
        let fd = hello::await_welcome(&self.socket)?.ok_or(ConnectError::Refused)?;
        let memory = Memory::attach(&fd)?;
        let free = FreeLanes::new(memory.geometry().lanes());
        Ok(Connection { memory, socket: self.socket, free })
    }
}

impl Connection {
    /// The same with its socket under another number, as `moved` gives it one: for programs that expect
    /// certain numbers.
    #[must_use]
    pub fn moved(mut self, moved: impl FnOnce(OwnedFd) -> OwnedFd) -> Self {
        self.socket = moved(self.socket.into()).into();
        self
    }

    /// How many lanes there are.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        self.memory.geometry().lanes().min(u64::BITS)
    }

    /// A lane for one thread; none if all are taken.
    #[must_use]
    pub fn lane(&self) -> Option<LaneGuard<'_>> {
        let number = self.free.take()?;
        Some(LaneGuard { connection: self, number, client: Client::new(&self.memory, number) })
    }

    /// Whether the server is there.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // It says nothing after its welcome: whatever is heard is its end.
        matches!(poll(&mut fds, Some(&now)), Ok(0) | Err(rustix::io::Errno::INTR))
    }

    /// The descriptor that ends the connection when it is closed.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A thread's lane. Dropping it gives it to another thread; nothing may be in flight then.
#[derive(Debug)]
pub struct LaneGuard<'c> {
    connection: &'c Connection,
    number: u32,
    /// The lane's end.
    pub client: Client<'c>,
}

impl Drop for LaneGuard<'_> {
    fn drop(&mut self) {
        // A lane with a command under way is lost to the program, not to be mixed up.
        if self.client.in_flight() == 0 {
            self.connection.free.give_back(self.number);
        }
    }
}
