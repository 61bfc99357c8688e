//! Attaching to the kernel: `/dev/fuse` and `mount(2)` for root, `fusermount3` for others; dead mounts;
//! unmounting.
//!
//! fuser could do this too, but what it calls when a session ends unmounts the path a second time, and with
//! it whatever is mounted there by then.

use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use crate::options::MountOptions;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";

/// Why something could not be mounted or unmounted, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The kernel offers no FUSE here.
    #[error("there is no /dev/fuse: run `modprobe fuse` as root, or give the container `--device /dev/fuse`")]
    NoFuse,
    /// The device is there but not for us.
    #[error("cannot open /dev/fuse ({0}): run as root, or `chmod 666 /dev/fuse`")]
    DeviceRefused(std::io::Error),
    /// Only root can mount without it.
    #[error("only root can mount without `fusermount3`: install it with `apt-get install fuse3`")]
    NoHelper,
    /// The directory to mount on cannot be used.
    #[error("cannot mount on {}: {cause}", path.display())]
    MountPoint {
        /// The directory asked for.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// Another server died without unmounting.
    #[error(
        "the server of the mount on {} has died: run `fusermount3 -uz {}` (or `umount -l` as root) first",
        .0.display(), .0.display()
    )]
    Dead(PathBuf),
    /// One of our own is mounted there already.
    #[error("{} is mounted already: run `amphi umount {}` first", .0.display(), .0.display())]
    AlreadyMounted(PathBuf),
    /// The kernel or `fusermount3` refused.
    #[error("cannot mount on {}: {reason}", path.display())]
    Refused {
        /// The directory asked for.
        path: PathBuf,
        /// What the kernel or the helper said.
        reason: String,
    },
    /// The kernel offers no rings, and nothing else was asked for.
    #[error(
        "the kernel's FUSE driver offers no io_uring: run `echo 1 > /sys/module/fuse/parameters/enable_uring` as root (Linux 6.14 or later), or mount with -o transport=device"
    )]
    NoRing,
    /// This process may not have rings, and nothing else was asked for.
    #[error(
        "io_uring cannot be used ({0}): see /proc/sys/kernel/io_uring_disabled, or mount with -o transport=device"
    )]
    RingRefused(std::io::Error),
    /// The kernel's first request could not be answered.
    #[error("the kernel's FUSE driver does not agree: {0}")]
    Handshake(std::io::Error),
    /// Programs use the mount.
    #[error("{} is in use: leave it and close its files (`fuser -vm {}` lists who, `losetup -a` loop devices), or detach it lazily", .0.display(), .0.display())]
    Busy(PathBuf),
    /// Unmounting failed.
    #[error("cannot unmount {}: {reason}", path.display())]
    Unmount {
        /// The mounted directory.
        path: PathBuf,
        /// What the kernel or the helper said.
        reason: String,
    },
}

/// The absolute path of a directory that can be mounted on, freed of a dead mount if `options` allow.
pub(crate) fn prepare(path: &Path, options: &MountOptions) -> Result<PathBuf, MountError> {
    let unusable = |cause| MountError::MountPoint { path: path.to_owned(), cause };
    if is_dead(path) {
        let absolute = std::path::absolute(path).map_err(unusable)?;
        if !options.replace_dead {
            return Err(MountError::Dead(absolute));
        }
        detach(&absolute)?;
    }
    let absolute = path.canonicalize().map_err(unusable)?;
    if !absolute.is_dir() {
        return Err(unusable(ErrorKind::NotADirectory.into()));
    }
    if is_ours(&absolute) {
        return Err(MountError::AlreadyMounted(absolute));
    }
    Ok(absolute)
}

/// Whether `path` is a FUSE mount whose server is gone ("Transport endpoint is not connected").
///
/// `stat` may still answer from what the kernel remembers; `statfs` always asks. While the rings of a killed
/// server are taken down, requests are cancelled.
fn is_dead(path: &Path) -> bool {
    let of_the_dead = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
    rustix::fs::statfs(path).is_err_and(|cause| of_the_dead.contains(&cause))
}

/// Whether a mount of this program is on top of `path`.
fn is_ours(path: &Path) -> bool {
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return false };
    let mut ours = false;
    for line in table.split(|&byte| byte == b'\n') {
        let mut fields = line.split(|&byte| byte == b' ');
        if fields.nth(4).is_some_and(|field| unescape(field) == path.as_os_str().as_bytes()) {
            let file_system = fields.skip_while(|&field| field != b"-").nth(1);
            ours = file_system == Some(b"fuse.amphi");
        }
    }
    ours
}

