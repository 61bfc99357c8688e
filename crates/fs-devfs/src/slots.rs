//! Protected memory, cut into slots of one page (§4.1, §4.3). A file that is changed has a slot for its
//! journal, one whose blocks are written in parts has a slot for its queue; both are given when they are
//! needed and taken when others need them more. Capacitors save them all, and nothing
//! else of the memory.
//!
//! A slot is emptied by committing it: what its entries say is brought in place, then a new epoch voids them.
//! A task holds one slot at a time and waits for no other meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use amphi_device::{BlockPort, MemoryArea, Structure};
use amphi_rt::sync::{Mutex, MutexGuard};
use amphi_vfs::Result;
use hashbrown::HashMap;
use zerocopy::IntoBytes;

use crate::Crash;
use crate::format::{EntryMark, PAGE, SlotHead, Use, entry_bytes};
use crate::media::Media;
use crate::meta::Meta;
use crate::planted::{self, Bug};
use crate::stats::Counters;

const SHARDS: u64 = 16;

/// Whose a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    pub ino: u64,
    pub generation: u32,
    pub purpose: Use,
}

/// A part of a block that is in a queue.
#[derive(Clone, Debug)]
pub struct Queued {
    /// The block of the file.
    pub block: u64,
    /// Where it is on flash.
    pub page: u64,
    /// Where in the block the bytes go.
    pub within: usize,
    pub data: Vec<u8>,
    /// The block held nothing before.
    pub fresh: bool,
}

/// A slot, as the controller knows it.
#[derive(Default)]
pub struct Slot {
    number: u64,
    owner: Option<Owner>,
    epoch: u64,
    /// Bytes in use.
    used: usize,
    /// Of a journal: the pages that its records change, with the stamp of the newest.
    pages: HashMap<u64, u64, amphi_rt::hash::State>,
    /// Of a queue: what it holds, oldest first.
    pub parts: Vec<Queued>,
    /// The slot as protected memory has it, where flash has a copy of it.
    copy: Option<Box<[u8; PAGE]>>,
}

type Owners = HashMap<Owner, u64, amphi_rt::hash::State>;

/// The slots.
pub struct Slots<D> {
    media: Arc<Media<D>>,
    slots: Box<[Mutex<Slot>]>,
    free: Mutex<Vec<u64>>,
    owners: Box<[Mutex<Owners>]>,
    hand: AtomicUsize,
    crash: Crash,
    /// First page of the copies.
    log: u64,
    clock: AtomicU64,
    counters: Arc<Counters>,
}

/// A slot that is locked.
pub type Held<'a> = MutexGuard<'a, Slot>;

impl<D: BlockPort + MemoryArea> Slots<D> {
    /// So many slots, all of them free. No stamp up to `stamp` was given before.
    pub fn new(
        media: &Arc<Media<D>>,
        count: u64,
        (crash, log): (Crash, u64),
        stamp: u64,
        counters: &Arc<Counters>,
    ) -> Self {
        let slot = |number| Mutex::new(Slot { number, ..Slot::default() });
        Self {
            media: Arc::clone(media),
            slots: (0..count).map(slot).collect(),
            free: Mutex::new((0..count).rev().collect()),
            owners: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hand: AtomicUsize::new(0),
            crash,
            log,
            clock: AtomicU64::new(stamp + 1),
            counters: Arc::clone(counters),
        }
    }

