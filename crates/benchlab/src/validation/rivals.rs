//! Both file systems on SSDs of the same size. Traffic is what is compared, not time; but the kernel's has a
//! device that takes its time, because what its `sync` writes depends on whether a write takes longer than a
//! thread's wake-up.

use std::sync::Arc;

use amphi_front_export::Recorded;
use amphi_fs_ext4like::{DataMode, Ext4Like, FormatOptions, MountOptions};
use amphi_fs_f2fslike::F2fsLike;
use amphi_ssd::{BlockDurabilityName, Profile, Ssd};
use amphi_volume::Volume;
use anyhow::{Context, Result};

use super::layout::{Layout, area};
use super::machine::{ACT, Machine, PREPARE, Wanted};
use super::record::{Record, Traffic};
use super::settings::{JOURNAL_BLOCKS, Kind, Settings};
use super::steps::{Bench, Step};
use crate::files::{Files, HostCosts, LibraryFiles, SyscallFiles};
use crate::peers::{Exported, KernelFs, Served, Service, Workspace, run, text};

/// Bytes of each SSD.
const SSD_BYTES: u64 = 1 << 30;
/// By how much the times of the kernel's SSD are multiplied: a request then takes about a millisecond,
/// whatever else the machine does.
const DILATION: u32 = 50;

/// A file system whose requests are written down.
pub(super) struct Rival {
    place: Place,
    record: Record,
    /// What they serve.
    structures: Structures,
}

/// What requests serve.
pub(super) enum Structures {
    /// The kernel's do not say; it is where they go.
    Places(Layout),
    /// The baseline's say it.
    Tags,
    /// By areas of F2FS.
    TagsOfF2fs,
}

/// Where a file system is at work.
pub(super) enum Place {
    /// Called in this process.
    Here(Arc<dyn Files>, Arc<Ssd>),
    /// In the running kernel.
    Kernel(Arc<dyn Files>, Exported),
    /// In a virtual machine, which goes before what serves its disk.
    Machine(Machine, Served),
}

/// Who does the steps.
pub(super) enum Hands<'a> {
    /// This process.
    Ours(Box<Bench<'a>>, &'a [Step]),
    /// The program in the machine.
    Machine(&'a mut Machine),
}

impl Hands<'_> {
    /// Makes what a step needs, and a `sync`.
    ///
    /// # Errors
    /// What the file system answers.
    pub(super) fn make_ready(&mut self, number: usize) -> Result<()> {
        match self {
            Self::Ours(bench, steps) => steps[number].make_ready(bench),
            Self::Machine(machine) => machine.order(PREPARE, number),
        }
    }

    /// Does a step.
    ///
    /// # Errors
    /// What the file system answers.
    pub(super) fn act(&mut self, number: usize) -> Result<()> {
        match self {
            Self::Ours(bench, steps) => (steps[number].act)(bench),
            Self::Machine(machine) => machine.order(ACT, number),
        }
    }
}

impl Place {
    /// Begins a round, and hands out who does the steps.
    ///
    /// # Errors
    /// What the file system answers.
    pub(super) fn begin<'a>(&'a mut self, steps: &'a [Step], round: usize) -> Result<(Hands<'a>, Flash<'a>)> {
        let (files, flash) = match self {
            Self::Here(files, ssd) => (files, Flash::Here(ssd)),
            Self::Kernel(files, exported) => (files, Flash::Served(exported.served())),
            Self::Machine(machine, served) => {
                machine.begin(round)?;
                return Ok((Hands::Machine(machine), Flash::Served(served)));
            }
        };
        let bench = Bench::new(files)?;
        bench.advance_log(round)?;
        Ok((Hands::Ours(Box::new(bench), steps), flash))
    }
}

/// The flash of an SSD.
pub(super) enum Flash<'a> {
    Here(&'a Ssd),
    Served(&'a Served),
}

impl Flash<'_> {
    /// Bytes programmed so far.
    ///
    /// # Errors
    /// The daemon is gone.
    pub(super) fn bytes(&self) -> Result<u64> {
        match self {
            Self::Here(ssd) => Ok(ssd.stats().flash_bytes_written),
            Self::Served(served) => {
                let counted = served.stats()?["device"]["flash_bytes_written"].as_u64();
                counted.context("the device counts no flash")
            }
        }
    }
}

