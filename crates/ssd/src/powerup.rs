//! Making a device's image, checking it, and powering the device up from it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

use crate::ba_buffer::BaBuffer;
use crate::core::Core;
use crate::flash::{Blocks, Checkpoints, TrimLog, rebuild};
use crate::format::{
    self, BLOCK_HEADER_BYTES, BlockHeader, COUNTERS_AT, HEADER_AT, Header, Layout, MAGIC, MAX_CAPACITY_PAGES,
    Mapping, OOB_BYTES, Oob, PAGE, PROFILE_AT, PROFILE_MAX, TRIM_RECORDS, TrimRecord, VERSION, control,
};
use crate::image::{self, Image};
use crate::info::{Info, Shutdown};
use crate::log::Log;
use crate::media::{Media, Partition};
use crate::overlay::PageIndex;
use crate::page_cache::PageCache;
use crate::personality::Personality;
use crate::ports::Stages;
use crate::power::Power;
use crate::protected::Protected;
use crate::stats::{Cause, Counters, Meters, Stats, Wear};
use crate::timing::Timing;
use crate::{Firmware, ImageError, Profile};

/// A device to be made.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) layout: Layout,
    text: String,
    /// Blocks that are bad from the factory.
    bad: Vec<u64>,
}

impl Plan {
    /// Plans a device.
    ///
    /// # Errors
    /// The profile or the capacity is not valid.
    pub(crate) fn new(profile: &Profile, capacity_bytes: u64) -> Result<Self, ImageError> {
        profile.check()?;
        let refuse = |reason| ImageError::Capacity { bytes: capacity_bytes, reason };
        if capacity_bytes == 0 || !capacity_bytes.is_multiple_of(PAGE) {
            return Err(refuse("it must be a positive multiple of 4096"));
        }
        let pages = capacity_bytes / PAGE;
        if pages > MAX_CAPACITY_PAGES {
            return Err(refuse("at most 16 TiB less one page fit the format"));
        }
        if profile.firmware.kind == Firmware::BaBuffer {
            let (needed_uj, budget_uj) = (profile.dump_uj(), profile.ba_buffer.budget_uj());
            if needed_uj > budget_uj {
                let bytes = profile.ba_buffer.bytes;
                return Err(ImageError::Energy { bytes, needed_uj, budget_uj });
            }
        }
        let text = profile.to_toml()?;
        if text.len() as u64 > PROFILE_MAX {
            return Err(refuse("the profile's text is longer than 48 KiB"));
        }
        let layout = Layout::new(profile, pages, Layout::blocks_for(profile, pages));
        let bad: Vec<u64> =
            (0..layout.blocks).filter(|&block| profile.media.is_bad_from_factory(block)).collect();
        if !Layout::blocks_fit(profile, pages, layout.blocks - bad.len() as u64) {
            return Err(refuse("too many of its blocks are bad from the factory; see media.factory_bad_ppm"));
        }
        Ok(Self { layout, text, bad })
    }

    /// Writes the new device into an image of zeros. The header comes last.
    ///
    /// # Errors
    /// The host's disk is full.
    pub(crate) fn write(&self, image: &Image) -> Result<(), ImageError> {
        let layout = &self.layout;
        let no_room = |cause: amphi_device::Error| match cause {
            amphi_device::Error::NoSpace(_) => ImageError::NoSpace { path: "the image".to_owned() },
            other => ImageError::Corrupt(other.to_string()),
        };
        image.allocate(0, layout.txlog_ids).map_err(no_room)?;
        image.allocate(layout.trims, layout.cache - layout.trims).map_err(no_room)?;
        if layout.memory_bytes > 0 {
            image.allocate(layout.memory_map, layout.memory - layout.memory_map).map_err(no_room)?;
        }
        if layout.pin_entries > 0 {
            // A dump has no time to ask for room.
            image.allocate(layout.pins, layout.block_headers - layout.pins).map_err(no_room)?;
        }
        image.allocate(layout.block_headers, layout.oob - layout.block_headers).map_err(no_room)?;
        for &block in &self.bad {
            let bad = BlockHeader { bad: true, ..BlockHeader::from_word(0) };
            image.word(layout.block_header(block)).store(bad.word(), Ordering::Relaxed);
        }
        image.write(PROFILE_AT, self.text.as_bytes());
        image.word(control!(clock)).store(1, Ordering::Relaxed);
        let mut header = Header {
            magic: MAGIC,
            version: U32::new(VERSION),
            header_bytes: U32::new(size_of::<Header>() as u32),
            image_id: U64::new(amphi_rt::random::u64()),
            created_ns: U64::new(amphi_rt::time::wall_ns().max(0) as u64),
            capacity_pages: U64::new(layout.capacity_pages),
            blocks: U64::new(layout.blocks),
            image_bytes: U64::new(layout.image_bytes),
            profile_bytes: U32::new(self.text.len() as u32),
            profile_crc: U32::new(crc32c::crc32c(self.text.as_bytes())),
            reserved: [0; 60],
            crc: U32::ZERO,
        };
        header.crc = U32::new(header.checksum());
        for at in HEADER_AT {
            image.write_struct(at, &header);
        }
        Ok(())
    }
}

