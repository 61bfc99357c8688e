//! The file systems under the applications: ours through FUSE and the kernel's, on SSDs with the device's own
//! times and on memory; and those whose logs lie on the SSDs of 2B-SSD's figure 9.

use std::path::Path;

use anyhow::Result;

use super::Commits;
use crate::peers::{Backing, Disk, Exported, KernelFs, Served, Service, Tmpfs, Workspace};

/// Bytes of each SSD. Memory is used as it is written.
const SSD_BYTES: &str = "2147483648";

/// What stands below a file system. Only what stands on the same is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Below {
    /// An emulated SSD with the times of its profile; the kernel's file systems reach it through the export.
    Ssd,
    /// Memory: zram for the kernel's, an SSD without delays for ours.
    Memory,
    /// Nothing that survives: what a file system on memory could reach at the most.
    Nothing,
    /// An emulated SSD of 2B-SSD's paper, with the times of the profile of this name.
    LogSsd(&'static str),
}

/// How programs reach ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Through the kernel.
    Kernel,
    /// As `amphi run` has it, by the queue.
    Queue,
    /// As `amphi run` has it, in a shared range without protection.
    Range,
}

/// Which of ours it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ours {
    ByteFs,
    /// The block file system, on an SSD with a page cache.
    Block,
    /// The block file system, whose logs lie in an SSD's BA-buffer.
    Pinned,
}

/// One of the file systems.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    /// The kernel's name; none for ours.
    kind: Option<&'static str>,
    pub(super) below: Below,
    way: Way,
    ours: Ours,
    pub(super) commits: Commits,
}

pub(super) const PLACES: [Place; 8] = [
    place("fuse-ssd", "ByteFS through FUSE, device times as they are", None, Below::Ssd),
    place("ext4-ssd", "ext4 on the exported SSD, device times as they are", Some("ext4"), Below::Ssd),
    place("xfs-ssd", "XFS on the exported SSD, device times as they are", Some("xfs"), Below::Ssd),
    place("btrfs-ssd", "Btrfs on the exported SSD, device times as they are", Some("btrfs"), Below::Ssd),
    place("fuse-memory", "ByteFS through FUSE, an SSD without delays", None, Below::Memory),
    place("ext4-zram", "ext4 on zram", Some("ext4"), Below::Memory),
    place("xfs-zram", "XFS on zram", Some("xfs"), Below::Memory),
    place("btrfs-zram", "Btrfs on zram", Some("btrfs"), Below::Memory),
];

/// What is there too where programs are preloaded.
pub(super) const PRELOADED: [Place; 7] = [
    place("queue-ssd", "as fuse-ssd, programs run by `amphi run`", None, Below::Ssd).by(Way::Queue),
    place("range-ssd", "the same, ByteFS in a shared range, unprotected", None, Below::Ssd).by(Way::Range),
    place("queue-memory", "as fuse-memory, programs run by `amphi run`", None, Below::Memory).by(Way::Queue),
    place("range-memory", "the same, ByteFS in a shared range, unprotected", None, Below::Memory)
        .by(Way::Range),
    place("pins-memory", "fs-ext4like, logs in a BA-buffer, through FUSE", None, Below::Memory).pinned(),
    place("pins-queue-memory", "the same, programs run by `amphi run`", None, Below::Memory)
        .by(Way::Queue)
        .pinned(),
    place("tmpfs", "tmpfs, which nothing survives", Some("tmpfs"), Below::Nothing),
];

/// 2B-SSD's figure 9: one file system and one way to it, so that the log's SSD decides.
pub(super) const LOGS: [Place; 4] = [
    log_ssd("dc-ssd", "fs-ext4like on the data-centre SSD, run by `amphi run`", "dc-ssd"),
    log_ssd("ull-ssd", "fs-ext4like on the ultra-low-latency SSD, the same way", "ull-ssd"),
    log_ssd("2b-ssd", "fs-ext4like on 2B-SSD, logs in its BA-buffer, the same way", "2b-ssd").pinned(),
    log_ssd("async", "as ull-ssd, commits that wait for nothing", "ull-ssd").asynchronous(),
];

const fn log_ssd(name: &'static str, description: &'static str, profile: &'static str) -> Place {
    let place = place(name, description, None, Below::LogSsd(profile)).by(Way::Queue);
    Place { ours: Ours::Block, ..place }
}

const fn place(
    name: &'static str,
    description: &'static str,
    kind: Option<&'static str>,
    below: Below,
) -> Place {
    Place { name, description, kind, below, way: Way::Kernel, ours: Ours::ByteFs, commits: Commits::Durable }
}