    /// The next time stamp: what has a greater one came later (§4.2).
    pub fn stamp(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::AcqRel)
    }

    fn owners(&self, ino: u64) -> MutexGuard<'_, Owners> {
        self.owners[(ino % SHARDS) as usize].lock()
    }

    /// The slot of an owner, if it has one.
    pub fn find(&self, owner: Owner) -> Option<Held<'_>> {
        loop {
            let number = *self.owners(owner.ino).get(&owner)?;
            let slot = self.slots[number as usize].lock();
            if slot.owner == Some(owner) {
                return Some(slot);
            }
        }
    }

    /// The slot of an owner, with room for an entry of so many bytes.
    ///
    /// # Errors
    /// [`Error::Io`](amphi_vfs::Error::Io).
    pub fn acquire(&self, meta: &Meta<D>, owner: Owner, body: usize) -> Result<Held<'_>> {
        loop {
            if let Some(mut slot) = self.find(owner) {
                if slot.used + entry_bytes(body) > PAGE {
                    self.commit(meta, &mut slot)?;
                }
                return Ok(slot);
            }
            let number = self.take_slot(meta)?;
            let mut slot = self.slots[number as usize].lock();
            let mut owners = self.owners(owner.ino);
            if owners.contains_key(&owner) {
                drop((owners, slot));
                self.free.lock().push(number);
                continue;
            }
            slot.owner = Some(owner);
            owners.insert(owner, number);
            drop(owners);
            self.restart(&mut slot)?;
            return Ok(slot);
        }
    }

    /// A slot that is nobody's: a free one, or one that is taken away from its owner.
    fn take_slot(&self, meta: &Meta<D>) -> Result<u64> {
        loop {
            if let Some(number) = self.free.lock().pop() {
                return Ok(number);
            }
            let number = self.hand.fetch_add(1, Ordering::Relaxed) % self.slots.len();
            let mut slot = self.slots[number].lock();
            if slot.owner.is_some() {
                if !planted::has(Bug::SlotTakenFull) {
                    self.commit(meta, &mut slot)?;
                }
                self.disown(&mut slot);
                self.counters.slots_taken_away.fetch_add(1, Ordering::Relaxed);
                return Ok(number as u64);
            }
        }
    }

    fn disown(&self, slot: &mut Slot) {
        if let Some(owner) = slot.owner.take() {
            self.owners(owner.ino).remove(&owner);
        }
        slot.pages.clear();
        slot.parts.clear();
    }

    /// Adds an entry. There is room for it.
    ///
    /// # Errors
    /// [`Error::Io`](amphi_vfs::Error::Io).
    pub fn append(&self, slot: &mut Slot, stamp: u64, offset: u64, fresh: bool, body: &[u8]) -> Result<()> {
        let mark = EntryMark {
            epoch: slot.epoch.into(),
            stamp: stamp.into(),
            offset: offset.into(),
            bytes: (body.len() as u16).into(),
            fresh: u16::from(fresh).into(),
            crc: 0.into(),
        };
        let mark = EntryMark { crc: mark.checksum(body).into(), ..mark };
        let mut bytes = Vec::with_capacity(entry_bytes(body.len()));
        bytes.extend_from_slice(mark.as_bytes());
        bytes.extend_from_slice(body);
        let at = slot.used;
        self.store(slot, at, &bytes)?;
        slot.used += entry_bytes(body.len());
        Ok(())
    }

    /// Notes that a record of a journal changes a page.
    pub fn note_page(slot: &mut Slot, page: u64, stamp: u64) {
        let newest = slot.pages.entry(page).or_default();
        *newest = stamp.max(*newest);
    }

    /// Stores into a slot, and into its copy on flash where capacitors are not relied on.
    fn store(&self, slot: &mut Slot, at: usize, bytes: &[u8]) -> Result<()> {
        let tag = match slot.owner {
            Some(Owner { purpose: Use::Queue, .. }) => Structure::Data,
            _ => Structure::Journal,
        };
        self.media.store_slot(slot.number, at, bytes, tag)?;
        if self.crash == Crash::Journal && !planted::has(Bug::CopyForgotten) {
            let copy = slot.copy.get_or_insert_with(|| Box::new([0; PAGE]));
            copy[at..at + bytes.len()].copy_from_slice(bytes);
            self.media.write(self.log + slot.number, &copy[..], tag)?;
        }
        Ok(())
    }

    /// Gives a slot an epoch in which it holds nothing.
    fn restart(&self, slot: &mut Slot) -> Result<()> {
        slot.epoch = self.stamp();
        slot.used = size_of::<SlotHead>();
        slot.pages.clear();
        slot.parts.clear();
        let head = slot.owner.map_or_else(
            || SlotHead::nobodys(slot.epoch),
            |owner| SlotHead::new(owner.ino, owner.generation, owner.purpose, slot.epoch),
        );
        self.store(slot, 0, head.as_bytes())
    }

    /// Brings in place what a slot's entries say, and empties it.
    ///
    /// # Errors
    /// [`Error::Io`](amphi_vfs::Error::Io).
    pub fn commit(&self, meta: &Meta<D>, slot: &mut Slot) -> Result<()> {
        if slot.used == size_of::<SlotHead>() {
            return Ok(());
        }
        if planted::has(Bug::EpochBeforePages) {
            let (pages, parts) = (std::mem::take(&mut slot.pages), std::mem::take(&mut slot.parts));
            self.restart(slot)?;
            meta.write_back(pages.into_iter())?;
            return in_place(&self.media, &parts);
        }
        meta.write_back(slot.pages.iter().map(|(page, stamp)| (*page, *stamp)))?;
        in_place(&self.media, &slot.parts)?;
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.restart(slot)
    }

    /// Voids the queue of an owner that needs it no more.
    ///
    /// # Errors
    /// [`Error::Io`](amphi_vfs::Error::Io).
    pub fn discard(&self, owner: Owner) -> Result<()> {
        let Some(mut slot) = self.find(owner) else { return Ok(()) };
        self.disown(&mut slot);
        self.restart(&mut slot)?;
        self.free.lock().push(slot.number);
        Ok(())
    }

    /// Commits what every slot of one kind holds.
    ///
    /// # Errors
    /// [`Error::Io`](amphi_vfs::Error::Io).
    pub fn commit_all(&self, meta: &Meta<D>, purpose: Use) -> Result<()> {
        for slot in &self.slots {
            let mut slot = slot.lock();
            if slot.owner.is_some_and(|owner| owner.purpose == purpose) {
                self.commit(meta, &mut slot)?;
            }
        }
        Ok(())
    }

    /// Slots that are somebody's.
    pub fn in_use(&self) -> u64 {
        self.slots.len() as u64 - self.free.lock().len() as u64
    }

    /// Slots.
    pub fn count(&self) -> u64 {
        self.slots.len() as u64
    }
}

/// Writes parts of blocks where the blocks are: reads each block once, and writes it once.
///
/// # Errors
/// [`Error::Io`](amphi_vfs::Error::Io).
pub fn in_place<D: BlockPort + MemoryArea>(media: &Media<D>, parts: &[Queued]) -> Result<()> {
    let mut blocks: Vec<(u64, Structure, Box<[u8; PAGE]>)> = Vec::new();
    for part in parts {
        let known = blocks.iter().position(|(page, ..)| *page == part.page);
        let index = match known {
            Some(index) => index,
            None => {
                let mut block = Box::new([0; PAGE]);
                if !part.fresh {
                    media.read(part.page, &mut block[..], Structure::Data)?;
                }
                blocks.push((part.page, Structure::Data, block));
                blocks.len() - 1
            }
        };
        let (.., block) = &mut blocks[index];
        block[part.within..part.within + part.data.len()].copy_from_slice(&part.data);
    }
    media.write_each(&blocks)
}