/// Undoes the octal escapes of the mount table.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.first_chunk::<3>().filter(|_| byte == b'\\');
        let code = digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        plain.push(code.unwrap_or(byte));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    plain
}

/// Mounts an empty connection on `path` and returns the device through which the kernel will ask.
pub(crate) fn mount(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let opened = OpenOptions::new().read(true).write(true).open(DEVICE);
    if opened.as_ref().is_err_and(|cause| cause.kind() == ErrorKind::NotFound) {
        return Err(MountError::NoFuse);
    }
    if rustix::process::geteuid().is_root() {
        return mount_directly(path, options, opened.map_err(MountError::DeviceRefused)?);
    }
    opened.map_err(MountError::DeviceRefused)?;
    mount_by_helper(path, options)
}

fn mount_directly(path: &Path, options: &MountOptions, device: File) -> Result<OwnedFd, MountError> {
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, !options.suid);
    flags.set(MountFlags::NODEV, !options.dev);
    flags.set(MountFlags::NOEXEC, !options.exec);
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}{}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        options.kernel_options()
    );
    let refused = |reason: String| MountError::Refused { path: path.to_owned(), reason };
    let data = CString::new(data).map_err(|cause| refused(cause.to_string()))?;
    rustix::mount::mount(options.fsname.as_str(), path, "fuse.amphi", flags, Some(data.as_c_str()))
        .map_err(|cause| refused(format!("the kernel says: {cause}")))?;
    Ok(device.into())
}

/// Lets the set-user-id helper mount; it sends the device over a socket.
fn mount_by_helper(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let refused = |reason: String| MountError::Refused { path: path.to_owned(), reason };
    let (ours, theirs) = UnixStream::pair().map_err(|cause| refused(cause.to_string()))?;
    // The helper inherits this end; it is closed here as soon as the helper runs.
    fcntl_setfd(&theirs, FdFlags::empty()).map_err(|cause| refused(cause.to_string()))?;
    let mode = if options.read_only { "ro" } else { "rw" };
    let exec = if options.exec { "exec" } else { "noexec" };
    let arguments = format!(
        "{mode},{exec}{},nosuid,nodev,subtype=amphi,fsname={}",
        options.kernel_options(),
        options.escaped_fsname()
    );
    let helper = Command::new(HELPER)
        .args([OsStr::new("-o"), OsStr::new(&arguments), OsStr::new("--"), path.as_os_str()])
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    drop(theirs);
    let helper = match helper {
        Ok(helper) => helper,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Err(MountError::NoHelper),
        Err(cause) => return Err(refused(cause.to_string())),
    };
    let device = receive_device(&ours);
    drop(ours);
    let output = helper.wait_with_output().map_err(|cause| refused(cause.to_string()))?;
    device.ok_or_else(|| refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// The file descriptor in the helper's one message, if it sent one.
fn receive_device(socket: &UnixStream) -> Option<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).ok()?;
    ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

/// Unmounts `path` unless it is in use. Any process may ask, not only the one that serves the mount.
///
/// # Errors
/// [`MountError::Busy`]; [`MountError::Unmount`].
pub fn unmount(path: &Path) -> Result<(), MountError> {
    take_away(path, UnmountFlags::empty(), &["-u"])
}

/// Takes the mount at `path` out of the directory tree even if it is in use or its server has died.
///
/// # Errors
/// [`MountError::Unmount`].
pub fn detach(path: &Path) -> Result<(), MountError> {
    take_away(path, UnmountFlags::DETACH, &["-u", "-z"])
}

fn take_away(path: &Path, flags: UnmountFlags, helper_flags: &[&str]) -> Result<(), MountError> {
    let failed = |reason: String| MountError::Unmount { path: path.to_owned(), reason };
    match rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::Busy(path.to_owned())),
        Err(Errno::PERM) => {
            let output = Command::new(HELPER).args(helper_flags).arg("--").arg(path).output();
            let output = output.map_err(|cause| match cause.kind() {
                ErrorKind::NotFound => MountError::NoHelper,
                _ => failed(cause.to_string()),
            })?;
            if output.status.success() {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            if said.contains("busy") { Err(MountError::Busy(path.to_owned())) } else { Err(failed(said)) }
        }
        Err(cause) => Err(failed(cause.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_table_escapes_are_undone() {
        assert_eq!(unescape(br"/a\040b\134c"), br"/a b\c");
        assert_eq!(unescape(br"/a\"), br"/a\");
        assert_eq!(unescape(br"/a\9"), br"/a\9");
    }

    #[test]
    fn a_missing_directory_is_named() {
        let error = prepare(Path::new("/nonexistent/amphi"), &MountOptions::default()).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/amphi"), "{error}");
    }
}
