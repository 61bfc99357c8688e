//! The files of images: made, opened and locked, so that two processes never have one.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::ImageError;

/// What the system said, as an error of the image at `path`.
pub(super) fn system(action: &'static str, path: &str, cause: &std::io::Error) -> ImageError {
    match cause.kind() {
        ErrorKind::StorageFull => ImageError::NoSpace { path: path.to_owned() },
        ErrorKind::AlreadyExists => ImageError::Exists { path: path.to_owned() },
        _ => ImageError::System { action, path: path.to_owned(), cause: cause.to_string() },
    }
}

/// Creates an empty file, readable and writable by its owner only, and locks it.
///
/// # Errors
/// It exists, or the system refuses.
pub(super) fn create(path: &Path) -> Result<File, ImageError> {
    let name = path.display().to_string();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(|cause| system("create", &name, &cause))?;
    lock(&file, &name)?;
    Ok(file)
}

/// Opens and locks a file, without mapping it yet.
///
/// # Errors
/// In use elsewhere, or the system refuses.
pub(crate) fn open_file(path: &Path) -> Result<File, ImageError> {
    let name = path.display().to_string();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|cause| system("open", &name, &cause))?;
    lock(&file, &name)?;
    Ok(file)
}

/// Opens a file that shall not be changed, and keeps those out who would.
///
/// # Errors
/// In use elsewhere, or the system refuses.
pub(crate) fn open_to_read(path: &Path) -> Result<File, ImageError> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|cause| system("open", &name, &cause))?;
    lock_by(&file, &name, FlockOperation::NonBlockingLockShared)?;
    Ok(file)
}

fn lock(file: &File, path: &str) -> Result<(), ImageError> {
    lock_by(file, path, FlockOperation::NonBlockingLockExclusive)
}

fn lock_by(file: &File, path: &str, how: FlockOperation) -> Result<(), ImageError> {
    let locked = flock(file, how).map_err(std::io::Error::from);
    locked.map_err(|cause| match cause.kind() {
        ErrorKind::WouldBlock => ImageError::InUse { path: path.to_owned() },
        _ => system("lock", path, &cause),
    })
}
