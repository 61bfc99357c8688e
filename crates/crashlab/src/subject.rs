//! What is crashed: a file system by name, with how to make it, mount it and check it on a small device.

use std::sync::Arc;

use amphi_device::{Device, Lpa};
use amphi_fs_bytefs::{ByteFs, DataMode, FormatOptions, MountOptions, Variant, fsck};
use amphi_fs_ext4like::{self as ext4like, Ext4Like};
use amphi_fs_romefs::{self as romefs, RomeFs};
use amphi_ssd::Firmware;
use amphi_ssd::{OpenOptions, Profile, Ssd};
use amphi_vfs::{AccessTimes, FileSystem};

use crate::rig::Rig;

/// A file system that can be crashed.
pub trait Subject: Send + Sync {
    /// Its name on the command line and in IDs.
    fn name(&self) -> &'static str;

    /// Makes an empty one.
    ///
    /// # Errors
    /// Why not, in words.
    fn format(&self, device: &Arc<Rig>) -> Result<(), String>;

    /// Mounts it, recovering it if need be. No background work is started.
    ///
    /// # Errors
    /// Why not, in words.
    fn mount(&self, device: Arc<Rig>) -> Result<Box<dyn FileSystem>, String>;

    /// Checks the file system, which may be mounted but is idle: everything wrong that is found, in words.
    ///
    /// # Errors
    /// Why it cannot be checked.
    fn check(&self, device: &Arc<Rig>) -> Result<Vec<String>, String>;

    /// Pages that differ from mount to mount: counts of mounts, times.
    fn bookkeeping(&self) -> &'static [Lpa];

    /// The firmware of the SSD it is for.
    fn firmware(&self) -> Firmware {
        Firmware::Log
    }
}

/// ByteFS, in one of its two ways of making data durable or one of the paper's variants.
#[derive(Clone, Copy, Debug)]
pub struct ByteFsSubject {
    name: &'static str,
    data: DataMode,
    variant: Variant,
}

