//! A mounted model in a directory of its own, unmounted when the test ends.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use amphi_front_fuse::{KernelCaches, MountError, MountOptions, Session, Transport};
use amphi_model::{Limits, Model};
use amphi_vfs::{Cred, FileSystem, Ino, SetAttr};
use tempfile::TempDir;

use crate::offered::{self, Offered};

pub struct Mounted {
    session: Option<Session>,
    directory: TempDir,
    pub model: Arc<Model>,
}

/// Waits until `condition` holds: for a minute, which is for ever.
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether tests can mount here; prints why not.
pub fn can_mount() -> bool {
    let reason = if !Path::new("/dev/fuse").exists() {
        "there is no /dev/fuse"
    } else if !is_root() && !Path::new("/usr/bin/fusermount3").exists() {
        "neither root nor fusermount3"
    } else if crate::TRANSPORT == Transport::Ring && !offered::can_be() {
        "the kernel's FUSE driver offers no io_uring"
    } else {
        return true;
    };
    println!("skipped: {reason}");
    false
}

/// Mounts as [`amphi_front_fuse::mount`] does; where requests shall come through rings the kernel is told to
/// offer them for the moment.
pub fn mount<F: FileSystem + 'static>(
    fs: Arc<F>,
    directory: &Path,
    options: &MountOptions,
) -> Result<Session, MountError> {
    let _offered = Offered::to(options);
    let session = amphi_front_fuse::mount(fs, directory, options)?;
    assert_eq!(session.has_rings(), options.transport == Transport::Ring);
    Ok(session)
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What the tests mount with: everything root may have.
pub fn options() -> MountOptions {
    MountOptions {
        allow_other: is_root(),
        suid: is_root(),
        dev: is_root(),
        transport: crate::TRANSPORT,
        ..MountOptions::default()
    }
}

/// A model whose root belongs to whoever runs the tests.
pub fn own_model() -> Arc<Model> {
    owned(Model::new())
}

fn owned(model: Model) -> Arc<Model> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let owner = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    model.setattr(Ino::ROOT, &owner, &Cred::ROOT).unwrap();
    Arc::new(model)
}

impl Mounted {
    /// A mounted model; nothing where mounting is impossible.
    pub fn new() -> Option<Self> {
        Self::with(Limits::default(), &options())
    }

    pub fn with(limits: Limits, options: &MountOptions) -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let model = owned(Model::with_limits(limits));
        match mount(Arc::clone(&model), directory.path(), options) {
            Ok(session) => Some(Self { session: Some(session), directory, model }),
            Err(error @ (MountError::DeviceRefused(_) | MountError::NoHelper)) => {
                println!("skipped: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// What another door has to tell its changes.
    pub fn caches(&self) -> KernelCaches {
        self.session.as_ref().and_then(Session::caches).expect("a session of the library's own").clone()
    }

    /// Unmounts and waits for the serving threads.
    pub fn unmount(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(session) = self.session.take() else { return };
        // A process that was just waited for may still be letting go of its working directory.
        for _ in 0..100 {
            match session.unmount() {
                Err(MountError::Busy(_)) => std::thread::sleep(Duration::from_millis(10)),
                _ => break,
            }
        }
        drop(session.detach());
        session.wait().unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The files a failed test still has open would keep `end` waiting.
            drop(self.session.take());
        } else {
            self.end();
        }
    }
}
