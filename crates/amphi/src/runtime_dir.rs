//! Where a mount's control socket and log live, found from the image alone: a private directory, and a name
//! made of the image's device and inode numbers, so that every spelling of the image's path leads to the same
//! socket.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The files of one mount.
#[derive(Clone, Debug)]
pub struct RuntimeFiles {
    /// The control socket.
    pub socket: PathBuf,
    /// What the daemon has to say once it is in the background.
    pub log: PathBuf,
}

/// The files that a daemon of this user uses for `image`; makes their directory.
///
/// # Errors
/// If the directory cannot be made or belongs to somebody else.
pub fn for_daemon(image: &Path) -> Result<RuntimeFiles> {
    let directory = own_directory();
    make_private(&directory)?;
    Ok(files_in(&directory, &identity(image)?))
}

/// The control socket of whoever has `image` mounted: this user's, or the superuser's.
///
/// # Errors
/// If the image does not exist.
pub fn find_socket(image: &Path) -> Result<Option<PathBuf>> {
    let identity = identity(image)?;
    let candidates = [own_directory(), system_directory()];
    Ok(candidates
        .iter()
        .map(|directory| files_in(directory, &identity).socket)
        .find(|socket| socket.exists()))
}

fn files_in(directory: &Path, identity: &str) -> RuntimeFiles {
    RuntimeFiles {
        socket: directory.join(format!("{identity}.sock")),
        log: directory.join(format!("{identity}.log")),
    }
}

/// The superuser's directory.
fn system_directory() -> PathBuf {
    PathBuf::from("/run/amphi")
}

/// This user's directory: the superuser's is the system's, others have one in their session or, without a
/// session, in /tmp.
fn own_directory() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return system_directory();
    }
    match std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute() && path.is_dir())
    {
        Some(session) => session.join("amphi"),
        None => std::env::temp_dir().join(format!("amphi-{}", user.as_raw())),
    }
}

/// Makes `directory` so that nobody else can enter it, or checks that it is so.
fn make_private(directory: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| {
        format!("the directory {} for control sockets cannot be made", directory.display())
    })?;
    let metadata = std::fs::symlink_metadata(directory)?;
    if !metadata.is_dir()
        || metadata.uid() != rustix::process::geteuid().as_raw()
        || metadata.mode() & 0o022 != 0
    {
        bail!("{} is not a private directory of this user; remove it", directory.display());
    }
    Ok(())
}

/// What makes an image the same image, whatever its path.
fn identity(image: &Path) -> Result<String> {
    let metadata =
        std::fs::metadata(image).with_context(|| format!("{} cannot be opened", image.display()))?;
    Ok(format!("{:x}-{:x}", metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_path_leads_to_one_socket() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("a.img");
        std::fs::write(&image, b"").unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&image, &link).unwrap();
        assert_eq!(identity(&image).unwrap(), identity(&link).unwrap());
        // Nobody serves a new file: a socket of its name was left by a daemon that was killed.
        if let Some(left) = find_socket(&image).unwrap() {
            std::fs::remove_file(left).unwrap();
        }
        assert_eq!(find_socket(&image).unwrap(), None);
        assert!(find_socket(&directory.path().join("none")).is_err());
    }

    #[test]
    fn a_directory_open_to_others_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        make_private(directory.path()).unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(make_private(directory.path()).is_err());
    }
}
