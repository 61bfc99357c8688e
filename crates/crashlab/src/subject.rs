//! What is crashed: a file system by name, with how to make it, mount it and check it on a small device.

use std::sync::Arc;

use amphi_device::{Device, Lpa, PAGE_BYTES};
use amphi_fs_ext4like::Ext4Like;
use amphi_pins::Pinned;
use amphi_pins::logs::{Options as LogOptions, Rule};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::{AccessTimes, FileSystem};
use amphi_volume::{Error, FormatOptions, MountOptions, Severity, Volume};
use amphi_volumes::Act;

pub use amphi_volumes::Kind;

use crate::rig::Rig;

/// A file system that can be crashed, in one of its ways of making data durable or one of its variants.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Its name on the command line and in IDs.
    pub name: &'static str,
    /// The firmware of the SSD it is for.
    pub firmware: Firmware,
    kind: Kind,
    /// Its own mount options.
    words: &'static str,
    inodes: Inodes,
    /// Bytes of a data block, where the file system has a choice.
    block_bytes: Option<u64>,
    /// Pages that differ from mount to mount: counts of mounts, times.
    pub bookkeeping: &'static [Lpa],
    /// Checking mounts it, and so changes the device: a copy is checked.
    checks_a_copy: bool,
    /// What its `fsync` of a regular file makes durable.
    pub fsync: Fsync,
}

/// What `fsync` of a regular file makes durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fsync {
    /// It, and what was done before with what it needs.
    #[default]
    Before,
    /// It alone; `fdatasync` leaves the times of what was written over.
    File,
    /// What it holds. Its attributes may be older, and of a write that is not synced a part may be there.
    Contents,
}

/// How many inodes a file system is made with.
#[derive(Clone, Copy, Debug)]
enum Inodes {
    Fixed(u32),
    /// One for each four pages, and so many at least.
    AtLeast(u32),
}

/// ByteFS, as the paper has it.
const BYTEFS: Subject = Subject {
    name: "bytefs",
    firmware: Firmware::Log,
    kind: Kind::Bytefs,
    words: "data=ordered,variant=full",
    // The small devices have had 512 since IDs name crashes on them.
    inodes: Inodes::AtLeast(512),
    block_bytes: None,
    bookkeeping: &[Lpa(0)],
    checks_a_copy: false,
    fsync: Fsync::Before,
};

/// The baseline.
const EXT4LIKE: Subject = Subject {
    name: "ext4like",
    firmware: Firmware::Log,
    kind: Kind::Ext4like,
    words: "data=ordered",
    inodes: Inodes::Fixed(512),
    block_bytes: None,
    bookkeeping: &[Lpa(0)],
    checks_a_copy: false,
    fsync: Fsync::Before,
};

/// RomeFS.
const ROMEFS: Subject = Subject {
    name: "romefs",
    firmware: Firmware::Memory,
    kind: Kind::Romefs,
    words: "",
    inodes: Inodes::Fixed(256),
    // So small that the workloads write some.
    block_bytes: Some(16 << 10),
    bookkeeping: &[],
    checks_a_copy: false,
    fsync: Fsync::Before,
};

/// DevFS.
const DEVFS: Subject = Subject {
    name: "devfs",
    firmware: Firmware::FileSystem,
    kind: Kind::Devfs,
    words: "",
    inodes: Inodes::Fixed(256),
    block_bytes: None,
    bookkeeping: &[],
    // It brings in place what slots hold.
    checks_a_copy: true,
    fsync: Fsync::Before,
};

