//! The life of a mount: attached, served, unmounted.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use amphi_rt::task::{self, JoinHandle};
use amphi_vfs::FileSystem;
use fuser::{Config, SessionACL};

use crate::answered::Answered;
use crate::attach::{self, MountError};
use crate::options::MountOptions;
use crate::serve::Server;

/// A mounted file system. Dropping it detaches the mount and leaves what still runs on it to end by itself.
#[derive(Debug)]
pub struct Session {
    mountpoint: PathBuf,
    serving: Option<JoinHandle<std::io::Result<()>>>,
}

/// Mounts `fs` on the directory `mountpoint` and serves it, from threads of its own, until it is unmounted.
///
/// A process that wants to go to the background does so first: a fork takes no threads along.
///
/// # Errors
/// [`MountError`], each with what to do about it.
pub fn mount<F: FileSystem + 'static>(
    fs: Arc<F>,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Session, MountError> {
    let answered = Arc::new(Answered::new());
    let kernel = Arc::clone(&answered);
    begin(Server::new(fs, answered), mountpoint, options, |session| kernel.tell(session.notifier()))
}

/// As [`mount`], for a front end that answers the kernel's requests itself.
///
/// # Errors
/// As [`mount`].
pub fn mount_server<S: fuser::Filesystem + 'static>(
    server: S,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Session, MountError> {
    begin(server, mountpoint, options, |_| ())
}

/// Mounts and serves; `before_requests` sees the session before the first request is served.
fn begin<S: fuser::Filesystem + 'static>(
    server: S,
    mountpoint: &Path,
    options: &MountOptions,
    before_requests: impl FnOnce(&fuser::Session<S>),
) -> Result<Session, MountError> {
    let mountpoint = attach::prepare(mountpoint, options)?;
    let device = attach::mount(&mountpoint, options)?;
    tracing::debug!(fd = device.as_raw_fd(), mountpoint = %mountpoint.display(), "mounted");
    let mut config = Config::default();
    config.n_threads = Some(match options.threads {
        0 => amphi_rt::cpu::count(),
        threads => threads,
    });
    config.clone_fd = true;
    // The kernel lets only the mounting user in unless `allow_other`; fuser's own check would repeat that for each request.
    let session = fuser::Session::from_fd(server, device, SessionACL::All, config);
    let session = session.map_err(|cause| {
        // The mount must not stay without a server; if even this fails the cause below is what matters.
        let _ = attach::detach(&mountpoint);
        MountError::Handshake(cause)
    })?;
    before_requests(&session);
    let serving = task::spawn("fuse", move || session.run());
    Ok(Session { mountpoint, serving: Some(serving) })
}

impl Session {
    /// The mounted directory, as an absolute path.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Returns when the file system has been unmounted, by whomever, and the last request answered.
    ///
    /// # Errors
    /// What ended the serving threads other than an unmount.
    pub fn wait(mut self) -> std::io::Result<()> {
        self.serving.take().map_or(Ok(()), JoinHandle::join)
    }

    /// Unmounts; programs that have files open or work in a directory there prevent it. [`wait`](Self::wait) returns afterwards.
    ///
    /// # Errors
    /// [`MountError::Busy`]; [`MountError::Unmount`].
    pub fn unmount(&self) -> Result<(), MountError> {
        attach::unmount(&self.mountpoint)
    }

    /// Takes the mount out of the directory tree at once. Programs that use it can finish; [`wait`](Self::wait) returns after the last.
    ///
    /// # Errors
    /// [`MountError::Unmount`].
    pub fn detach(&self) -> Result<(), MountError> {
        attach::detach(&self.mountpoint)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.serving.is_some()
            && let Err(error) = self.detach()
        {
            tracing::warn!("{error}");
        }
    }
}
