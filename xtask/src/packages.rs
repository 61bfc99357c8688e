//! The Debian packages that the tasks need: installed when the caller is root, otherwise named in one command
//! to type.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::step;

/// A program and the Debian package that holds it.
pub struct Needed {
    /// Looked for on `PATH`, and where Debian keeps PostgreSQL's own programs.
    pub program: &'static str,
    /// Debian's name for its package.
    pub package: &'static str,
}

const fn needed(program: &'static str, package: &'static str) -> Needed {
    Needed { program, package }
}

/// What tests and demo run besides cargo.
pub const ALL: [Needed; 6] = [
    needed("fusermount3", "fuse3"),
    needed("git", "git"),
    needed("sqlite3", "sqlite3"),
    needed("tar", "tar"),
    needed("diff", "diffutils"),
    needed("cc", "gcc"),
];

/// What looks at the report's page as a reader would.
pub const BROWSER: [Needed; 1] = [needed("chromium", "chromium")];

/// The kernel's file systems, which the tests put on an exported SSD.
const KERNEL_FS: [Needed; 3] =
    [needed("mkfs.ext4", "e2fsprogs"), needed("mkfs.xfs", "xfsprogs"), needed("mkfs.btrfs", "btrfs-progs")];

/// Makes sure of what only the superuser can test: others have no loop devices, nor `/usr/sbin` on their
/// `PATH`.
pub fn ensure_for_root() -> Result<()> {
    if is_root() { ensure(&KERNEL_FS) } else { Ok(()) }
}

/// What the external suites run besides what cargo installs.
pub const SUITES: [Needed; 3] =
    [needed("stress-ng", "stress-ng"), needed("dbench", "dbench"), needed("timeout", "coreutils")];

/// What works on a mount while it crashes.
pub const PROGRAMS: [Needed; 8] = [
    needed("initdb", "postgresql"),
    needed("db_bench", "rocksdb-tools"),
    needed("ldb", "rocksdb-tools"),
    needed("redis-server", "redis-server"),
    needed("redis-check-aof", "redis-tools"),
    needed("make", "make"),
    needed("ar", "binutils"),
    needed("timeout", "coreutils"),
];

/// Makes sure that every program of `list` is there.
pub fn ensure(list: &[Needed]) -> Result<()> {
    let mut missing: Vec<&str> =
        list.iter().filter(|n| !is_installed(n.program)).map(|n| n.package).collect();
    missing.dedup();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !is_root() || !on_path("apt-get") {
        bail!("these Debian packages are missing; install them with: sudo apt-get install -y {names}");
    }
    step::step(&format!("install {names}"), || {
        let mut update = Command::new("apt-get");
        step::output(update.args(["update", "-q"]))?;
        let mut install = Command::new("apt-get");
        install.env("DEBIAN_FRONTEND", "noninteractive");
        step::output(install.args(["install", "-q", "-y", "--no-install-recommends"]).args(&missing))?;
        Ok(())
    })
}

/// Whether `program` is on `PATH` or a program of some version of PostgreSQL, which Debian keeps elsewhere.
fn is_installed(program: &str) -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    on_path(program) || versions.into_iter().any(|version| version.path().join("bin").join(program).is_file())
}

/// Whether `program` is a file in a directory of `PATH`.
fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(program).is_file()))
}

/// Whether the caller is the superuser.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0)
}

/// Why file systems cannot be mounted here, or `None` if they can.
pub fn why_no_fuse() -> Option<String> {
    let device = Path::new("/dev/fuse");
    if !device.exists() {
        return Some(
            "/dev/fuse does not exist (load the fuse module, or pass the device to the container)".into(),
        );
    }
    match std::fs::OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => None,
        Err(error) => Some(format!("/dev/fuse cannot be opened: {error}")),
    }
}
