//! The queue of a mount's daemon: its root is found in the table of mounts, each command takes a lane.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use amphi_front_queue::{Connection, FutexBell, connect, listed_mounts};
use amphi_queue::Patience;
use amphi_queue::format::{Completion, op};
use amphi_rt::sync::Semaphore;
use amphi_vfs::Ino;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, statx};

use crate::errno::{OpenError, error};
use crate::request::Request;

/// How long a thread looks for its answer before it sleeps, ns; how long it sleeps before it asks whether the
/// daemon lives.
const PATIENCE: Patience = Patience { spin_ns: 30_000, sleep_ns: 200_000_000 };

/// A connection, and how many of its lanes are free.
pub struct Mounted {
    connection: Connection,
    lanes: Semaphore,
    /// Where the mount is. No descriptor: one would keep it from being unmounted.
    directory: PathBuf,
    device: u64,
}

impl Mounted {
    /// Connects to the daemon of the mount at `directory`. With it comes the mount's device number.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(directory: &Path) -> Result<(Self, u64), OpenError> {
        let shown = || directory.display().to_string();
        let cannot = |error: rustix::io::Errno| OpenError::Directory(shown(), error.into());
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(directory, how, Mode::empty()).map_err(cannot)?;
        let stat = rustix::fs::fstat(&root).map_err(cannot)?;
        let table = std::fs::read("/proc/self/mountinfo")
            .map_err(|error| OpenError::Directory("/proc/self/mountinfo".to_owned(), error))?;
        let listed = listed_mounts(&table).into_iter().find(|mount| mount.device == stat.st_dev);
        let listed =
            listed.filter(|_| stat.st_ino == Ino::ROOT.0).ok_or_else(|| OpenError::NotAMount(shown()))?;
        let connection = connect(listed.device, listed.owner, root.as_fd())?;
        let lanes = Semaphore::new(connection.lanes() as usize);
        // The program may work elsewhere when the path is used.
        let directory =
            std::path::absolute(directory).map_err(|error| OpenError::Directory(shown(), error))?;
        Ok((Self { connection, lanes, directory, device: listed.device }, listed.device))
    }

    /// Carries out one command. Threads beyond the number of lanes wait for one.
    ///
    /// # Errors
    /// What it says; the daemon has ended.
    pub fn run(&self, request: Request<'_>) -> io::Result<Completion> {
        let _permit = self.lanes.acquire(1);
        // A lane whose command was never answered is lost, and with it the daemon.
        let mut lane = self.connection.lane().ok_or_else(|| error(libc::ENOTCONN))?;
        let moved_to = (request.command.operation == op::RENAME).then_some(request.second);
        let done = request.carry_out(lane.client.payload(), |submission| {
            lane.client.submit(submission, &FutexBell);
            let answered = lane.client.wait(PATIENCE, &FutexBell, || self.connection.is_alive());
            answered.map_err(|_ended| error(libc::ENOTCONN))
        })?;
        drop(lane);
        if let Some(path) = moved_to.filter(|_| done.value.get() != 0) {
            self.find_moved(path);
        }
        Ok(done)
    }

    /// Has the kernel look up a directory that this program moved to `path` below the root. Who has it open
    /// by the kernel, or works in it, hears `ESTALE` or `ENOENT` from some calls until then.
    fn find_moved(&self, path: &[u8]) {
        let how = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(root) = rustix::fs::open(&self.directory, how, Mode::empty()) else { return };
        if rustix::fs::fstat(&root).is_ok_and(|stat| stat.st_dev == self.device) {
            let _ = statx(&root, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE);
        }
    }
}
