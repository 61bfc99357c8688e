//! `amphi mkfs`: creates an emulated SSD in an image file, and a file system on it.

use std::path::{Path, PathBuf};

use amphi_ssd::{Firmware, Profile, Ssd};
use amphi_volume::{FormatOptions, Needs, size};
use amphi_volumes::Kind;
use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::device::{self, Speed};
use crate::filesystem;

/// Creates an emulated SSD and a file system on it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi mkfs ssd.img
  amphi mkfs ssd.img --fs bytefs --size 32G --profile mssd-pcie3
  amphi mkfs ssd.img -i 4K              for many small files: an inode for each 4 KiB
  amphi mkfs raw.img --fs none --firmware page-cache
  amphi mkfs cxl.img --fs romefs --profile romefs-a --size 20G --memory 512M
  amphi mkfs cxl.img --fs none --profile romefs-a --firmware memory --memory 1G
  amphi mkfs dev.img --fs devfs --profile devfs-dram --memory 64M
  amphi mkfs 2b.img --fs none --profile 2b-ssd --memory 4M --pin-entries 16")]
pub struct Options {
    /// The image to create. It is sparse: it takes the room of what is written to it.
    image: PathBuf,
    /// The file system; `none` makes the SSD alone.
    #[arg(long, value_parser = file_system(), default_value = Kind::Bytefs.name())]
    fs: Choice,
    /// The SSD's capacity.
    #[arg(long, value_parser = size::parse, default_value = "8G")]
    size: u64,
    /// The SSD's parameters: a built-in profile's name, or a TOML file.
    #[arg(long, default_value = "mssd-pcie3")]
    profile: String,
    /// What the SSD does with its memory, if not what the profile says.
    #[arg(long, value_enum)]
    firmware: Option<FirmwareChoice>,
    /// How much memory the SSD has for its page cache, memory area or BA-buffer, if not what the profile
    /// says.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    memory: Option<u64>,
    /// How many entries a BA-buffer's table of pins has, if not what the profile says.
    #[arg(long, value_name = "COUNT")]
    pin_entries: Option<u64>,
    /// The file system's name, shown by `amphi info`.
    #[arg(long, default_value = "")]
    label: String,
    /// The file system's size, if it is not to take the whole SSD yet (see `amphi resize`).
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    fs_size: Option<u64>,
    /// The size of the data journal, which -o data=journal needs; 0 for none. A thirty-second part, and 64M
    /// at the most, unless given.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    journal: Option<u64>,
    /// An inode for each so many bytes of the file system: 16K unless given. Smaller for many small files.
    #[arg(short = 'i', value_name = "BYTES", value_parser = size::parse, conflicts_with = "inodes")]
    bytes_per_inode: Option<u64>,
    /// The number of inodes, rounded up so that every allocation group has as many.
    #[arg(short = 'N', value_name = "COUNT")]
    inodes: Option<u32>,
    /// From how many bytes on an aligned part of a write goes by blocks, for RomeFS: a power of two from 4K
    /// to 1M, 64K unless given.
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    threshold: Option<u64>,
    /// Replace an existing image. Its contents are lost.
    #[arg(long)]
    force: bool,
}

/// What to make on the SSD.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    FileSystem(Kind),
    None,
}

impl Choice {
    const NONE: &str = "none";

    const fn name(self) -> &'static str {
        match self {
            Self::FileSystem(kind) => kind.name(),
            Self::None => Self::NONE,
        }
    }

    /// What it asks of the device.
    const fn needs(self) -> Needs {
        match self {
            Self::FileSystem(kind) => kind.identity().needs,
            Self::None => Needs::Blocks,
        }
    }
}

