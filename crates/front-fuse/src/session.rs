//! The life of a mount: attached, served, unmounted.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use amphi_queue::Marks;
use amphi_rt::task::{self, JoinHandle};
use amphi_vfs::FileSystem;
use fuser::{Config, SessionACL};

use crate::answered::{Answered, KernelCaches};
use crate::attach::{self, MountError};
use crate::kernel::Kernel;
use crate::known::Known;
use crate::negotiate::Negotiation;
use crate::operations::Operations;
use crate::options::{MountOptions, Transport};
use crate::ring::Rings;
use crate::serve::Server;

/// What says whether the kernel offers rings.
const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

/// A mounted file system. Dropping it detaches the mount and leaves what still runs on it to end by itself.
#[derive(Debug)]
pub struct Session {
    mountpoint: PathBuf,
    serving: Option<JoinHandle<std::io::Result<()>>>,
    /// Threads of the rings, if requests come through such.
    rings: Vec<JoinHandle<()>>,
    caches: Option<KernelCaches>,
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
    mount_known(fs, mountpoint, options, Known::Own(Marks::new()))
}

/// As [`mount`], for a file system that other processes change too, who look at `marks` for what the kernel
/// has been told. They tell the session's [caches](Session::caches).
///
/// # Errors
/// As [`mount`].
pub fn mount_marked<F: FileSystem + 'static>(
    fs: Arc<F>,
    mountpoint: &Path,
    options: &MountOptions,
    marks: &'static Marks,
) -> Result<Session, MountError> {
    mount_known(fs, mountpoint, options, Known::Shared(marks))
}

fn mount_known<F: FileSystem + 'static>(
    fs: Arc<F>,
    mountpoint: &Path,
    options: &MountOptions,
    known: Known,
) -> Result<Session, MountError> {
    let answered = Arc::new(Answered::new(known));
    let operations = Arc::new(Operations::new(fs, Arc::clone(&answered), options.write_back));
    let rings = wanted_rings(options.transport)?;
    let insists = options.transport == Transport::Ring;
    let negotiation = Arc::new(Negotiation::new(rings.is_some(), insists, options.write_back));
    let server = Server::new(Arc::clone(&operations), Arc::clone(&negotiation));
    // All that is left for the device are forgotten inodes and interrupts.
    let threads = if rings.is_some() { 1 } else { options.threads };
    let attached = attach(mountpoint, options)?;
    let device = attached.device.try_clone().map_err(MountError::Handshake)?;
    let told = attached.device.try_clone().map_err(MountError::Handshake)?;
    let begun = begin(server, attached, threads, |session| {
        answered.tell(Kernel::new(session.notifier(), told));
        match rings {
            Some(rings) if negotiation.has_rings() => rings.serve(device, &operations),
            _ => Vec::new(),
        }
    });
    match begun {
        Ok(mut session) => {
            session.caches = Some(KernelCaches(answered));
            Ok(session)
        }
        Err(_) if negotiation.lacks_rings() => Err(MountError::NoRing),
        Err(error) => Err(error),
    }
}

/// Rings, if they are wanted and to be had.
fn wanted_rings(transport: Transport) -> Result<Option<Rings>, MountError> {
    match transport {
        Transport::Device => Ok(None),
        Transport::Ring => Rings::new().map(Some).map_err(MountError::RingRefused),
        Transport::Auto if !kernel_offers_rings() => Ok(None),
        Transport::Auto => Ok(Rings::new().inspect_err(|cause| tracing::debug!("no rings: {cause}")).ok()),
    }
}

/// Whether the kernel's FUSE driver offers to send requests through io_uring: it can, and may.
#[must_use]
pub fn kernel_offers_rings() -> bool {
    std::fs::read(ENABLE_URING).is_ok_and(|text| text.starts_with(b"Y"))
}

/// Whether the kernel's FUSE driver could send requests through io_uring and was not told to, which root can
/// change.
#[must_use]
pub fn kernel_withholds_rings() -> bool {
    std::fs::read(ENABLE_URING).is_ok_and(|text| text.starts_with(b"N"))
}

/// As [`mount`], for a front end that answers the kernel's requests itself, through the device.
///
/// # Errors
/// As [`mount`].
pub fn mount_server<S: fuser::Filesystem + 'static>(
    server: S,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<Session, MountError> {
    begin(server, attach(mountpoint, options)?, options.threads, |_| Vec::new())
}

/// A mount whose first request waits for an answer.
struct Attached {
    mountpoint: PathBuf,
    device: OwnedFd,
}

fn attach(mountpoint: &Path, options: &MountOptions) -> Result<Attached, MountError> {
    let mountpoint = attach::prepare(mountpoint, options)?;
    let device = attach::mount(&mountpoint, options)?;
    tracing::debug!(fd = device.as_raw_fd(), mountpoint = %mountpoint.display(), "mounted");
    Ok(Attached { mountpoint, device })
}

/// Serves what was attached; `before_requests` sees the session before the first request is served, and
/// begins to serve rings.
fn begin<S: fuser::Filesystem + 'static>(
    server: S,
    attached: Attached,
    threads: usize,
    before_requests: impl FnOnce(&fuser::Session<S>) -> Vec<JoinHandle<()>>,
) -> Result<Session, MountError> {
    let Attached { mountpoint, device } = attached;
    let mut config = Config::default();
    config.n_threads = Some(match threads {
        0 => amphi_rt::cpu::count(),
        threads => threads,
    });
    config.clone_fd = true;
    // The kernel lets only the mounting user in unless `allow_other`; fuser's own check would repeat that for
    // each request.
    let session = fuser::Session::from_fd(server, device, SessionACL::All, config);
    let session = session.map_err(|cause| {
        // The mount must not stay without a server; if even this fails the cause below is what matters.
        let _ = attach::detach(&mountpoint);
        MountError::Handshake(cause)
    })?;
    let rings = before_requests(&session);
    let serving = task::spawn("fuse", move || session.run());
    Ok(Session { mountpoint, serving: Some(serving), rings, caches: None })
}

impl Session {
    /// The mounted directory, as an absolute path.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// What another door to the same file system has to tell its changes; none for a front end that answers
    /// requests itself.
    #[must_use]
    pub const fn caches(&self) -> Option<&KernelCaches> {
        self.caches.as_ref()
    }

    /// Returns when the file system has been unmounted, by whomever, and the last request answered.
    ///
    /// # Errors
    /// What ended the serving threads other than an unmount.
    pub fn wait(mut self) -> std::io::Result<()> {
        let Some(serving) = self.serving.take() else { return Ok(()) };
        let rings = std::mem::take(&mut self.rings);
        if let Err(cause) = serving.join() {
            // Nobody hears of forgotten inodes any more, which rings alone would go on without.
            if !rings.is_empty()
                && let Err(error) = self.detach()
            {
                tracing::warn!("{error}");
            }
            return Err(cause);
        }
        rings.into_iter().for_each(JoinHandle::join);
        Ok(())
    }

    /// Whether requests come through rings.
    #[must_use]
    pub const fn has_rings(&self) -> bool {
        !self.rings.is_empty()
    }

    /// Unmounts; programs that have files open or work in a directory there prevent it. [`wait`](Self::wait)
    /// returns afterwards.
    ///
    /// # Errors
    /// [`MountError::Busy`]; [`MountError::Unmount`].
    pub fn unmount(&self) -> Result<(), MountError> {
        attach::unmount(&self.mountpoint)
    }

    /// Takes the mount out of the directory tree at once. Programs that use it can finish;
    /// [`wait`](Self::wait) returns after the last.
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