/// What an image's header and profile say.
#[derive(Debug)]
pub(crate) struct Parts {
    image_id: u64,
    profile: Profile,
    layout: Layout,
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Header").field("version", &self.version.get()).finish_non_exhaustive()
    }
}

/// Chooses the header copy that is whole.
fn choose(copies: [Header; 2], path: &str) -> Result<Header, ImageError> {
    for header in &copies {
        if header.magic == MAGIC && header.crc.get() == header.checksum() {
            if header.version.get() != VERSION {
                return Err(ImageError::Version { found: header.version.get(), supported: VERSION });
            }
            return Ok(*header);
        }
    }
    match copies.iter().find(|header| header.magic == MAGIC) {
        // Another version may keep its checksum elsewhere.
        Some(header) if header.version.get() != VERSION => {
            Err(ImageError::Version { found: header.version.get(), supported: VERSION })
        }
        Some(_) => Err(ImageError::Checksum { what: "header" }),
        None => Err(ImageError::NotAnImage { path: path.to_owned() }),
    }
}

fn parse(header: Header, text: &[u8]) -> Result<Parts, ImageError> {
    if header.profile_crc.get() != crc32c::crc32c(text) {
        return Err(ImageError::Checksum { what: "profile" });
    }
    let text = std::str::from_utf8(text).map_err(|_| ImageError::Checksum { what: "profile" })?;
    let profile = Profile::parse(text)?;
    let pages = header.capacity_pages.get();
    if pages == 0 || pages > MAX_CAPACITY_PAGES {
        return Err(ImageError::Corrupt(format!("a capacity of {pages} pages is impossible")));
    }
    if !Layout::blocks_fit(&profile, pages, header.blocks.get()) {
        return Err(ImageError::Corrupt(format!(
            "{} erase blocks do not fit its capacity",
            header.blocks.get()
        )));
    }
    let layout = Layout::new(&profile, pages, header.blocks.get());
    if layout.image_bytes != header.image_bytes.get() {
        return Err(ImageError::Corrupt("its length does not fit its regions".to_owned()));
    }
    Ok(Parts { image_id: header.image_id.get(), profile, layout })
}

/// Reads and checks a mapped image's header and profile.
///
/// # Errors
/// As for [`open`].
pub(crate) fn read(image: &Image) -> Result<Parts, ImageError> {
    let header = choose(HEADER_AT.map(|at| image.read_struct(at)), "memory")?;
    if u64::from(header.profile_bytes.get()) > PROFILE_MAX {
        return Err(ImageError::Checksum { what: "profile" });
    }
    let mut text = vec![0; header.profile_bytes.get() as usize];
    image.read(PROFILE_AT, &mut text);
    parse(header, &text)
}

/// Takes an image's bytes into memory.
///
/// # Errors
/// As for [`open`].
pub(crate) fn copy_in(bytes: &[u8]) -> Result<(Image, Parts), ImageError> {
    let head = PROFILE_AT + PROFILE_MAX;
    let image = Image::in_memory((bytes.len() as u64).max(head))?;
    image.write(0, bytes);
    let parts = read(&image)?;
    let (expected, actual) = (parts.layout.image_bytes, bytes.len() as u64);
    if actual < expected {
        return Err(ImageError::Truncated { expected, actual });
    }
    Ok((image, parts))
}