/// A mounted file system. Unmounted when dropped.
pub(super) enum Mounted {
    Ours(Served),
    Exported(Exported),
    Disk(Disk),
    Tmpfs(Tmpfs),
}

impl Place {
    const fn by(self, way: Way) -> Self {
        Self { way, ..self }
    }

    const fn pinned(self) -> Self {
        Self { ours: Ours::Pinned, ..self }
    }

    const fn asynchronous(self) -> Self {
        Self { commits: Commits::Asynchronous, ..self }
    }

    /// Whether logs lie in a BA-buffer.
    pub(super) fn is_pinned(&self) -> bool {
        self.ours == Ours::Pinned
    }

    /// Whether it is the one that other ways to ours are compared with: ByteFS through FUSE.
    pub(super) fn is_plain(&self) -> bool {
        self.is_ours() && self.way == Way::Kernel && self.ours == Ours::ByteFs
    }

    /// Whether programs are run as `amphi run` does.
    pub(super) const fn is_preloaded(&self) -> bool {
        !matches!(self.way, Way::Kernel)
    }

    pub(super) const fn is_ours(&self) -> bool {
        self.kind.is_none()
    }

    /// Gives the SSD below a mount of it all its memory, which takes some seconds; not those with a device's
    /// times, which all together would take more than machines have.
    ///
    /// # Errors
    /// The image is gone.
    pub(super) fn make_resident(&self, mounted: &Mounted) -> Result<()> {
        match mounted {
            Mounted::Ours(served) if self.below != Below::Ssd => served.make_resident(),
            _ => Ok(()),
        }
    }

    /// Makes it. The times of an SSD of [`LOGS`] are multiplied by `dilation`.
    ///
    /// # Errors
    /// The machine lacks what it needs.
    pub(super) fn mount(&self, workspace: &Workspace, amphi: &Path, dilation: f64) -> Result<Mounted> {
        let dilation = dilation.to_string();
        let speed: &[&str] = match self.below {
            Below::Memory => &["--free"],
            Below::LogSsd(_) => &["--dilate", &dilation],
            Below::Ssd | Below::Nothing => &[],
        };
        let mkfs = ["--size", SSD_BYTES];
        match (self.kind, self.below) {
            // PostgreSQL is not root.
            (None, _) => {
                // What has written to an SSD with capacitors needs no flush, as the kernel knows.
                let words = match (self.way, self.ours) {
                    (Way::Range, _) => "allow_other,shared=unprotected",
                    (_, Ours::Pinned) => "allow_other,logs=known,barrier=0",
                    (_, Ours::Block) => "allow_other,barrier=0",
                    (Way::Kernel | Way::Queue, Ours::ByteFs) => "allow_other",
                };
                let profile = if let Below::LogSsd(profile) = self.below { profile } else { "2b-ssd" };
                let block = |firmware| ["--fs", "ext4like", "--profile", profile, "--firmware", firmware];
                let kind: &[&str] = match self.ours {
                    Ours::ByteFs => &[],
                    Ours::Block => &block("page-cache"),
                    Ours::Pinned => &block("ba-buffer"),
                };
                let (mkfs, options) = ([&mkfs[..], kind].concat(), [speed, &["-o", words]].concat());
                let service = Service { name: self.name, verb: "mount", mkfs: &mkfs, options: &options };
                Ok(Mounted::Ours(Served::new(workspace, amphi, &service)?))
            }
            (Some(_), Below::Nothing) => Ok(Mounted::Tmpfs(Tmpfs::new(workspace)?)),
            (Some(kind), Below::Memory) => {
                Ok(Mounted::Disk(Disk::new(workspace, self.name, kind, Backing::Zram)?))
            }
            (Some(kind), Below::Ssd | Below::LogSsd(_)) => {
                let mkfs = [&mkfs[..], &["--fs", "none", "--firmware", "page-cache"]].concat();
                let service = Service { name: self.name, verb: "export", mkfs: &mkfs, options: speed };
                let kernel_fs = KernelFs { kind, mkfs: &[], options: "" };
                Ok(Mounted::Exported(Exported::new(workspace, amphi, &service, &kernel_fs)?))
            }
        }
    }
}

impl Mounted {
    pub(super) fn directory(&self) -> &Path {
        match self {
            Self::Ours(served) => served.directory(),
            Self::Exported(exported) => exported.directory(),
            Self::Disk(disk) => disk.directory(),
            Self::Tmpfs(tmpfs) => tmpfs.directory(),
        }
    }
}
