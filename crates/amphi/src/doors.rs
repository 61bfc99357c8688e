//! The two doors of a mount: FUSE, for every program, and the queue, for programs that are run to use it.

use std::path::Path;
use std::sync::Arc;

use amphi_front_fuse::{MountError, MountOptions, Session};
use amphi_front_queue::{Admission, Door};
use amphi_vfs::FileSystem;

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

/// Mounts `fs` and opens a queue beside. Without one the mount serves programs all the same.
///
/// # Errors
/// As [`amphi_front_fuse::mount`].
pub fn open<F: FileSystem + 'static>(
    fs: &Arc<F>,
    directory: &Path,
    options: &MountOptions,
) -> Result<Doors, MountError> {
    let session = amphi_front_fuse::mount(Arc::clone(fs), directory, options)?;
    let Some(caches) = session.caches().cloned() else { return Ok(session.into()) };
    let admission = Admission { owner: rustix::process::geteuid().as_raw(), others: options.allow_other };
    let queue = rustix::fs::stat(session.mountpoint())
        .map_err(Into::into)
        .and_then(|root| Door::open(Arc::clone(fs), caches, root.st_dev, admission));
    match queue {
        Ok(queue) => Ok(Doors { session, queue: Some(queue) }),
        Err(error) => {
            eprintln!("amphi: amphi run will use the kernel for this mount: {error}");
            Ok(session.into())
        }
    }
}