/// Reads a file's first pages, whether or not it is an image.
fn read_head(file: &std::fs::File, path: &Path) -> Result<(Parts, Vec<u8>), ImageError> {
    use std::os::unix::fs::FileExt;
    let name = path.display().to_string();
    let mut head = vec![0; (PROFILE_AT + PROFILE_MAX) as usize];
    let mut have = 0;
    while have < head.len() {
        match file.read_at(&mut head[have..], have as u64) {
            Ok(0) => break,
            Ok(more) => have += more,
            Err(cause) if cause.kind() == std::io::ErrorKind::Interrupted => {}
            Err(cause) => {
                return Err(ImageError::System { action: "read", path: name, cause: cause.to_string() });
            }
        }
    }
    let copies = HEADER_AT.map(|at| {
        Header::read_from_prefix(&head[at as usize..]).map(|(header, _)| header).expect("the buffer holds it")
    });
    let header = choose(copies, &name)?;
    let actual = file
        .metadata()
        .map_err(|cause| ImageError::System { action: "examine", path: name, cause: cause.to_string() })?
        .len();
    if actual < header.image_bytes.get() {
        return Err(ImageError::Truncated { expected: header.image_bytes.get(), actual });
    }
    let bytes = u64::from(header.profile_bytes.get());
    if bytes > PROFILE_MAX {
        return Err(ImageError::Checksum { what: "profile" });
    }
    let parts = parse(header, &head[PROFILE_AT as usize..(PROFILE_AT + bytes) as usize])?;
    Ok((parts, head))
}

/// Opens, locks, checks and maps an image file.
///
/// # Errors
/// In use, not an image, another version, truncated, damaged, or the system refuses.
pub(crate) fn open(path: &Path) -> Result<(Image, Parts), ImageError> {
    let file = image::open_file(path)?;
    let (parts, _) = read_head(&file, path)?;
    let image = Image::map(file, path.display().to_string(), parts.layout.image_bytes)?;
    Ok((image, parts))
}

/// As [`open`], of a file that stays as it is.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_copy(path: &Path) -> Result<(Image, Parts), ImageError> {
    let file = image::open_to_read(path)?;
    let (parts, _) = read_head(&file, path)?;
    let image = Image::map_copy(file, path.display().to_string(), parts.layout.image_bytes)?;
    Ok((image, parts))
}

/// How the last session ended.
///
/// # Errors
/// The word is none that a device writes.
pub(crate) fn shutdown(image: &Image) -> Result<Shutdown, ImageError> {
    let word = image.word(control!(shutdown)).load(Ordering::Acquire);
    Shutdown::from_word(word).ok_or_else(|| ImageError::Corrupt(format!("its shutdown mark is {word}")))
}

/// Describes a device.
pub(crate) fn info(image: &Image, layout: &Layout, profile: &Profile, last_shutdown: Shutdown) -> Info {
    let header: Header = image.read_struct(HEADER_AT[0]);
    Info {
        format_version: VERSION,
        image_id: header.image_id.get(),
        created_ns: header.created_ns.get(),
        profile: profile.name.clone(),
        description: profile.description.clone(),
        firmware: profile.firmware.kind,
        capacity_bytes: layout.capacity_pages * PAGE,
        flash_bytes: layout.flash_pages() * PAGE,
        image_bytes: layout.image_bytes,
        log_region_bytes: layout.region_bytes,
        cache_bytes: layout.cache_frames * PAGE,
        memory_bytes: layout.memory_bytes,
        pin_entries: layout.pin_entries,
        txlog_bytes: profile.log.txlog_bytes,
        channels: profile.flash.channels,
        ways: profile.flash.ways,
        pages_per_block: layout.pages_per_block,
        power_ups: image.word(control!(power_ups)).load(Ordering::Relaxed),
        last_shutdown,
    }
}