/// The subjects.
pub const ALL: [Subject; 18] = [
    BYTEFS,
    Subject { name: "bytefs-journal", words: "data=journal", ..BYTEFS },
    Subject { name: "bytefs-grouped", words: "metadata=grouped", ..BYTEFS },
    Subject { name: "bytefs-log", words: "variant=log", ..BYTEFS },
    Subject { name: "bytefs-dual", words: "variant=dual", firmware: Firmware::PageCache, ..BYTEFS },
    EXT4LIKE,
    Subject { name: "ext4like-journal", words: "data=journal", ..EXT4LIKE },
    Subject { name: "ext4like-pins", firmware: Firmware::BaBuffer, fsync: Fsync::Contents, ..EXT4LIKE },
    ROMEFS,
    Subject { name: "romefs-lazy", words: "data=lazy", ..ROMEFS },
    Subject { name: "romefs-threads", words: "io-threads=2", ..ROMEFS },
    Subject {
        name: "augefs",
        firmware: Firmware::Memory,
        kind: Kind::Augefs,
        words: "",
        inodes: Inodes::Fixed(256),
        block_bytes: None,
        bookkeeping: &[],
        checks_a_copy: true,
        fsync: Fsync::Before,
    },
    DEVFS,
    Subject { name: "devfs-naive", words: "crash=journal", ..DEVFS },
    Subject {
        name: "novalike",
        firmware: Firmware::PageCache,
        kind: Kind::Novalike,
        words: "",
        inodes: Inodes::Fixed(256),
        // It undoes what a journal has open.
        checks_a_copy: true,
        ..EXT4LIKE
    },
    Subject {
        name: "pmfslike",
        firmware: Firmware::PageCache,
        kind: Kind::Pmfslike,
        words: "",
        inodes: Inodes::Fixed(256),
        // It undoes what the log has open.
        checks_a_copy: true,
        ..EXT4LIKE
    },
    Subject {
        name: "f2fslike",
        kind: Kind::F2fslike,
        words: "",
        // Mounting deletes inodes without names, and makes a checkpoint.
        bookkeeping: &[],
        fsync: Fsync::File,
        ..EXT4LIKE
    },
    Subject { name: "toy", kind: Kind::Toy, words: "", ..EXT4LIKE },
];

/// The subject of a name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Subject> {
    static SUBJECTS: [Subject; ALL.len()] = ALL;
    SUBJECTS.iter().find(|subject| subject.name == name)
}

/// The subjects that are variants of one file system.
pub fn of(kind: Kind) -> impl Iterator<Item = &'static str> {
    ALL.into_iter().filter(move |subject| subject.kind == kind).map(|subject| subject.name)
}

impl Subject {
    /// Makes an empty one.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn format(&self, device: &Arc<Rig>) -> Result<(), String> {
        self.format_some(device, None)
    }

    /// As [`format`](Self::format), on so many bytes of the device.
    ///
    /// # Errors
    /// As there.
    pub fn format_some(&self, device: &Arc<Rig>, bytes: Option<u64>) -> Result<(), String> {
        let inodes = match self.inodes {
            Inodes::Fixed(inodes) => inodes,
            Inodes::AtLeast(least) => (device.capacity_pages() / 4).max(least.into()) as u32,
        };
        let options = FormatOptions {
            bytes,
            inodes: Some(inodes),
            block_bytes: self.block_bytes,
            ..FormatOptions::default()
        };
        self.act(device, Make(device, &options))
    }

    /// Does something with the file system while it is not mounted.
    pub(crate) fn act<T>(
        &self,
        device: &Rig,
        act: impl Act<Rig, Out = Result<T, Error>>,
    ) -> Result<T, String> {
        self.kind.with_on(device, act).map_err(|error| error.to_string())
    }

    /// Mounts it, recovering it if need be. No background work is started.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn mount(&self, device: &Arc<Rig>) -> Result<Box<dyn FileSystem>, String> {
        self.mount_with(device, MountOptions::default())
    }

    /// As [`mount`](Self::mount), with so little cached that most is read again and again.
    ///
    /// # Errors
    /// As there.
    pub fn mount_forgetful(&self, device: &Arc<Rig>) -> Result<Box<dyn FileSystem>, String> {
        self.mount_with(device, forgetful())
    }

    /// As [`mount_forgetful`](Self::mount_forgetful), with background work every millisecond.
    ///
    /// # Errors
    /// As there.
    pub fn mount_busy(&self, device: &Arc<Rig>) -> Result<Box<dyn FileSystem>, String> {
        let often = MountOptions { background_interval_ns: Some(1_000_000), ..forgetful() };
        self.mount_with(device, often)
    }

    fn mount_with(&self, device: &Arc<Rig>, rest: MountOptions) -> Result<Box<dyn FileSystem>, String> {
        let options = MountOptions {
            words: self.words.to_owned(),
            access_times: AccessTimes::Never,
            background_interval_ns: rest.background_interval_ns.or(Some(0)),
            // The model's clock shows every ns.
            tick_ns: Some(1),
            ..rest
        };
        if self.firmware == Firmware::BaBuffer {
            return with_logs(device, &options);
        }
        self.kind.with(Mount(device, &options)).map_err(|error| error.to_string())
    }

    /// Checks the file system, which may be mounted but is idle: everything wrong that is found, in words.
    ///
    /// # Errors
    /// Why it cannot be checked.
    pub fn check(&self, device: &Arc<Rig>) -> Result<Vec<String>, String> {
        let check = |device| self.kind.with(Check(device)).map_err(|error| error.to_string());
        if !self.checks_a_copy {
            return check(device);
        }
        let copy = device.ssd().fork().map_err(|error| error.to_string())?;
        check(&Arc::new(Rig::plain(copy)))
    }
}

