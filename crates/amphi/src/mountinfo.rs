//! What the kernel says is mounted: `/proc/self/mountinfo`, and unmounting with or without the rights of the superuser.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

/// The file-system type under which the kernel lists Amphi's mounts.
pub const FS_TYPE: &str = "fuse.amphi";

/// One Amphi mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The image, as an absolute path.
    pub image: PathBuf,
    /// Where it is mounted.
    pub directory: PathBuf,
}

/// All Amphi mounts that this process can see, oldest first.
///
/// # Errors
/// If `/proc` is not there.
pub fn mounts() -> Result<Vec<Mount>> {
    let text = std::fs::read("/proc/self/mountinfo").context("/proc/self/mountinfo cannot be read; is /proc mounted?")?;
    Ok(text.split(|&byte| byte == b'\n').filter_map(parse_line).collect())
}

/// The Amphi mount at `directory` that is on top, if there is one.
///
/// # Errors
/// As [`mounts`].
pub fn mounted_at(directory: &Path) -> Result<Option<Mount>> {
    let directory = absolute(directory)?;
    Ok(mounts()?.into_iter().rfind(|mount| mount.directory == directory))
}

/// Where `image` is mounted.
///
/// # Errors
/// As [`mounts`].
pub fn mount_of(image: &Path) -> Result<Option<Mount>> {
    let image = absolute(image)?;
    Ok(mounts()?.into_iter().rfind(|mount| mount.image == image))
}

/// `path` without links, `.` and `..`. Its last component is not touched, because a mount whose daemon is dead answers nothing.
///
/// # Errors
/// If its parent does not exist.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    let path = std::path::absolute(path)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path) };
    let parent = parent.canonicalize().with_context(|| format!("{} does not exist", parent.display()))?;
    Ok(parent.join(name))
}

/// Whether `directory` is a mount whose daemon is gone: every access fails at once.
pub fn is_dead(directory: &Path) -> bool {
    std::fs::metadata(directory)
        .is_err_and(|error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) || error.kind() == ErrorKind::NotConnected)
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Fails if files are in use.
    IfIdle,
    /// The name goes at once; open files go on until closed or until the daemon exits.
    Detach,
}

/// Unmounts `directory`.
///
/// # Errors
/// If it is busy, or the caller may not.
pub fn unmount(directory: &Path, how: Unmount) -> Result<()> {
    let flags = match how {
        Unmount::IfIdle => UnmountFlags::NOFOLLOW,
        Unmount::Detach => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(directory, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => fusermount(directory, how),
        Err(Errno::BUSY) => bail!("{} is in use; close the files open on it and leave it, then try again", directory.display()),
        Err(error) => Err(error).with_context(|| format!("{} could not be unmounted", directory.display())),
    }
}

/// The set-user-id program through which ordinary users unmount what they mounted.
fn fusermount(directory: &Path, how: Unmount) -> Result<()> {
    let mut command = Command::new("fusermount3");
    command.arg("-u").args((how == Unmount::Detach).then_some("-z")).arg("--").arg(directory);
    let output = command.output().context("fusermount3 could not be started; install the package fuse3")?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr).trim().trim_start_matches("fusermount3: ").to_owned();
        bail!("{} could not be unmounted: {reason}", directory.display());
    }
    Ok(())
}

/// One line: `id parent major:minor root DIRECTORY options [tags…] - TYPE SOURCE super-options`.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let directory = fields.nth(4)?;
    let mut fields = fields.skip_while(|&field| field != b"-").skip(1);
    if fields.next()? != FS_TYPE.as_bytes() {
        return None;
    }
    let image = fields.next()?;
    Some(Mount { image: unescaped(image).into(), directory: unescaped(directory).into() })
}

/// Undoes the kernel's `\040` for blanks.
fn unescaped(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let octal = field.get(at + 1..at + 4).filter(|_| field[at] == b'\\');
        let code = octal.and_then(|digits| std::str::from_utf8(digits).ok()).and_then(|d| u8::from_str_radix(d, 8).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                at += 4;
            }
            None => {
                bytes.push(field[at]);
                at += 1;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// Whether `path` can be the source of a mount: the kernel's option string has no room for a comma.
pub fn can_be_source(path: &Path) -> bool {
    !path.as_os_str().as_bytes().contains(&b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amphi_lines_are_found_and_unescaped() {
        let line = b"90 29 0:51 / /mnt/my\\040dir rw,nosuid shared:5 master:1 - fuse.amphi /data/a\\134b.img rw,user_id=0";
        let mount = parse_line(line).unwrap();
        assert_eq!(mount.directory, Path::new("/mnt/my dir"));
        assert_eq!(mount.image, Path::new("/data/a\\b.img"));
        assert_eq!(parse_line(b"90 29 0:51 / /mnt rw - ext4 /dev/sda rw"), None);
        assert_eq!(parse_line(b""), None);
        assert_eq!(parse_line(b"90 29 0:51 / /mnt rw - fuse.amphi"), None);
    }

    #[test]
    fn nothing_is_mounted_on_an_ordinary_directory() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(mounted_at(directory.path()).unwrap(), None);
        assert!(!is_dead(directory.path()));
        assert!(unmount(directory.path(), Unmount::IfIdle).is_err());
    }
}
