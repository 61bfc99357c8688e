//! Both file systems on SSDs of the same size. Traffic is what is compared, not time; but the kernel's has a
//! device that takes its time, because what its `sync` writes depends on whether a write takes longer than a
//! thread's wake-up.

use std::path::Path;
use std::sync::Arc;

use amphi_front_export::Recorded;
use amphi_fs_ext4like::{DataMode, Ext4Like, FormatOptions, MountOptions};
use amphi_ssd::{Profile, Ssd};
use anyhow::Result;

use super::layout::Layout;
use super::record::{Record, Traffic};
use crate::files::{Files, HostCosts, LibraryFiles, SyscallFiles};
use crate::peers::{Exported, KernelFs, Service, Workspace, text};

/// Bytes of each SSD.
const SSD_BYTES: u64 = 1 << 30;
/// By how much the times of the kernel's SSD are multiplied: a request then takes about a millisecond,
/// whatever else the machine does.
const DILATION: u32 = 50;
/// Blocks of each journal: what mke2fs chooses for that size.
const JOURNAL_BLOCKS: u32 = 8192;

/// A file system whose requests are written down.
pub(super) struct Rival {
    files: Arc<dyn Files>,
    record: Record,
    /// Of the kernel's, whose requests do not say what they serve.
    layout: Option<Layout>,
    exported: Option<Exported>,
}

impl Rival {
    /// The kernel's ext4 on an exported SSD.
    ///
    /// # Errors
    /// The machine lacks what it needs.
    pub(super) fn kernel(workspace: &Workspace, amphi: &Path, data: DataMode) -> Result<Self> {
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
        let journal = format!("size={}", JOURNAL_BLOCKS / 256);
        let kernel_fs = KernelFs {
            kind: "ext4",
            mkfs: &["-b", "4096", "-J", &journal, "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
            options: match data {
                DataMode::Ordered => "data=ordered",
                DataMode::Journal => "data=journal",
            },
        };
        let exported = Exported::new(workspace, amphi, &service, &kernel_fs)?;
        Ok(Self {
            files: Arc::new(SyscallFiles::new(exported.directory())?),
            record: Record::open(&path)?,
            layout: Some(Layout::of(exported.device())?),
            exported: Some(exported),
        })
    }

    /// The baseline, called in this process.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn baseline(workspace: &Workspace, data: DataMode) -> Result<Self> {
        let path = workspace.path("baseline.record");
        let file = std::fs::File::options().append(true).create_new(true).open(&path)?;
        let ssd = Arc::new(Ssd::in_memory(&Profile::named("free")?, SSD_BYTES));
        let device = Arc::new(Recorded::new(ssd, file));
        let format = FormatOptions { journal_blocks: Some(JOURNAL_BLOCKS), ..FormatOptions::default() };
        Ext4Like::format(&*device, &format)?;
        let fs = Arc::new(Ext4Like::mount(device, MountOptions { data, ..MountOptions::default() })?);
        Ok(Self {
            files: Arc::new(LibraryFiles::new(fs, HostCosts::default())),
            record: Record::open(&path)?,
            layout: None,
            exported: None,
        })
    }

    /// The block device that it is on; none of the baseline.
    pub(super) fn device(&self) -> &str {
        self.exported.as_ref().map_or("", Exported::device)
    }

    /// What reached its SSD since the last call.
    ///
    /// # Errors
    /// The record cannot be read.
    pub(super) fn take(record: &mut Record, layout: Option<&Layout>) -> Result<Traffic> {
        record.take(&|block| layout.map(|layout| layout.structure(block)))
    }

    /// Its parts, to be used beside each other.
    pub(super) fn parts(&mut self) -> (&Arc<dyn Files>, &mut Record, Option<&Layout>) {
        (&self.files, &mut self.record, self.layout.as_ref())
    }
}
