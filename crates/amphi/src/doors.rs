//! The two doors of a mount: FUSE, for every program, and the queue, for programs that are run to use it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use amphi_front_fuse::{KernelCaches, MountError, MountOptions, Session};
use amphi_front_queue::{Admission, Door, FILES_MAX};
use amphi_queue::{Called, CommandDevice, Marks, Taken};
use amphi_ssd::Ssd;
use amphi_vfs::FileSystem;
use amphi_volume::{TakeCommands, Volume};

/// A mount, and the queue beside it if it has one.
pub struct Doors {
    /// The FUSE session.
    pub session: Session,
    /// Open until the session has ended.
    pub queue: Option<Door>,
}

impl From<Session> for Doors {
    fn from(session: Session) -> Self {
        Self { session, queue: None }
    }
}

/// Mounts `fs` and opens a queue beside, whose commands go where the file system says: to its device, if that
/// takes them itself.
///
/// # Errors
/// As [`amphi_front_fuse::mount`].
pub fn open<V: Volume<Ssd>>(
    fs: &Arc<V>,
    directory: &Path,
    options: &MountOptions,
) -> Result<Doors, MountError> {
    open_with(fs, directory, options, |queue| V::take_commands(fs, queue))
}

/// As [`open`], and the queue's commands become calls of `fs`, as the kernel's do.
///
/// # Errors
/// As [`amphi_front_fuse::mount`].
pub fn open_by_calls<F: FileSystem + 'static>(
    fs: &Arc<F>,
    directory: &Path,
    options: &MountOptions,
) -> Result<Doors, MountError> {
    open_with(fs, directory, options, |queue| queue.by_calls(fs))
}

/// As [`open_by_calls`], for a file system in a range that programs share, which look at `marks` for what the
/// kernel has been told.
///
/// # Errors
/// As [`amphi_front_fuse::mount`].
pub fn open_shared<F: FileSystem + 'static>(
    fs: &Arc<F>,
    directory: &Path,
    options: &MountOptions,
    marks: &'static Marks,
) -> Result<Doors, MountError> {
    let session = amphi_front_fuse::mount_marked(Arc::clone(fs), directory, options, marks)?;
    Ok(beside(session, options, |queue| queue.by_calls(fs)))
}

/// Without a queue the mount serves programs all the same.
fn open_with<F: FileSystem + 'static>(
    fs: &Arc<F>,
    directory: &Path,
    options: &MountOptions,
    open_queue: impl FnOnce(Queue) -> io::Result<Door>,
) -> Result<Doors, MountError> {
    let session = amphi_front_fuse::mount(Arc::clone(fs), directory, options)?;
    Ok(beside(session, options, open_queue))
}

/// A session and the queue beside it.
fn beside(
    session: Session,
    options: &MountOptions,
    open_queue: impl FnOnce(Queue) -> io::Result<Door>,
) -> Doors {
    // What the kernel keeps for itself no other door would see.
    let caches = session.caches().filter(|_| !options.write_back).cloned();
    let Some(caches) = caches else { return session.into() };
    let admission = Admission { owner: rustix::process::geteuid().as_raw(), others: options.allow_other };
    let queue = rustix::fs::stat(session.mountpoint())
        .map_err(Into::into)
        .and_then(|root| open_queue(Queue { caches, device: root.st_dev, admission }));
    match queue {
        Ok(queue) => Doors { session, queue: Some(queue) },
        Err(error) => {
            eprintln!("amphi: amphi run will use the kernel for this mount: {error}");
            session.into()
        }
    }
}

/// A queue to be opened.
struct Queue {
    caches: KernelCaches,
    device: u64,
    admission: Admission,
}

impl<F: FileSystem + 'static> TakeCommands<F> for Queue {
    type Out = io::Result<Door>;

    fn by_calls(self, fs: &Arc<F>) -> Self::Out {
        let host = Called { fs: Arc::clone(fs), watcher: self.caches, files_max: FILES_MAX };
        Door::open(host, self.device, self.admission)
    }

    fn by_device<C: CommandDevice>(self, device: &Arc<C>) -> Self::Out {
        let host = Taken { device: Arc::clone(device), watcher: self.caches, files_max: FILES_MAX };
        Door::open(host, self.device, self.admission)
    }
}