impl Subject for ByteFsSubject {
    fn name(&self) -> &'static str {
        self.name
    }

    fn firmware(&self) -> Firmware {
        if self.variant == Variant::Dual { Firmware::PageCache } else { Firmware::Log }
    }

    fn format(&self, device: &Arc<Rig>) -> Result<(), String> {
        // The small devices have had 512 since IDs name crashes on them.
        let inodes = (device.capacity_pages() / 4).max(512) as u32;
        let options = FormatOptions { inodes: Some(inodes), ..FormatOptions::default() };
        ByteFs::format(&**device, &options).map_err(|error| error.to_string())
    }

    fn mount(&self, device: Arc<Rig>) -> Result<Box<dyn FileSystem>, String> {
        let options = MountOptions {
            write_back_interval_ns: 0,
            access_times: AccessTimes::Never,
            data: self.data,
            variant: self.variant,
            ..MountOptions::default()
        };
        match ByteFs::mount(device, options) {
            Ok(fs) => Ok(Box::new(fs)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn check(&self, device: &Arc<Rig>) -> Result<Vec<String>, String> {
        let report = fsck::check(&**device, &mut |_| {}).map_err(|error| error.to_string())?;
        let wrong = report.findings.iter().filter(|finding| finding.severity != fsck::Severity::Info);
        Ok(wrong.map(ToString::to_string).collect())
    }

    fn bookkeeping(&self) -> &'static [Lpa] {
        &[Lpa(0)]
    }
}

/// The ext4-like file system, in one of its two ways of making data durable.
#[derive(Clone, Copy, Debug)]
pub struct Ext4LikeSubject {
    data: ext4like::DataMode,
}

impl Subject for Ext4LikeSubject {
    fn name(&self) -> &'static str {
        match self.data {
            ext4like::DataMode::Ordered => EXT4LIKE[0],
            ext4like::DataMode::Journal => EXT4LIKE[1],
        }
    }

    fn format(&self, device: &Arc<Rig>) -> Result<(), String> {
        let options = ext4like::FormatOptions { inodes: Some(512), ..ext4like::FormatOptions::default() };
        Ext4Like::format(&**device, &options).map_err(|error| error.to_string())
    }

    fn mount(&self, device: Arc<Rig>) -> Result<Box<dyn FileSystem>, String> {
        let options = ext4like::MountOptions {
            commit_interval_ns: 0,
            access_times: AccessTimes::Never,
            data: self.data,
            // The model's clock shows every ns.
            tick_ns: 1,
            ..ext4like::MountOptions::default()
        };
        match Ext4Like::mount(device, options) {
            Ok(fs) => Ok(Box::new(fs)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn check(&self, device: &Arc<Rig>) -> Result<Vec<String>, String> {
        let report = ext4like::fsck::check(device).map_err(|error| error.to_string())?;
        let wrong =
            report.findings.iter().filter(|finding| finding.severity() != ext4like::fsck::Severity::Info);
        Ok(wrong.map(ToString::to_string).collect())
    }

    fn bookkeeping(&self) -> &'static [Lpa] {
        &[Lpa(0)]
    }
}

/// RomeFS, with data blocks so small that the workloads write some.
#[derive(Clone, Copy, Debug)]
pub struct RomeFsSubject;

impl Subject for RomeFsSubject {
    fn name(&self) -> &'static str {
        ROMEFS[0]
    }

    fn firmware(&self) -> Firmware {
        Firmware::Memory
    }

    fn format(&self, device: &Arc<Rig>) -> Result<(), String> {
        let options = romefs::FormatOptions {
            inodes: Some(256),
            block_bytes: 16 << 10,
            ..romefs::FormatOptions::default()
        };
        RomeFs::format(device, &options).map_err(|error| error.to_string())
    }

    fn mount(&self, device: Arc<Rig>) -> Result<Box<dyn FileSystem>, String> {
        let options = romefs::MountOptions {
            checkpoint_interval_ns: 0,
            access_times: AccessTimes::Never,
            ..romefs::MountOptions::default()
        };
        match RomeFs::mount(&device, options) {
            Ok(fs) => Ok(Box::new(fs)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn check(&self, device: &Arc<Rig>) -> Result<Vec<String>, String> {
        let report = romefs::fsck::check(device).map_err(|error| error.to_string())?;
        let wrong =
            report.findings.iter().filter(|finding| finding.severity() != romefs::fsck::Severity::Info);
        Ok(wrong.map(ToString::to_string).collect())
    }

    fn bookkeeping(&self) -> &'static [Lpa] {
        &[]
    }
}

/// The subjects by name.
#[must_use]
pub fn named(name: &str) -> Option<Arc<dyn Subject>> {
    let bytefs = BYTEFS_SUBJECTS.map(|subject| Arc::new(subject) as Arc<dyn Subject>);
    let ext4like = [ext4like::DataMode::Ordered, ext4like::DataMode::Journal]
        .map(|data| Arc::new(Ext4LikeSubject { data }) as Arc<dyn Subject>);
    let romefs = std::iter::once(Arc::new(RomeFsSubject) as Arc<dyn Subject>);
    bytefs.into_iter().chain(ext4like).chain(romefs).find(|subject| subject.name() == name)
}

const BYTEFS_SUBJECTS: [ByteFsSubject; 4] = [
    ByteFsSubject { name: BYTEFS[0], data: DataMode::Ordered, variant: Variant::Full },
    ByteFsSubject { name: BYTEFS[1], data: DataMode::Journal, variant: Variant::Full },
    ByteFsSubject { name: BYTEFS[2], data: DataMode::Ordered, variant: Variant::Log },
    ByteFsSubject { name: BYTEFS[3], data: DataMode::Ordered, variant: Variant::Dual },
];

/// The names of ByteFS.
pub const BYTEFS: [&str; 4] = ["bytefs", "bytefs-journal", "bytefs-log", "bytefs-dual"];
/// The names of the ext4-like file system.
pub const EXT4LIKE: [&str; 2] = ["ext4like", "ext4like-journal"];
/// The name of RomeFS.
pub const ROMEFS: [&str; 1] = ["romefs"];
/// The names there are.
pub const NAMES: [&str; 7] =
    [BYTEFS[0], BYTEFS[1], BYTEFS[2], BYTEFS[3], EXT4LIKE[0], EXT4LIKE[1], ROMEFS[0]];

/// How large the device is that a file system is crashed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So small that thousands of forks a second can be made, and a log that sequences of a few operations do not fill.
    Small,
    /// A log that is cleaned and flash that is collected all the time.
    Cramped,
    /// Room for what programs do in a minute.
    Roomy,
}

/// A new device of a profile, which takes no time.
///
/// # Errors
/// The profile does not exist, or does not go with the firmware.
pub fn device(profile: &str, firmware: Firmware, size: Size) -> Result<Ssd, String> {
    sized(profile, firmware, size, true)
}

/// A new device of a profile, which takes the time that the profile says.
///
/// # Errors
/// As [`device`].
pub fn timed_device(profile: &str, firmware: Firmware, size: Size) -> Result<Ssd, String> {
    sized(profile, firmware, size, false)
}

fn sized(profile: &str, firmware: Firmware, size: Size, free: bool) -> Result<Ssd, String> {
    let mut profile = Profile::named(profile).map_err(|error| error.to_string())?;
    let volatile = profile.contract().block_durability == amphi_device::BlockDurability::Flush;
    if volatile && firmware == Firmware::PageCache {
        return Err(format!(
            "profile '{}' has a volatile write buffer, and an SSD whose firmware caches pages has none; choose another",
            profile.name
        ));
    }
    (profile.flash.channels, profile.flash.ways, profile.flash.pages_per_block) = (1, 1, 16);
    profile.log.txlog_bytes = 4096;
    profile.log.partition_bytes = 4 << 20;
    // Of the log, or of the page cache where there is one instead.
    let (memory, bytes) = match size {
        // A memory area holds all metadata too.
        Size::Small if firmware == Firmware::Memory => (1 << 20, 4 << 20),
        Size::Cramped if firmware == Firmware::Memory => (2 << 20, 4 << 20),
        Size::Roomy if firmware == Firmware::Memory => (8 << 20, 64 << 20),
        Size::Small => (512 << 10, 4 << 20),
        Size::Cramped => (64 << 10, 4 << 20),
        Size::Roomy => (1 << 20, 64 << 20),
    };
    profile.firmware.kind = firmware;
    (profile.log.region_bytes, profile.firmware.memory_bytes) = (memory, memory);
    let options = OpenOptions { free, ..OpenOptions::default() };
    Ssd::try_in_memory(&profile, bytes, &options).map_err(|error| error.to_string())
}
