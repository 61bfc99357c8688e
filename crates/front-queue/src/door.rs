//! Where clients come in: a socket, and for each client memory and threads.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;

use amphi_queue::{Executor, Geometry, Host, Memory, Server};
use amphi_rt::{cpu, task, time};
use amphi_vfs::{Cred, Ino};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{
    AtFlags, MemfdFlags, SealFlags, StatxFlags, fcntl_add_seals, ftruncate, makedev, memfd_create, statx,
};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::workers::Work;
use crate::{hello, peer};

/// Lanes of a client: as many of its threads can have commands under way at once.
const LANES: u32 = 32;
/// Bytes of a lane's payload area: as much as one command moves. Pages that are not touched take no memory.
const PAYLOAD_BYTES: u32 = 1 << 20;
/// Most files that a client has open.
pub const FILES_MAX: usize = 1 << 16;
/// Most clients at a time, of all users. Others use the kernel.
const CLIENTS_MAX: usize = 512;
/// Most clients of one user but the mount's own.
const CLIENTS_OF_A_USER_MAX: usize = 64;

/// The socket of the mount that has the device number: an abstract one, so that it needs no directory and
/// goes away with its server.
#[must_use]
pub fn socket_name(device: u64) -> String {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    format!("amphi-queue-{major}:{minor}")
}

/// How long a mount waits for its socket's name. The kernel gives the number of a device away again as soon
/// as its mount is gone, while the daemon of that mount still closes its door.
const NAME_NS_MAX: u64 = 5_000_000_000;

/// A socket for clients of the mount with the device number.
fn listen(device: u64) -> io::Result<UnixListener> {
    const PAUSE_NS: u64 = 5_000_000;
    let address = SocketAddr::from_abstract_name(socket_name(device))?;
    let end_ns = time::now_ns() + NAME_NS_MAX;
    loop {
        match UnixListener::bind_addr(&address) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && time::now_ns() < end_ns => {
                time::sleep_ns(PAUSE_NS);
            }
            bound => return bound,
        }
    }
}

/// Most clients that have connected and not yet said what they want.
const KNOCKING_MAX: usize = 64;

/// Who may come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Whose mount it is.
    pub owner: u32,
    /// Other users too, within the files' permissions (`allow_other`).
    pub others: bool,
}

/// An open door. [`close`](Self::close) it before the file system is unmounted.
#[derive(Debug)]
pub struct Door {
    /// Closing it ends the task that listens.
    end: Option<OwnedFd>,
    listening: Option<task::JoinHandle<()>>,
}

impl Door {
    /// Opens the door of the mount with the device number, to what carries out the commands of those who
    /// come.
    ///
    /// # Errors
    /// The socket cannot be made, or somebody has it.
    pub fn open(host: impl Host, device: u64, admission: Admission) -> io::Result<Self> {
        let listener = listen(device)?;
        listener.set_nonblocking(true)?;
        let (ended, end) = pipe_with(PipeFlags::CLOEXEC)?;
        let (knocking, clients) = (VecDeque::new(), BTreeMap::new());
        let hall = Hall { host, device, admission, knocking, clients, next: 0 };
        let listening = task::spawn("queue-door", move || hall.receive(&listener, &ended));
        Ok(Self { end: Some(end), listening: Some(listening) })
    }

    /// Lets nobody in any more, ends all clients after the command that each is at, and lets go of the file
    /// system.
    pub fn close(mut self) {
        self.shut();
    }

