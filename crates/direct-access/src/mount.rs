//! Making, recognising, mounting and unmounting. Mounting undoes what a crash has left open, reads all inodes
//! to learn which pages are free (PMFS §3.2, NOVA §4.8), and deletes files without names.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use amphi_device::{BlockPort, Device, Lpa, PAGE_BYTES, PageView, Structure};
use amphi_names::{Names, Options};
use amphi_vfs::Ino;
use amphi_volume::{
    About, Changes, Claims, Error, FormatOptions, MountOptions, Result, label_bytes, random_uuid,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::format::{CLEAN_AT, MOUNTS_AT, PAGE, PAGES_MIN, Superblock, VERSION};
use crate::ground::{DirectAccess, Ground, Layout};
use crate::medium::Medium;
use crate::planted::{self, Bug};
use crate::space::{Numbers, Space};

/// Bytes of the device for each inode, unless told otherwise.
const BYTES_PER_INODE: u64 = 16 << 10;
/// Pages that are cleared by one command.
const CLEARED_PAGES: u64 = 256;
/// Inodes that are kept in memory unless a mount says otherwise.
const CACHED_INODES: usize = 262_144;

/// What page 0 says.
pub struct Found<L> {
    pub superblock: Superblock,
    pub layout: L,
    pub mounts: u64,
    pub clean: bool,
}

/// Makes an empty file system.
///
/// # Errors
/// As [`amphi_volume::Volume::format`].
pub fn format<F: DirectAccess>(device: &Arc<F::Device>, options: &FormatOptions) -> Result<()> {
    device.check_page_view()?;
    let pages = options.bytes.map_or(u64::MAX, |bytes| bytes / PAGE).min(device.capacity_pages());
    let inodes = options.inodes.map_or((pages * PAGE / BYTES_PER_INODE).max(64), u64::from);
    let layout = F::plan(pages, inodes, options).map_err(Error::Unsuitable)?;
    if pages < PAGES_MIN || layout.data() + PAGES_MIN / 2 > pages {
        let why = format!("what has a fixed place, {} pages, leaves no room on {pages}", layout.data());
        return Err(Error::Unsuitable(why));
    }
    let (_, _, own) = layout.numbers();
    let mut superblock = Superblock::new_zeroed();
    (superblock.magic, superblock.version) = (F::MAGIC, VERSION.into());
    (superblock.pages, superblock.inodes, superblock.own) = (pages.into(), inodes.into(), own.into());
    superblock.uuid = random_uuid();
    superblock.label = label_bytes(&options.label)?;
    superblock.crc = superblock.checksum().into();
    let zeros = vec![0; (CLEARED_PAGES * PAGE) as usize];
    let (mut at, end) = (0, F::zeros(&layout));
    while at < end {
        let count = CLEARED_PAGES.min(end - at);
        device.write(Lpa(at), &zeros[..(count * PAGE) as usize], Structure::Other)?;
        at += count;
    }
    device.flush()?;
    let medium = Medium::new(device);
    F::fill(&medium, &layout)?;
    medium.store_word(CLEAN_AT, 1, Structure::Superblock)?;
    medium.barrier()?;
    // Last: until then there is none.
    medium.store(0, superblock.as_bytes(), Structure::Superblock)?;
    medium.barrier()?;
    Ok(())
}

/// Reads page 0.
///
/// # Errors
/// As [`amphi_volume::Volume::probe`].
pub fn read_super<F: DirectAccess>(device: &F::Device) -> Result<Found<F::Layout>> {
    let title = F::IDENTITY.title;
    device.check_page_view()?;
    let mut page = Box::new([0; PAGE_BYTES]);
    device.read(Lpa(0), &mut page[..], Structure::Superblock)?;
    let mut superblock = Superblock::new_zeroed();
    superblock.as_mut_bytes().copy_from_slice(&page[..size_of::<Superblock>()]);
    superblock.check(F::MAGIC, title, device.capacity_pages())?;
    let (pages, inodes) = (superblock.pages.get(), superblock.inodes.get());
    let layout = F::Layout::of(pages, inodes, superblock.own.get());
    let layout = layout.filter(|layout| inodes > 0 && layout.data() < pages);
    let layout = layout.ok_or(Error::Superblock { title, why: "its sizes contradict each other" })?;
    let word = |at: u64| page[at as usize..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    Ok(Found { superblock, layout, mounts: word(MOUNTS_AT), clean: word(CLEAN_AT) == 1 })
}

/// See [`amphi_volume::Volume::tune`].
///
/// # Errors
/// As there.
pub fn tune<F: DirectAccess>(device: &F::Device, changes: &Changes) -> Result<About> {
    let mut superblock = read_super::<F>(device)?.superblock;
    changes.rename_only(&mut superblock.label, &mut superblock.uuid)?;
    superblock.crc = superblock.checksum().into();
    let mut page = Box::new([0; PAGE_BYTES]);
    device.read(Lpa(0), &mut page[..], Structure::Superblock)?;
    page[..size_of::<Superblock>()].copy_from_slice(superblock.as_bytes());
    device.write(Lpa(0), &page[..], Structure::Superblock)?;
    device.flush()?;
    probe::<F>(device)
}

/// See [`amphi_volume::Volume::probe`].
///
/// # Errors
/// As there.
pub fn probe<F: DirectAccess>(device: &F::Device) -> Result<About> {
    match read_super::<F>(device) {
        Ok(found) => Ok(about_of::<F>(&found)),
        // A device whose window shows something else holds none.
        Err(Error::Device(amphi_device::Error::Unsupported(_))) => {
            Err(Error::NotThis { title: F::IDENTITY.title })
        }
        Err(error) => Err(error),
    }
}

/// Mounts the one on a device.
///
/// # Errors
/// As [`amphi_volume::Volume::mount`].
pub fn open<F: DirectAccess>(device: &Arc<F::Device>, options: &MountOptions) -> Result<F> {
    options.refuse_words(F::IDENTITY.title)?;
    let options = Options {
        read_only: options.read_only,
        access_times: options.access_times,
        cached_inodes: options.inode_cache.unwrap_or(CACHED_INODES),
        tick_ns: options.tick_ns.unwrap_or(1),
    };
    let found = read_super::<F>(device)?;
    let layout = found.layout;
    let medium = Medium::new(device);
    let log = F::undo(&medium, &layout)?;
    let table = F::table(&medium, &layout)?;
    let mut claims = fixed_pages(&layout);
    claim(&mut claims, Ino(0), F::pages_of_table(&table))?;
    let there = F::there(&medium, &layout, &table)?;
    let mut orphans = Vec::new();
    for ino in &there {
        let inode = F::read_inode(&medium, &layout, &table, *ino)?;
        let state = inode.state.read();
        claim(&mut claims, *ino, F::pages(&state.part))?;
        if state.nlink == 0 {
            orphans.push(*ino);
        }
    }
    let parts = F::parts(&layout);
    let space = Space::new(layout.data(), layout.numbers().0, parts);
    claims.bits.gaps(|first, count| space.give(first, count));
    let there: BTreeSet<u64> = there.into_iter().map(|ino| ino.0).collect();
    let numbers = Numbers::new(F::numbers_end(&layout, &table), parts, |ino| !there.contains(&ino));
    let read_only = options.read_only;
    let fs = F::mounted(Ground {
        medium,
        layout,
        log,
        table,
        names: Names::new(options),
        space,
        numbers,
        superblock: found.superblock,
        mounts: found.mounts.saturating_add(u64::from(!read_only)),
        was_clean: found.clean,
        changes: AtomicU64::new(1),
    });
    if !read_only {
        let Ground { medium, mounts, .. } = fs.ground();
        medium.store_word(MOUNTS_AT, *mounts, Structure::Superblock)?;
        medium.store_word(CLEAN_AT, 0, Structure::Superblock)?;
        medium.barrier()?;
        for ino in orphans.into_iter().filter(|_| !planted::has(Bug::OrphansNotFinished)) {
            amphi_names::delete_orphan(&fs, &amphi_names::inode(&fs, ino)?)?;
        }
    }
    Ok(fs)
}

/// Claims with those on pages that have a fixed place.
pub fn fixed_pages(layout: &impl Layout) -> Claims {
    let mut claims = Claims::new(layout.numbers().0);
    claims.claim(0, layout.data(), |_, _| {});
    claims
}

fn claim(claims: &mut Claims, ino: Ino, pages: Vec<(u64, u64)>) -> Result<()> {
    let mut alone = true;
    for (first, count) in pages {
        let whole = claims.claim(first, count, |_, _| alone = false);
        alone &= whole;
    }
    if alone {
        return Ok(());
    }
    Err(amphi_vfs::Error::corrupt("inode", ino.0, "it has a page that is another's").into())
}

/// Deletes files without names and notes that the mount has ended.
///
/// # Errors
/// As [`amphi_volume::Volume::unmount`].
pub fn close<F: DirectAccess>(fs: &F) -> Result<()> {
    let Ground { medium, names, .. } = fs.ground();
    if names.health.writable().is_err() {
        return Ok(());
    }
    amphi_names::write_all_atimes(fs)?;
    let mut orphans = Vec::new();
    names.cache.visit(0, |inode| {
        let state = inode.state.read();
        if state.nlink == 0 && !state.gone {
            orphans.push(Arc::clone(inode));
        }
        ControlFlow::Continue(())
    });
    for orphan in orphans {
        amphi_names::delete_orphan(fs, &orphan)?;
    }
    medium.store_word(CLEAN_AT, 1, Structure::Superblock)?;
    medium.barrier()?;
    Ok(())
}

/// See [`amphi_volume::Volume::about`].
pub fn about<F: DirectAccess>(fs: &F) -> About {
    let Ground { superblock, layout, mounts, was_clean, .. } = fs.ground();
    about_of::<F>(&Found { superblock: *superblock, layout: *layout, mounts: *mounts, clean: *was_clean })
}

fn about_of<F: DirectAccess>(found: &Found<F::Layout>) -> About {
    let (pages, inodes, _) = found.layout.numbers();
    About {
        name: F::IDENTITY.name,
        label: found.superblock.label(),
        uuid: found.superblock.uuid,
        size_bytes: pages * PAGE,
        size_max_bytes: pages * PAGE,
        journal_bytes: F::journal_bytes(&found.layout),
        mount_options: String::new(),
        inodes,
        mounts: found.mounts,
        clean: found.clean,
        own: serde_json::Map::new(),
    }
}
