//! Mapping checkpoints: the mapping table written to flash now and then, so that a power-up has few blocks to
//! scan.
//!
//! A checkpoint is taken while the device works. What it misses of the changes made meanwhile lies in blocks
//! that were being filled when it began, which it lists, in blocks opened since, or in the trim log. It fills
//! blocks of its own; only when its last page is there do the blocks of the one before go. It is due when as
//! many pages were programmed as the profile says, and many times its own size.

use std::sync::atomic::Ordering;

use amphi_device::{Error, Result};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::checkpoints::Held;
use crate::format::{LEAF, MapPage, Oob, PAGE, control};
use crate::media::Media;
use crate::stats::Cause;

/// Pages programmed between two checkpoints, per page of a checkpoint: what they cost at most, as a share of
/// all programs.
const PAGES_PER_PAGE: u64 = 32;

/// A checkpoint being written.
struct Writer<'a> {
    media: &'a Media,
    generation: u64,
    blocks: Vec<u32>,
    /// The next page of the last block.
    next: u64,
    items: Vec<u8>,
    kind: u32,
    position: u32,
    done_at: u64,
}

impl Writer<'_> {
    /// Adds an item, on a page of its kind.
    fn put(&mut self, kind: u32, item: &[u8]) -> Result<()> {
        if kind != self.kind || self.items.len() + item.len() > MapPage::ROOM {
            self.write_page(0)?;
            self.kind = kind;
        }
        self.items.extend_from_slice(item);
        Ok(())
    }

    fn write_page(&mut self, total: u32) -> Result<()> {
        let media = self.media;
        let pages_per_block = media.layout.pages_per_block;
        let page = loop {
            if self.next == pages_per_block || self.blocks.is_empty() {
                let block = media.open_mapping_block()?;
                self.blocks.push(block);
                self.next = 0;
            }
            let block = u64::from(*self.blocks.last().expect("opened above"));
            let page = block * pages_per_block + self.next;
            if media.can_program(page)? {
                break page;
            }
            self.next += 1;
        };
        let mut header = MapPage {
            magic: U32::new(MapPage::MAGIC),
            crc: U32::ZERO,
            generation: U64::new(self.generation),
            position: U32::new(self.position),
            total: U32::new(total),
            bytes: U32::new(self.items.len() as u32),
            kind: U32::new(self.kind),
        };
        header.crc.set(header.checksum(&self.items));
        media.power.step()?;
        media.image.write(media.layout.flash_page(page), header.as_bytes());
        media.image.write(media.layout.flash_page(page) + size_of::<MapPage>() as u64, &self.items);
        media.power.step()?;
        let oob = Oob::new(Oob::NOT_DATA, self.generation, u64::from(self.position));
        media.image.write_struct(media.layout.oob_record(page), &oob);
        let (now, die) = (media.timing.now(), media.blocks.die_of(page));
        let at_once = media.profile.flash.checkpoint_at_once;
        let done_at = match at_once {
            0 => media.time_program(Cause::Mapping, now, die),
            _ => media.time_program_past_buffer(Cause::Mapping, now, die),
        };
        self.done_at = self.done_at.max(done_at);
        media.count().flash_write(Cause::Mapping, 1);
        self.items.clear();
        self.next += 1;
        self.position += 1;
        let at_a_time = if at_once == 0 { 64 } else { at_once };
        if u64::from(self.position).is_multiple_of(at_a_time) {
            media.timing.wait(self.done_at);
        }
        Ok(())
    }
}

impl Media {
    /// Wakes the background task that takes checkpoints.
    pub(crate) fn ring_checkpointer(&self) {
        let Some(media) = self.itself.upgrade() else { return };
        self.checkpoint_bell.ring(|| {
            amphi_rt::task::spawn("ssd-checkpointer", move || {
                media.checkpoint_bell.serve(|| media.checkpoint());
            })
        });
    }