/// Reads what an image's device is and did from its first pages and its wear alone.
///
/// # Errors
/// As for [`open`], except that the image may be in use.
pub(crate) fn inspect(path: &Path) -> Result<(Info, Stats), ImageError> {
    let name = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|cause| ImageError::System {
        action: "open",
        path: name,
        cause: cause.to_string(),
    })?;
    let (parts, head) = read_head(&file, path)?;
    // A small image in memory with the same first pages answers as the device would.
    let image = Image::in_memory(head.len() as u64)?;
    image.write(0, &head);
    let mut stats = Counters::of(&image).report();
    stats.take_wear(read_wear(&file, path, &parts.layout)?);
    let active = image.word(control!(active)).load(Ordering::Relaxed) & 1;
    stats.log_used = image.word(control!(tail[active])).load(Ordering::Relaxed);
    stats.log_cleaning_used = image.word(control!(tail[1 - active])).load(Ordering::Relaxed);
    stats.log_capacity = parts.layout.region_bytes;
    stats.cache_capacity = parts.layout.cache_frames;
    stats.memory_capacity = parts.layout.memory_bytes;
    stats.pin_capacity = parts.layout.pin_entries;
    stats.memory_used = read_memory_map(&file, path, &parts.layout)?;
    let commits = |at| image.word(at).load(Ordering::Relaxed);
    stats.txlog_used = commits(control!(txlog_tail)).saturating_sub(commits(control!(txlog_head)));
    Ok((info(&image, &parts.layout, &parts.profile, shutdown(&image)?), stats))
}

/// Reads how often blocks were erased from an image's file.
fn read_wear(file: &std::fs::File, path: &Path, layout: &Layout) -> Result<Wear, ImageError> {
    use std::os::unix::fs::FileExt;
    let mut headers = vec![0; (layout.blocks * BLOCK_HEADER_BYTES) as usize];
    file.read_exact_at(&mut headers, layout.block_headers).map_err(|cause| ImageError::System {
        action: "read",
        path: path.display().to_string(),
        cause: cause.to_string(),
    })?;
    let (headers, _) = headers.as_chunks::<{ BLOCK_HEADER_BYTES as usize }>();
    let erases = |header: &[u8; 16]| {
        let (word, _) = header.split_first_chunk::<8>().expect("two words");
        BlockHeader::from_word(u64::from_le_bytes(*word)).erases
    };
    Ok(Wear::of(headers.iter().map(erases)))
}

/// Reads from an image's file how many bytes of the memory area are in chunks that were ever stored to.
fn read_memory_map(file: &std::fs::File, path: &Path, layout: &Layout) -> Result<u64, ImageError> {
    use std::os::unix::fs::FileExt;
    let mut map = vec![0; layout.memory_chunks().div_ceil(64) as usize * 8];
    file.read_exact_at(&mut map, layout.memory_map).map_err(|cause| ImageError::System {
        action: "read",
        path: path.display().to_string(),
        cause: cause.to_string(),
    })?;
    let (words, _) = map.as_chunks::<8>();
    let marked = |chunk: &u64| {
        let word = u64::from_le_bytes(words[(chunk / 64) as usize]);
        word >> (chunk % 64) & 1 == 1
    };
    Ok((0..layout.memory_chunks()).filter(marked).map(|chunk| layout.memory_chunk(chunk).1).sum())
}

