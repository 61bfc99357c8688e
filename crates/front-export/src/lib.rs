//! The export front end: the block side of an SSD as one file, so that `losetup` and the kernel's own file
//! systems can use it.
//!
//! [`export`] mounts a directory with exactly one file in it, `ssd`, as large as the device. What is written
//! to the file is written to the device before the write returns, `fsync` is the device's flush, and a
//! punched hole is trimmed. The kernel keeps none of its contents: each read is a command to the device too,
//! and counted there. A loop device turns the kernel's block requests into these calls one by one: write,
//! flush (and so FUA), discard and write-zeroes.
//!
//! - `disk` any bytes of a device that knows pages only
//! - `pages` locks that let a change to a part of a page be read, changed and written undisturbed
//! - `record` what reached the device, request by request
//! - `serve` the kernel's requests
//! - `errno` device errors as programs see them
#![forbid(unsafe_code)]

mod disk;
mod errno;
mod pages;
mod record;
mod serve;

use std::path::Path;
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_front_fuse::{MountError, MountOptions, Session};

pub use record::Recorded;
pub use serve::FILE_NAME;

use crate::disk::Disk;
use crate::serve::Server;

/// Threads that serve requests unless the options say otherwise. Each waits for its command, so this is how
/// many the device has in flight at once; processors do not matter.
const COMMANDS_IN_FLIGHT: usize = 16;

/// Mounts a directory whose one file [`FILE_NAME`] is the block side of `port`, and serves it, from threads
/// of its own, until it is unmounted.
///
/// # Errors
/// [`MountError`], each with what to do about it.
pub fn export<P: BlockPort + 'static>(
    port: Arc<P>,
    directory: &Path,
    options: &MountOptions,
) -> Result<Session, MountError> {
    let mut options = options.clone();
    if options.threads == 0 {
        options.threads = COMMANDS_IN_FLIGHT;
    }
    amphi_front_fuse::mount_server(Server::new(Disk::new(port)), directory, &options)
}