/// Few pages and inodes cached.
fn forgetful() -> MountOptions {
    MountOptions { page_cache_pages: Some(6), inode_cache: Some(3), ..MountOptions::default() }
}

struct Make<'a>(&'a Arc<Rig>, &'a FormatOptions);

impl Act<Rig> for Make<'_> {
    type Out = Result<(), Error>;

    fn on<V: Volume<Rig>>(self) -> Self::Out {
        V::format(self.0, self.1)
    }
}

struct Mount<'a>(&'a Arc<Rig>, &'a MountOptions);

impl Act<Rig> for Mount<'_> {
    type Out = Result<Box<dyn FileSystem>, Error>;

    fn on<V: Volume<Rig>>(self) -> Self::Out {
        Ok(Box::new(V::mount(self.0, self.1)?))
    }
}

/// The ext4-like file system with pins, each file a log from its first sync on, in parts of two pages.
fn with_logs(device: &Arc<Rig>, options: &MountOptions) -> Result<Box<dyn FileSystem>, String> {
    let rules = vec![Rule::parse("*")?];
    let logs = LogOptions { rules, part_bytes: Some(2 * PAGE_BYTES as u64), after_syncs: 1 };
    let below = || <Ext4Like<Rig> as Volume<Rig>>::mount(device, options);
    let fs = Pinned::mount_with_logs(device, &logs, below).map_err(|error| error.to_string())?;
    Ok(Box::new(fs))
}

struct Check<'a>(&'a Arc<Rig>);

impl Act<Rig> for Check<'_> {
    type Out = Result<Vec<String>, Error>;

    fn on<V: Volume<Rig>>(self) -> Self::Out {
        let found = V::check(self.0, &mut |_| {})?.findings;
        let wrong = found.into_iter().filter(|(severity, _)| *severity != Severity::Info);
        Ok(wrong.map(|(_, sentence)| sentence).collect())
    }
}

/// How large the device is that a file system is crashed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So small that thousands of forks a second can be made, and a log that sequences of a few operations do
    /// not fill.
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
        // Half of it is slots, so few that they are taken away.
        Size::Small | Size::Cramped if firmware == Firmware::FileSystem => (64 << 10, 4 << 20),
        Size::Small if firmware == Firmware::Memory => (1 << 20, 4 << 20),
        Size::Cramped if firmware == Firmware::Memory => (2 << 20, 4 << 20),
        Size::Roomy if firmware == Firmware::Memory => (8 << 20, 64 << 20),
        Size::Small => (512 << 10, 4 << 20),
        Size::Cramped => (64 << 10, 4 << 20),
        Size::Roomy => (1 << 20, 64 << 20),
    };
    // A few parts of logs, so that their number runs out.
    (profile.ba_buffer.bytes, profile.ba_buffer.entries) = (64 << 10, 4);
    profile.firmware.kind = firmware;
    (profile.log.region_bytes, profile.firmware.memory_bytes) = (memory, memory);
    let options = OpenOptions { free, ..OpenOptions::default() };
    Ssd::try_in_memory(&profile, bytes, &options).map_err(|error| error.to_string())
}
