//! What the kernel says is mounted: `/proc/self/mountinfo`. A mount's source is its image, so either leads to
//! the other.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The file-system type under which the kernel lists Amphi's mounts.
const FS_TYPE: &str = "fuse.amphi";

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
    let text = std::fs::read("/proc/self/mountinfo")
        .context("/proc/self/mountinfo cannot be read; is /proc mounted?")?;
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

/// Who has `image` mounted, in words: other directories of this process's mount namespace, and one process
/// for each other namespace. Processes that this one may not look at are not among them.
pub fn holders(image: &Path) -> Vec<String> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let mut seen = vec![namespace("self")];
    let here = mounts().unwrap_or_default().into_iter().filter(|mount| mount.image == image);
    let mut holders: Vec<_> = here.map(|mount| format!("at {}", mount.directory.display())).collect();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) else {
            continue;
        };
        let theirs = namespace(pid);
        if theirs.is_none() || seen.contains(&theirs) {
            continue;
        }
        seen.push(theirs);
        let text = std::fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        let mounts = text.split(|&byte| byte == b'\n').filter_map(parse_line);
        if let Some(mount) = mounts.into_iter().find(|mount| mount.image == image) {
            let program = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            holders.push(format!(
                "at {} in another mount namespace, that of process {pid} ({})",
                mount.directory.display(),
                program.trim()
            ));
        }
    }
    holders
}

/// `path` without links, `.` and `..`. Its last component is not touched, because a mount whose daemon is
/// dead answers nothing.
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
        let code = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|d| u8::from_str_radix(d, 8).ok());
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
        assert_eq!(mount_of(&directory.path().join("none.img")).unwrap(), None);
    }
}
