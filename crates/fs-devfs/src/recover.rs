//! Power-up after a loss of power (§4.3): what journals and queues hold is brought in place. Capacitors have
//! kept them in protected memory, or, in the variant without, flash has a copy of each.
//!
//! Records are redone in the order of their time stamps, each in those pages that are older. Then the queues
//! follow, by what the inodes say: a part whose block was never mapped, or lies behind the end, is of a write
//! that had not returned. Redoing all of it again does no harm, so a loss of power meanwhile is the same
//! again.

use amphi_device::{BlockPort, MemoryArea, Structure};
use amphi_vfs::{Error, Ino, Result};
use zerocopy::IntoBytes;

use crate::Crash;
use crate::controller::Controller;
use crate::format::{LEVELS_MAX, Layout, PAGE, SlotHead, Superblock, UNWRITTEN, Use, entries};
use crate::media::Media;
use crate::meta::Meta;
use crate::parts;
use crate::planted::{self, Bug};
use crate::slots::{Queued, in_place};

/// What power-up did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Slots that held something.
    pub slots: u64,
    /// Metadata records that were redone.
    pub records: u64,
    /// Parts of blocks that were brought in place.
    pub parts: u64,
}

/// A slot that was somebody's.
pub struct Left {
    number: u64,
    head: SlotHead,
    bytes: Box<[u8; PAGE]>,
}

/// Reads the slots that were somebody's.
///
/// # Errors
/// [`Error::Io`].
pub fn read_slots<D: BlockPort + MemoryArea>(media: &Media<D>, superblock: &Superblock) -> Result<Vec<Left>> {
    let log = Layout::of(superblock).log;
    let relies_on_capacitors = Crash::of_number(superblock.crash.get()) != Some(Crash::Journal);
    let mut left = Vec::new();
    for number in 0..superblock.slots.get() {
        let mut bytes = Box::new([0; PAGE]);
        if relies_on_capacitors {
            media.load_slot(number, &mut bytes)?;
        } else {
            media.read(log + number, &mut bytes[..], Structure::Journal)?;
        }
        let Some(head) = SlotHead::read(&bytes) else { continue };
        if head.purpose().is_some() {
            left.push(Left { number, head, bytes });
        }
    }
    Ok(left)
}

/// Redoes the records of the journals. Returns how many there were.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn redo<D: BlockPort + MemoryArea>(meta: &Meta<D>, left: &[Left]) -> Result<u64> {
    let journals = left.iter().filter(|slot| slot.head.purpose() == Some(Use::Journal));
    let records = journals.flat_map(|slot| entries(&slot.bytes, slot.head.epoch));
    let mut records: Vec<_> = records.map(|(mark, body)| (mark.stamp.get(), body)).collect();
    records.sort_unstable_by_key(|(stamp, _)| *stamp);
    if planted::has(Bug::RedoOutOfOrder) {
        records.reverse();
    }
    if planted::has(Bug::RedoSkipped) {
        records.pop();
    }
    let mut changed = std::collections::BTreeMap::new();
    for (stamp, body) in &records {
        for part in parts::decode(body) {
            let damaged = || Error::corrupt("record", *stamp, "a part of it makes no sense");
            let (number, part) = part.ok_or_else(damaged)?;
            let page = meta.page(number.into())?;
            let mut frame = page.write();
            // The page may have it already, and what came after it.
            if frame.stamp <= *stamp || planted::has(Bug::StampNotCompared) {
                part.apply(&mut frame.bytes);
                frame.stamp = *stamp;
                changed.insert(u64::from(number), *stamp);
            }
        }
    }
    meta.write_back(changed.into_iter())?;
    Ok(records.len() as u64)
}

impl<D: BlockPort + MemoryArea + 'static> Controller<D> {
    /// Brings in place what the queues hold, and empties all slots. Returns how many parts there were.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn replay_queues(&self, left: &[Left], crash: Crash) -> Result<u64> {
        let mut count = 0;
        for slot in left.iter().filter(|slot| slot.head.purpose() == Some(Use::Queue)) {
            let parts = self.parts_of(slot)?;
            count += parts.len() as u64;
            if !planted::has(Bug::QueueForgotten) {
                in_place(&self.media, &parts)?;
            }
        }
        for slot in left {
            let head = SlotHead::nobodys(self.slots.stamp());
            if crash == Crash::Journal {
                let mut copy = Box::new([0; PAGE]);
                copy[..size_of::<SlotHead>()].copy_from_slice(head.as_bytes());
                self.media.write(self.layout.log + slot.number, &copy[..], Structure::Journal)?;
            }
            self.media.store_slot(slot.number, 0, head.as_bytes(), Structure::Journal)?;
        }
        Ok(count)
    }

    /// Those parts of a queue whose blocks are mapped, up to the file's end.
    fn parts_of(&self, slot: &Left) -> Result<Vec<Queued>> {
        let ino = Ino(slot.head.ino.get());
        let inode = match self.inode_on_flash(ino) {
            Ok(inode) if inode.generation == slot.head.generation => inode,
            Ok(_) | Err(Error::Stale(_)) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        if inode.levels > LEVELS_MAX {
            // No block of it is found; a repair clears it.
            return Ok(Vec::new());
        }
        let mut part = self.new_part();
        (part.root, part.levels) = (self.checked(inode.root.get())?, inode.levels);
        let mut parts = Vec::new();
        for (mark, body) in entries(&slot.bytes, slot.head.epoch) {
            let offset = mark.offset.get();
            let (block, within) = (offset / PAGE as u64, offset as usize % PAGE);
            if within + body.len() > PAGE {
                return Err(Error::corrupt("queue of inode", ino.0, "a part crosses the end of its block"));
            }
            let known = inode.size.get().saturating_sub(offset).min(body.len() as u64) as usize;
            let pointer = self.block(&part, block)?;
            if known > 0 && pointer != 0 && pointer & UNWRITTEN == 0 {
                let fresh = mark.fresh.get() == 1;
                let data = body[..known].to_vec();
                parts.push(Queued { block, page: pointer.into(), within, data, fresh });
            }
        }
        Ok(parts)
    }
}