    /// Whether enough was programmed since the last checkpoint that the next is worth its pages.
    pub(crate) fn is_checkpoint_due(&self) -> bool {
        let programmed = self.blocks.opened_since_checkpoint() * self.layout.pages_per_block;
        let own = self.checkpoints.pages.load(Ordering::Relaxed) * PAGES_PER_PAGE;
        programmed >= self.profile.flash.checkpoint_pages.max(own)
    }

    /// Takes a checkpoint.
    ///
    /// # Errors
    /// Power was lost, or the host's disk is full; the checkpoint before stays in force.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let mut held = self.checkpoints.held.lock();
        self.erase_stale(&mut held)?;
        self.blocks.forget_opened();
        let mut writer = Writer {
            media: self,
            generation: self.tick(),
            blocks: Vec::new(),
            next: 0,
            items: Vec::new(),
            kind: MapPage::LEAVES,
            position: 0,
            done_at: 0,
        };
        let outcome = self.write_checkpoint(&mut writer);
        let (written, generation, pages) = (writer.blocks, writer.generation, writer.position);
        if let Err(cause) = outcome {
            held.stale.extend(written);
            return Err(cause);
        }
        self.power.step()?;
        self.image.word(control!(checkpoint)).store(generation, Ordering::Release);
        self.checkpoints.pages.store(u64::from(pages), Ordering::Relaxed);
        let before = std::mem::replace(&mut held.current, written);
        held.stale.extend(before);
        self.drop_trims(generation)?;
        self.erase_stale(&mut held)
    }

    fn write_checkpoint(&self, writer: &mut Writer<'_>) -> Result<()> {
        let unsettled = self.blocks.unsettled();
        // A trim numbered before this checkpoint, whose record it lets go, has changed the table once its
        // partition's lock is free.
        for partition in &self.partitions {
            drop(partition.index.read());
        }
        let mut item = Vec::new();
        for slot in 0..self.table.leaves() {
            let (first, words) = self.table.leaf(slot);
            let presence = (0..).zip(&words).fold(0_u64, |bits, (n, &word)| bits | u64::from(word != 0) << n);
            item.clear();
            item.extend((first / LEAF).to_le_bytes());
            item.extend(presence.to_le_bytes());
            words.iter().filter(|&&word| word != 0).for_each(|word| item.extend(word.to_le_bytes()));
            writer.put(MapPage::LEAVES, &item)?;
        }
        for block in unsettled {
            writer.put(MapPage::BLOCKS, &block.to_le_bytes())?;
        }
        // What the table said of an unflushed write must hold: from here on a power cut does not take those
        // back.
        self.flush_cache();
        let total = writer.position + 1;
        writer.write_page(total)?;
        self.timing.wait(writer.done_at);
        Ok(())
    }

    fn erase_stale(&self, held: &mut Held) -> Result<()> {
        while let Some(&block) = held.stale.last() {
            self.erase(u64::from(block))?;
            held.stale.pop();
            self.blocks.mapping_block_returned();
        }
        Ok(())
    }

    /// Takes a free block for a checkpoint.
    fn open_mapping_block(&self) -> Result<u32> {
        let block = self
            .blocks
            .take_for_mapping()
            .ok_or_else(|| Error::NoSpace("no flash block is left for the mapping checkpoint".to_owned()))?;
        let opened = self.prepare_block(block, true);
        if let Err(cause) = opened {
            self.blocks.mapping_block_returned();
            self.return_block(block);
            return Err(cause);
        }
        Ok(block)
    }

    /// Closing a device: the next power-up shall have nothing to scan.
    pub(crate) fn checkpoint_at_close(&self) {
        if self.blocks.was_programmed() && !self.image.is_in_memory() {
            // Without one, the next power-up scans: nothing is lost.
            let _ = self.checkpoint();
        }
    }
}

const _: () = assert!(MapPage::ROOM >= 16 + 8 * LEAF as usize && PAGE > 0);