    fn shut(&mut self) {
        drop(self.end.take());
        if let Some(listening) = self.listening.take() {
            listening.join();
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shut();
    }
}

struct Client<E: Executor> {
    socket: UnixStream,
    uid: u32,
    work: Arc<Work<E>>,
    threads: Vec<task::JoinHandle<()>>,
}

/// The task that listens, and who is inside.
struct Hall<H: Host> {
    host: H,
    device: u64,
    admission: Admission,
    /// Connections that have said nothing yet.
    knocking: VecDeque<UnixStream>,
    clients: BTreeMap<u64, Client<H::Executor>>,
    next: u64,
}

impl<H: Host> Hall<H> {
    fn receive(mut self, listener: &UnixListener, ended: &OwnedFd) {
        loop {
            let (mut come, mut spoken, mut gone, mut end) = (false, Vec::new(), Vec::new(), false);
            {
                let watched = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
                let mut fds = vec![watched(listener.as_fd()), watched(ended.as_fd())];
                fds.extend(self.knocking.iter().map(|socket| watched(socket.as_fd())));
                let inside = fds.len();
                fds.extend(self.clients.values().map(|client| watched(client.socket.as_fd())));
                match poll(&mut fds, None) {
                    Ok(_) => {
                        come = !fds[0].revents().is_empty();
                        end = !fds[1].revents().is_empty();
                        spoken = fds[2..inside].iter().map(|fd| !fd.revents().is_empty()).collect();
                        let closed = fds[inside..].iter().map(|fd| !fd.revents().is_empty());
                        // A client says nothing after its arrival: whatever is heard is its end.
                        gone = self
                            .clients
                            .keys()
                            .zip(closed)
                            .filter(|(_, is)| *is)
                            .map(|(id, _)| *id)
                            .collect();
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => {
                        tracing::warn!("the door for queues closes: {error}");
                        end = true;
                    }
                }
            }
            for id in gone {
                self.see_off(id);
            }
            if end {
                break;
            }
            let knocking = std::mem::take(&mut self.knocking)
                .into_iter()
                .zip(spoken.into_iter().chain(std::iter::repeat(false)));
            for (socket, has_spoken) in knocking {
                if has_spoken { self.let_in(socket) } else { self.knocking.push_back(socket) }
            }
            if come && let Ok((socket, _)) = listener.accept() {
                // Whoever says nothing makes room for others.
                if self.knocking.len() == KNOCKING_MAX {
                    self.knocking.pop_front();
                }
                self.knocking.push_back(socket);
            }
        }
        for client in self.clients.values() {
            client.work.stop();
        }
        while let Some(id) = self.clients.keys().next().copied() {
            self.see_off(id);
        }
    }

    fn let_in(&mut self, socket: UnixStream) {
        let entered = hello::knocked(&socket).and_then(|root| {
            let cred = peer::credentials(&socket)?;
            if !self.is_root(&root) || !self.admits(&cred) {
                hello::refuse(&socket);
                return Ok(());
            }
            let (fd, memory) = shared_memory()?;
            let Some(executor) = self.host.admit(&cred) else {
                hello::refuse(&socket);
                return Ok(());
            };
            let work = Arc::new(Work::new(Server::new(Arc::new(memory)), executor, &cred));
            if let Err(gone) = hello::welcome(&socket, fd.as_fd()) {
                work.close();
                return Err(gone);
            }
            let threads = work.start(cpu::count().clamp(2, 8));
            self.clients.insert(self.next, Client { socket, uid: cred.uid, work, threads });
            self.next += 1;
            Ok(())
        });
        if let Err(error) = entered {
            tracing::debug!("a client of the queues did not get in: {error}");
        }
    }

    /// Whether a client's directory is the root of this mount. Only what the kernel remembers is asked: a
    /// directory of anybody's file system may never answer.
    fn is_root(&self, directory: &OwnedFd) -> bool {
        let stat = statx(directory, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::INO);
        stat.is_ok_and(|stat| {
            makedev(stat.stx_dev_major, stat.stx_dev_minor) == self.device && stat.stx_ino == Ino::ROOT.0
        })
    }

    fn admits(&self, cred: &Cred) -> bool {
        let is_owner = cred.uid == self.admission.owner;
        let of_user = self.clients.values().filter(|client| client.uid == cred.uid).count();
        (is_owner || self.admission.others)
            && self.clients.len() < CLIENTS_MAX
            && (is_owner || of_user < CLIENTS_OF_A_USER_MAX)
    }

    /// Ends a client's threads, and closes what it had open.
    fn see_off(&mut self, id: u64) {
        let Some(client) = self.clients.remove(&id) else { return };
        client.work.stop();
        client.threads.into_iter().for_each(task::JoinHandle::join);
        client.work.close();
    }
}

/// Memory of a fixed size that nobody can change, with an empty queue in it.
fn shared_memory() -> io::Result<(OwnedFd, Memory)> {
    let geometry = Geometry::new(LANES, PAYLOAD_BYTES).expect("constants in range");
    let fd = memfd_create("amphi-queue", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, geometry.bytes() as u64)?;
    fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    let memory = Memory::create(&fd, geometry)?;
    Ok((fd, memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its clients would have gone to the kernel for as long as it was mounted.
    #[test]
    fn a_mount_waits_for_the_name_that_another_one_had() {
        let device = makedev(4095, std::process::id());
        let old = listen(device).expect("nobody has the name");
        let closing = task::spawn("closing", move || {
            time::sleep_ns(50_000_000);
            drop(old);
        });
        listen(device).expect("the name is free in the end");
        closing.join();
    }
}