/// Reads what to make; the help text lists the file systems that there are.
fn file_system() -> impl TypedValueParser<Value = Choice> {
    let of = |kind: &Kind| PossibleValue::new(kind.name()).help(kind.identity().summary);
    let none = PossibleValue::new(Choice::NONE).help("None: the device alone");
    PossibleValuesParser::new(Kind::ALL.iter().map(of).chain([none]))
        .map(|name| Kind::named(&name).map_or(Choice::None, Choice::FileSystem))
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum FirmwareChoice {
    /// A transactional write log, which ByteFS needs.
    Log,
    /// A cache of whole pages with write-back, for block and memory file systems.
    PageCache,
    /// A memory area that is reached by bytes alone, beside a block side without a cache.
    Memory,
    /// A small window onto which pages of the block side are pinned, to be reached by bytes.
    BaBuffer,
    /// A file system that runs inside of the SSD, which DevFS needs.
    FileSystem,
}

/// Limits of `-i`, as mke2fs has them.
const BYTES_PER_INODE_MIN: u64 = 1 << 10;
const BYTES_PER_INODE_MAX: u64 = 64 << 20;

/// A memory area for a file system that needs one, of an SSD whose profile has none: so much of its capacity,
/// and at least so many bytes.
const MEMORY_SHARE: u64 = 16;
const MEMORY_BYTES_MIN: u64 = 16 << 20;

pub fn run(options: &Options) -> Result<()> {
    let image = &options.image;
    let mut profile = device::profile(&options.profile)?;
    if let Some(choice) = options.firmware {
        profile.firmware.kind = match choice {
            FirmwareChoice::Log => Firmware::Log,
            FirmwareChoice::PageCache => Firmware::PageCache,
            FirmwareChoice::Memory => Firmware::Memory,
            FirmwareChoice::BaBuffer => Firmware::BaBuffer,
            FirmwareChoice::FileSystem => Firmware::FileSystem,
        };
    }
    if options.firmware.is_none() {
        choose_firmware(&mut profile, options);
    }
    if options.threshold.is_some() && options.fs != Choice::FileSystem(Kind::Romefs) {
        bail!("--threshold is for --fs romefs; of ByteFS it is a mount option");
    }
    if let Some(bytes) = options.memory {
        match profile.firmware.kind {
            Firmware::Log => bail!(
                "--memory is for --firmware page-cache, memory, ba-buffer or file-system; the size of a write log is its profile's log.region_bytes"
            ),
            Firmware::PageCache | Firmware::Memory | Firmware::FileSystem => {
                profile.firmware.memory_bytes = bytes;
            }
            Firmware::BaBuffer => profile.ba_buffer.bytes = bytes,
        }
    }
    if let Some(entries) = options.pin_entries {
        if profile.firmware.kind != Firmware::BaBuffer {
            bail!("--pin-entries is for --firmware ba-buffer; no other has a table of pins");
        }
        profile.ba_buffer.entries = entries;
    }
    if image.exists() {
        replace(options, &profile)?;
    } else {
        make(image, options, &profile)?;
    }
    println!(
        "{}: {} SSD, profile {}, file system {}",
        image.display(),
        size::shown(options.size),
        profile.name,
        options.fs.name()
    );
    Ok(())
}

/// Gives the SSD a memory area if the file system needs one and the profile has none.
fn choose_firmware(profile: &mut Profile, options: &Options) {
    let wanted = match options.fs.needs() {
        Needs::MemoryArea => Firmware::Memory,
        Needs::Inside => Firmware::FileSystem,
        Needs::Blocks | Needs::PageView => return,
    };
    if profile.firmware.kind != wanted {
        profile.firmware.kind = wanted;
        profile.firmware.memory_bytes = (options.size / MEMORY_SHARE).max(MEMORY_BYTES_MIN);
    }
}

/// Makes the device and what is on it, or leaves nothing.
fn make(image: &Path, options: &Options, profile: &Profile) -> Result<()> {
    Ssd::create(image, profile, options.size)?;
    format(image, options).inspect_err(|_| {
        // A device without the file system asked for is nobody's wish. The first error is the one to tell.
        let _ = std::fs::remove_file(image);
    })
}

fn format(image: &Path, options: &Options) -> Result<()> {
    let device = device::open(image, Speed::Free)?;
    // Whoever makes a file system can write to it.
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let format = FormatOptions {
        label: options.label.clone(),
        bytes: options.fs_size,
        journal_bytes: options.journal,
        inodes: inodes(options)?,
        block_bytes: options.threshold,
        ..FormatOptions::default()
    };
    match options.fs {
        Choice::FileSystem(kind) => filesystem::format(kind, device, &format, owner),
        Choice::None => Ok(()),
    }
}

/// How many inodes are wanted, if not as many as usual.
fn inodes(options: &Options) -> Result<Option<u32>> {
    let Some(bytes) = options.bytes_per_inode else {
        return match options.inodes {
            Some(0) => bail!("-N 0: a file system has at least one inode"),
            inodes => Ok(inodes),
        };
    };
    if !(BYTES_PER_INODE_MIN..=BYTES_PER_INODE_MAX).contains(&bytes) {
        bail!("-i {bytes}: an inode for each 1K to 64M bytes is possible");
    }
    let size = options.fs_size.unwrap_or(options.size);
    Ok(Some(u32::try_from((size / bytes).max(1)).unwrap_or(u32::MAX)))
}

/// Makes the new image beside the old one and gives it the name when it is whole: what cannot be made leaves
/// the old one as it was.
fn replace(options: &Options, profile: &Profile) -> Result<()> {
    let image = options.image.canonicalize()?;
    if !options.force {
        bail!(
            "{} exists already; remove it, choose another name, or add --force to lose its contents",
            image.display()
        );
    }
    // Opening proves that it is an image and that nobody uses it, and keeps others from using it meanwhile;
    // its contents do not matter any more.
    let old = device::open(&image, Speed::Free)?;
    let mut name = std::ffi::OsString::from(".");
    name.push(image.file_name().context("an image has a name")?);
    name.push(".new");
    let beside = image.with_file_name(name);
    // One that was killed while it was made.
    if beside.exists() {
        drop(device::open(&beside, Speed::Free));
        std::fs::remove_file(&beside).with_context(|| format!("{} is in the way", beside.display()))?;
    }
    make(&beside, options, profile)?;
    let renamed = std::fs::rename(&beside, &image);
    drop(old);
    renamed.with_context(|| format!("{} cannot be replaced", image.display()))
}
