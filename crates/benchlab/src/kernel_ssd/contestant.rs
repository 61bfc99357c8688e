//! A file system under measurement, on an SSD of its own that is new for each workload.

use std::path::Path;
use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_ssd::{OpenOptions, Profile, Ssd};
use anyhow::{Context, Result};
use serde_json::Value;

use super::counters::Counters;
use crate::files::{Files, HostCosts, LibraryFiles, SyscallFiles};
use crate::peers::{Exported, KernelFs, Served, Service, Workspace};

/// One of the file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contestant {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// What it is.
    pub description: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Library,
    Fuse,
    Kernel {
        kind: &'static str,
        mkfs: &'static [&'static str],
        options: &'static str,
        /// Seconds between its own commits, if an option says how many.
        commit_seconds: Option<u32>,
    },
}

/// Without lazy initialisation, which would go on writing beside the workload; blocks of 4 KiB.
const MKFS_EXT4: &[&str] = &["-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"];

/// Every file system, in the order of the report.
pub const CONTESTANTS: [Contestant; 6] = [
    Contestant { name: "bytefs-library", description: "ByteFS called in this process", kind: Kind::Library },
    Contestant { name: "bytefs-fuse", description: "ByteFS mounted through FUSE", kind: Kind::Fuse },
    Contestant {
        name: "ext4",
        description: "the kernel's ext4, data=ordered, on the exported SSD",
        kind: Kind::Kernel {
            kind: "ext4",
            mkfs: MKFS_EXT4,
            options: "data=ordered",
            commit_seconds: Some(5),
        },
    },
    Contestant {
        name: "ext4-journal",
        description: "the kernel's ext4, data=journal, on the exported SSD",
        kind: Kind::Kernel {
            kind: "ext4",
            mkfs: MKFS_EXT4,
            options: "data=journal",
            commit_seconds: Some(5),
        },
    },
    Contestant {
        name: "xfs",
        description: "the kernel's XFS on the exported SSD",
        kind: Kind::Kernel { kind: "xfs", mkfs: &["-K"], options: "", commit_seconds: None },
    },
    Contestant {
        name: "btrfs",
        description: "the kernel's Btrfs on the exported SSD",
        kind: Kind::Kernel { kind: "btrfs", mkfs: &["-K"], options: "", commit_seconds: Some(30) },
    },
];

/// What all SSDs of a run have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ssds<'a> {
    /// A built-in profile's name, or a file.
    pub(super) profile: &'a str,
    /// Bytes.
    pub(super) size: u64,
    /// What device times are multiplied by; none for a device without delays.
    pub(super) dilation: Option<f64>,
}

/// A file system that has been made and can be used. Taken away when dropped.
pub(super) struct Seated {
    files: Box<dyn Files>,
    device: Device,
}

enum Device {
    Here(Arc<Ssd>),
    Served(Served),
    Exported(Exported),
}

impl Contestant {
    /// Whether it is ours.
    #[must_use]
    pub const fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Library | Kind::Fuse)
    }

    /// Makes a new SSD with the file system on it.
    ///
    /// # Errors
    /// The machine lacks what it needs.
    pub(super) fn seat(&self, workspace: &Workspace, amphi: &Path, ssds: &Ssds<'_>) -> Result<Seated> {
        let profile_options = profile_options(ssds);
        let mkfs: Vec<&str> = profile_options.iter().map(String::as_str).collect();
        let speed = speed(ssds);
        let speed: Vec<&str> = speed.iter().map(String::as_str).collect();
        let dilation = ssds.dilation.unwrap_or(1.0);
        let timer =
            |seconds: u32| format!("commit={}", (f64::from(seconds) * dilation).clamp(1.0, 86_400.0).round());
        match self.kind {
            Kind::Library => library(ssds),
            Kind::Fuse => {
                let timer = timer(5);
                let options = [&speed[..], &["-o", &timer]].concat();
                let service = Service { name: self.name, verb: "mount", mkfs: &mkfs, options: &options };
                let served = Served::new(workspace, amphi, &service)?;
                let files = Box::new(SyscallFiles::new(served.directory())?);
                Ok(Seated { files, device: Device::Served(served) })
            }
            Kind::Kernel { kind, mkfs: kernel_mkfs, options, commit_seconds } => {
                let mkfs = [&mkfs[..], &["--fs", "none", "--firmware", "page-cache"]].concat();
                let service = Service { name: self.name, verb: "export", mkfs: &mkfs, options: &speed };
                let commit = commit_seconds.map(timer);
                let options: Vec<&str> = [options, commit.as_deref().unwrap_or("")]
                    .into_iter()
                    .filter(|o| !o.is_empty())
                    .collect();
                let kernel_fs = KernelFs { kind, mkfs: kernel_mkfs, options: &options.join(",") };
                let exported = Exported::new(workspace, amphi, &service, &kernel_fs)?;
                let files = Box::new(SyscallFiles::new(exported.directory())?);
                Ok(Seated { files, device: Device::Exported(exported) })
            }
        }
    }
}

/// Options of `amphi mkfs`.
pub(super) fn profile_options(ssds: &Ssds<'_>) -> Vec<String> {
    ["--profile", ssds.profile, "--size", &ssds.size.to_string()].map(str::to_owned).to_vec()
}

/// Options of `amphi mount` and `amphi export`.
pub(super) fn speed(ssds: &Ssds<'_>) -> Vec<String> {
    ssds.dilation.map_or_else(
        || vec!["--free".to_owned()],
        |dilation| vec!["--dilate".to_owned(), dilation.to_string()],
    )
}

/// A profile by its name or file.
///
/// # Errors
/// There is none.
pub(super) fn profile(name: &str) -> Result<Profile> {
    if name.contains('/') {
        return Profile::load(Path::new(name)).with_context(|| format!("the profile {name} cannot be used"));
    }
    Ok(Profile::named(name)?)
}

fn library(ssds: &Ssds<'_>) -> Result<Seated> {
    let options = OpenOptions {
        dilation: ssds.dilation.unwrap_or(1.0),
        free: ssds.dilation.is_none(),
        ..OpenOptions::default()
    };
    let device = Arc::new(Ssd::try_in_memory(&profile(ssds.profile)?, ssds.size, &options)?);
    ByteFs::format(&*device, &FormatOptions::default())?;
    let mut mount = MountOptions::default();
    mount.write_back_interval_ns = (mount.write_back_interval_ns as f64 * options.dilation) as u64;
    let fs = Arc::new(ByteFs::mount(Arc::clone(&device), mount)?);
    let files = Box::new(LibraryFiles::new(fs, HostCosts::default()));
    Ok(Seated { files, device: Device::Here(device) })
}

impl Seated {
    /// Its files.
    pub(super) fn files(&self) -> &dyn Files {
        &*self.files
    }

    /// What its SSD has counted so far.
    ///
    /// # Errors
    /// The daemon is gone.
    pub(super) fn counters(&self) -> Result<Counters> {
        let stats: Value = match &self.device {
            Device::Here(ssd) => serde_json::to_value(ssd.stats())?,
            Device::Served(served) => served.stats()?["device"].take(),
            Device::Exported(exported) => exported.served().stats()?["device"].take(),
        };
        Counters::of(&stats)
    }
}