impl Rival {
    /// The kernel's on an exported SSD.
    ///
    /// # Errors
    /// The machine lacks what it needs.
    pub(super) fn kernel(workspace: &Workspace, settings: &Settings) -> Result<Self> {
        let path = workspace.path("kernel.record");
        let option = format!("record={}", text(&path)?);
        let size = SSD_BYTES.to_string();
        let dilation = DILATION.to_string();
        let service = Service {
            name: "kernel",
            verb: "export",
            mkfs: &["--fs", "none", "--profile", "mssd-pcie3", "--size", &size],
            options: &["--dilate", &dilation, "-o", &option],
        };
        let kind = settings.kind;
        let mkfs = kind.mkfs();
        let mkfs: Vec<&str> = mkfs.iter().map(String::as_str).collect();
        let Some(package) = &settings.machine else {
            let kernel_fs = KernelFs { kind: kind.name(), mkfs: &mkfs, options: kind.options() };
            let exported = Exported::new(workspace, &settings.amphi, &service, &kernel_fs)?;
            let structures = Structures::Places(kind.layout(exported.device())?);
            let files = Arc::new(SyscallFiles::new(exported.directory())?);
            let place = Place::Kernel(files, exported);
            return Ok(Self { place, record: Record::open(&path)?, structures });
        };
        let served = Served::new(workspace, &settings.amphi, &service)?;
        let disk = served.directory().join("ssd");
        let quiet: &[&str] = if kind == Kind::F2fs { &["-q", "-f"] } else { &["-q", "-F"] };
        run(&format!("mkfs.{}", kind.name()), &[quiet, &mkfs, &[text(&disk)?]].concat())?;
        let structures = Structures::Places(kind.layout(text(&disk)?)?);
        let wanted = Wanted {
            amphi: &settings.amphi,
            package,
            disk: &disk,
            kind: kind.name(),
            options: kind.options(),
            arguments: &settings.arguments,
        };
        let machine = Machine::start(workspace, &wanted)?;
        Ok(Self { place: Place::Machine(machine, served), record: Record::open(&path)?, structures })
    }

    /// The baseline, called in this process.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn baseline(workspace: &Workspace, kind: Kind) -> Result<Self> {
        let path = workspace.path("baseline.record");
        let file = std::fs::File::options().append(true).create_new(true).open(&path)?;
        let mut profile = Profile::named("free")?;
        if kind == Kind::F2fs {
            // The kernel takes an exported SSD for one that must be flushed. The baseline asks its device;
            // that of ext4's kind flushes whatever it answers.
            profile.persistence.block_durability = BlockDurabilityName::Flush;
        }
        let ssd = Arc::new(Ssd::in_memory(&profile, SSD_BYTES));
        let device = Arc::new(Recorded::new(Arc::clone(&ssd), file));
        let files: Arc<dyn Files> = match kind {
            Kind::Ext4 { journal_data } => {
                let format =
                    FormatOptions { journal_blocks: Some(JOURNAL_BLOCKS), ..FormatOptions::default() };
                Ext4Like::format(&*device, &format)?;
                let data = if journal_data { DataMode::Journal } else { DataMode::Ordered };
                let fs = Ext4Like::mount(device, MountOptions { data, ..MountOptions::default() })?;
                Arc::new(LibraryFiles::new(Arc::new(fs), HostCosts::default()))
            }
            Kind::F2fs => {
                F2fsLike::format(&device, &amphi_volume::FormatOptions::default())?;
                // F2FS makes a checkpoint by itself after a minute, which is longer than any step.
                let usual = amphi_volume::MountOptions::default();
                let mount = amphi_volume::MountOptions { background_interval_ns: Some(0), ..usual };
                let fs = <F2fsLike<_> as Volume<_>>::mount(&device, &mount)?;
                Arc::new(LibraryFiles::new(Arc::new(fs), HostCosts::default()))
            }
        };
        let structures = if kind == Kind::F2fs { Structures::TagsOfF2fs } else { Structures::Tags };
        Ok(Self { place: Place::Here(files, ssd), record: Record::open(&path)?, structures })
    }

    /// The block device that it is on; none of the baseline, and none that this system has of a machine's.
    pub(super) fn device(&self) -> &str {
        match &self.place {
            Place::Kernel(_, exported) => exported.device(),
            _ => "",
        }
    }

    /// What runs it, where that is a machine.
    pub(super) fn about(&self) -> Option<&str> {
        match &self.place {
            Place::Machine(machine, _) => Some(machine.about()),
            _ => None,
        }
    }

    /// What reached its SSD since the last call.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(super) fn take(record: &mut Record, structures: &Structures) -> Result<Traffic> {
        match structures {
            Structures::Places(layout) => record.take(&|block| Some(layout.structure(block))),
            Structures::Tags => record.take(&|_| None),
            Structures::TagsOfF2fs => {
                let mut traffic = record.take(&|_| None)?;
                for (structure, blocks) in std::mem::take(&mut traffic.structures) {
                    *traffic.structures.entry(area(&structure).to_owned()).or_default() += blocks;
                }
                Ok(traffic)
            }
        }
    }

    /// Its parts, to be used beside each other.
    pub(super) fn parts(&mut self) -> (&mut Place, &mut Record, &Structures) {
        (&mut self.place, &mut self.record, &self.structures)
    }

    /// Ends what it is in. One that is dropped ends too, and says nothing.
    ///
    /// # Errors
    /// The machine failed.
    pub(super) fn end(self) -> Result<()> {
        match self.place {
            Place::Machine(machine, _served) => machine.power_off(),
            _ => Ok(()),
        }
    }
}