/// Powers a device up: rebuilds what was volatile. With `cut`, firmware steps and a seed, power goes again
/// just before that step.
///
/// # Errors
/// The image holds what no device writes.
pub(crate) fn power_up(
    image: Arc<Image>,
    parts: &Parts,
    dilation: f64,
    free: bool,
    cut: Option<(u64, u64)>,
) -> Result<Arc<Core>, ImageError> {
    let (layout, profile) = (parts.layout, parts.profile.clone());
    let partitions: Box<[Partition]> = (0..layout.partitions)
        .map(|number| Partition { index: amphi_rt::sync::RwLock::new(PageIndex::new(number as u32)) })
        .collect();
    let dies = profile.flash.channels * profile.flash.ways;
    let found = rebuild(&image, &layout, dies)?;
    let blocks = Blocks::new(&image, &layout, &profile, &found.live);
    let media = Arc::new_cyclic(|itself| Media {
        itself: itself.clone(),
        layout,
        image_id: parts.image_id,
        contract: profile.contract(),
        timing: Timing::new(&profile, dilation, free),
        meters: Meters::new(free || profile.is_free()),
        power: Power::on(),
        partitions,
        blocks,
        table: found.table,
        trims: TrimLog::new(found.trims),
        checkpoints: Checkpoints::new(found.checkpoint, found.stale),
        read_at_power_up: found.reads.into(),
        volatile: Default::default(),
        collect_bell: Default::default(),
        checkpoint_bell: Default::default(),
        profile,
        image,
    });
    let personality = match media.profile.firmware.kind {
        Firmware::Log => Personality::Log(Log::new(&media)),
        Firmware::PageCache => Personality::PageCache(PageCache::new(&media)),
        Firmware::Memory | Firmware::FileSystem => {
            Personality::Memory(Box::new(Protected::new(&media.image, &layout)))
        }
        Firmware::BaBuffer => Personality::BaBuffer(Box::new(BaBuffer::new(&media))),
    };
    let core = Arc::new(Core { media, personality, stages: Stages::new() });
    if let Some((steps, seed)) = cut {
        core.power.arm(None, Some(steps), seed);
    }
    match core.load_protected() {
        Ok(()) | Err(amphi_device::Error::PowerLost) => Ok(core),
        Err(cause) => Err(ImageError::Corrupt(cause.to_string())),
    }
}

impl Media {
    /// What the image's header and profile say, which never changes: another power-up need not read it again.
    pub(crate) fn parts(&self) -> Parts {
        Parts { image_id: self.image_id, profile: self.profile.clone(), layout: self.layout }
    }

    /// Spends the time that finding the mapping took: each die reads its pages, all of them at once.
    pub(crate) fn wait_for_power_up(&self) {
        let now = self.timing.now();
        let mut done = now;
        for (die, &pages) in (0..).zip(&self.read_at_power_up) {
            done = (0..pages).fold(done, |done, _| done.max(self.timing.read_page(now, die)));
        }
        self.count().flash_read(Cause::Mapping, self.read_at_power_up.iter().sum());
        self.timing.wait(done);
    }
}

/// Bytes of an image from which its memory comes in huge pages. A smaller one, as tests have by the thousand,
/// would clear more than it ever uses; one of some hundred megabytes, as experiments at a scale of 0.01 have,
/// spends a fifth of a run on touching its memory page by page.
const HUGE_PAGES_FROM: u64 = 64 << 20;

/// Memory for the image of a device.
///
/// # Errors
/// There is none.
pub(crate) fn memory_for(layout: &Layout) -> Result<Image, ImageError> {
    let image = Image::in_memory(layout.image_bytes)?;
    if layout.image_bytes >= HUGE_PAGES_FROM {
        // The log and every open block are filled from one end to the other.
        image.expect_filling(layout.log[0]);
    }
    Ok(image)
}

/// Copies a device's image into memory: every part that is in use.
///
/// # Errors
/// There is no memory.
pub(crate) fn copy(core: &Core) -> Result<Image, ImageError> {
    let (from, layout) = (&core.image, &core.layout);
    let to = memory_for(layout)?;
    let part = |at: u64, len: u64| to.copy_from(from, at, len as usize);
    part(0, PROFILE_AT + PROFILE_MAX);
    part(layout.trims, TRIM_RECORDS * size_of::<TrimRecord>() as u64);
    for (at, len) in core.protected_in_use() {
        part(at, len);
    }
    part(layout.block_headers, layout.blocks * BLOCK_HEADER_BYTES);
    for block in (0..layout.blocks).filter(|&block| !core.blocks.is_erased(block)) {
        let first = block * layout.pages_per_block;
        part(layout.oob_record(first), layout.pages_per_block * OOB_BYTES);
        for page in first..first + layout.pages_per_block {
            let lpa = core.oob(page).lpa.get();
            let current = || {
                u64::from(lpa) < layout.capacity_pages && core.mapping(u64::from(lpa)) == Mapping::At(page)
            };
            if lpa == Oob::NOT_DATA || current() {
                part(layout.flash_page(page), PAGE);
            }
        }
    }
    Ok(to)
}

/// The counters have their own page.
const _: () = assert!(COUNTERS_AT + 8 * format::COUNTERS as u64 == PROFILE_AT);
