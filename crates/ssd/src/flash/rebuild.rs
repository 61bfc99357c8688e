//! The mapping found again at power-up, from flash alone: the newest complete checkpoint, then the
//! out-of-band records of every block that was filled after it, then the trims noted since.
//!
//! The rule is one order for everything that says where a logical page is: of several records of one page
//! that with the greatest [`Oob::order`] counts, and a trim counts if its number is greater. So it does not
//! matter in which order blocks are scanned, nor that records older than the checkpoint are met again. A
//! device that was closed, killed or cut comes up by the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use zerocopy::FromBytes;

use crate::ImageError;
use crate::flash::table::MapTable;
use crate::flash::trims::TrimRanges;
use crate::format::{BlockHeader, LEAF, Layout, MapPage, Mapping, Oob, PAGE, control};
use crate::image::Image;
use crate::planted::{self, Bug};

/// What power-up found in flash.
#[derive(Debug)]
pub(crate) struct Rebuilt {
    pub(crate) table: MapTable,
    /// Live pages of each block.
    pub(crate) live: Box<[u32]>,
    pub(crate) trims: TrimRanges,
    /// Blocks that hold the checkpoint in force.
    pub(crate) checkpoint: Vec<u32>,
    /// Blocks that hold pages of other checkpoints.
    pub(crate) stale: Vec<u32>,
    /// Flash pages that had to be read, per die.
    pub(crate) reads: Vec<u64>,
}

/// A checkpoint's page, as its header describes it.
#[derive(Clone, Copy, Debug)]
struct Part {
    position: u32,
    total: u32,
    kind: u32,
    page: u64,
}

struct Rebuild<'a> {
    image: &'a Image,
    layout: &'a Layout,
    found: Rebuilt,
}

/// Rebuilds the mapping of a device with `dies` dies.
///
/// # Errors
/// The checkpoint that must be there is damaged, or the mapping leads outside the flash.
pub(crate) fn rebuild(image: &Image, layout: &Layout, dies: u64) -> Result<Rebuilt, ImageError> {
    let found = Rebuilt {
        table: MapTable::new(layout.capacity_pages)?,
        live: vec![0; layout.blocks as usize].into(),
        trims: TrimRanges::read(image, layout)?,
        checkpoint: Vec::new(),
        stale: Vec::new(),
        reads: vec![0; dies as usize],
    };
    let mut rebuild = Rebuild { image, layout, found };
    let (data, mapping) = rebuild.blocks_in_use();
    let (start, unsettled) = rebuild.load_checkpoint(&mapping)?;
    for block in data {
        let opened_at = image.word(layout.block_header(u64::from(block)) + 8).load(Ordering::Relaxed);
        if opened_at > start && !(start > 0 && planted::has(Bug::CheckpointTrusted))
            || unsettled.contains(&block)
        {
            rebuild.scan(block);
        }
    }
    rebuild.apply_trims();
    rebuild.count_live()?;
    Ok(rebuild.found)
}

impl Rebuild<'_> {
    fn read(&mut self, block: u32, pages: u64) {
        let dies = self.found.reads.len();
        self.found.reads[block as usize % dies] += pages;
    }

    fn oob(&self, page: u64) -> Oob {
        self.image.read_struct(self.layout.oob_record(page))
    }

    /// The blocks that hold pages, by the headers in their first pages: those with data, and those with
    /// checkpoints.
    fn blocks_in_use(&mut self) -> (Vec<u32>, Vec<u32>) {
        let (mut data, mut mapping) = (Vec::new(), Vec::new());
        for block in 0..self.layout.blocks as u32 {
            let word = self.image.word(self.layout.block_header(u64::from(block))).load(Ordering::Relaxed);
            let header = BlockHeader::from_word(word);
            if header.in_use {
                self.read(block, 1);
                if header.mapping { mapping.push(block) } else { data.push(block) }
            }
        }
        (data, mapping)
    }

    /// Loads the newest complete checkpoint. Answers when it began, and the blocks that were being filled
    /// then.
    fn load_checkpoint(&mut self, blocks: &[u32]) -> Result<(u64, BTreeSet<u32>), ImageError> {
        let mut generations: BTreeMap<u64, Vec<Part>> = BTreeMap::new();
        let mut buffer = vec![0; PAGE as usize];
        for &block in blocks {
            let first = u64::from(block) * self.layout.pages_per_block;
            for page in first..first + self.layout.pages_per_block {
                let oob = self.oob(page);
                if oob.mark.get() == 0 {
                    break;
                }
                self.read(block, 1);
                if !oob.is_of(Oob::NOT_DATA) {
                    continue;
                }
                if let Some((header, _)) = self.checkpoint_page(page, &mut buffer) {
                    generations.entry(header.generation.get()).or_default().push(Part {
                        position: header.position.get(),
                        total: header.total.get(),
                        kind: header.kind.get(),
                        page,
                    });
                }
            }
        }
        let complete = generations.into_iter().rev().find_map(|(generation, mut parts)| {
            parts.sort_unstable_by_key(|part| part.position);
            let in_order = (0..).zip(&parts).all(|(position, part)| part.position == position);
            let total = parts.last().map_or(0, |last| last.total);
            (in_order && total as usize == parts.len()).then_some((generation, parts))
        });
        let promised = self.image.word(control!(checkpoint)).load(Ordering::Relaxed);
        let Some((generation, parts)) = complete else {
            self.found.stale = blocks.to_vec();
            return if promised == 0 {
                Ok((0, BTreeSet::new()))
            } else {
                Err(ImageError::Checksum { what: "mapping checkpoint" })
            };
        };
        if generation < promised {
            return Err(ImageError::Checksum { what: "mapping checkpoint" });
        }
        let holds = |block: &u32| {
            parts.iter().any(|part| part.page / self.layout.pages_per_block == u64::from(*block))
        };
        (self.found.checkpoint, self.found.stale) = blocks.iter().partition(|block| holds(block));
        let mut unsettled = BTreeSet::new();
        for part in parts {
            let Some((_, items)) = self.checkpoint_page(part.page, &mut buffer) else { continue };
            match part.kind {
                MapPage::BLOCKS => unsettled.extend(
                    items
                        .chunks_exact(4)
                        .map(|item| u32::from_le_bytes(item.try_into().expect("chunks of four bytes"))),
                ),
                _ => self.load_leaves(items)?,
            }
        }
        Ok((generation, unsettled))
    }

    /// A checkpoint's page, if it is whole: its header and its items.
    fn checkpoint_page<'b>(&self, page: u64, buffer: &'b mut [u8]) -> Option<(MapPage, &'b [u8])> {
        self.image.read(self.layout.flash_page(page), buffer);
        let (header, rest) = MapPage::read_from_prefix(buffer).ok()?;
        let items = rest.get(..header.bytes.get() as usize)?;
        (header.magic.get() == MapPage::MAGIC && header.crc.get() == header.checksum(items))
            .then_some((header, items))
    }

    fn load_leaves(&self, mut items: &[u8]) -> Result<(), ImageError> {
        let damaged = || ImageError::Corrupt("its mapping checkpoint has a leaf cut short".to_owned());
        let mut word = || -> Result<u64, ImageError> {
            let (word, rest) = items.split_first_chunk::<8>().ok_or_else(damaged)?;
            items = rest;
            Ok(u64::from_le_bytes(*word))
        };
        // A page ends where no whole item is left, which the header's length says.
        while let Ok(leaf) = word() {
            let presence = word()?;
            for entry in (0..LEAF).filter(|entry| presence >> entry & 1 == 1) {
                let mapping = Mapping::from_word(word()?);
                let lpa = leaf.saturating_mul(LEAF).saturating_add(entry);
                if lpa >= self.layout.capacity_pages {
                    return Err(ImageError::Corrupt(format!("its mapping checkpoint maps page {lpa}")));
                }
                self.found.table.set(lpa, mapping);
            }
        }
        Ok(())
    }

    /// What orders the place that the table has for a page against others.
    fn order(&self, lpa: u64) -> Option<(u64, u32)> {
        match self.found.table.get(lpa) {
            Mapping::Never => None,
            Mapping::Trimmed(at) => Some((at, 0)),
            Mapping::At(page) if page < self.layout.flash_pages() => {
                // A page erased since is not the place any more; where it went is still to be found.
                Some(self.oob(page)).filter(|oob| oob.is_of(lpa as u32)).map(|oob| oob.order())
            }
            Mapping::At(_) => None,
        }
    }

    /// Takes the records of a block's pages into account.
    fn scan(&mut self, block: u32) {
        let first = u64::from(block) * self.layout.pages_per_block;
        let mut programmed = 0;
        for page in first..first + self.layout.pages_per_block {
            let oob = self.oob(page);
            programmed += u64::from(oob.mark.get() != 0);
            let lpa = u64::from(oob.lpa.get());
            if lpa < self.layout.capacity_pages
                && oob.is_whole()
                && (planted::has(Bug::SequenceIgnored)
                    || self.order(lpa).is_none_or(|order| order < oob.order()))
            {
                self.found.table.set(lpa, Mapping::At(page));
            }
        }
        self.read(block, programmed);
    }

    fn apply_trims(&self) {
        if self.found.trims.is_empty() || planted::has(Bug::TrimForgotten) {
            return;
        }
        for (lpa, _) in self.found.table.entries() {
            if let Some(at) = self.found.trims.at(lpa)
                && self.order(lpa).is_none_or(|order| order < (at, 0))
            {
                self.found.table.set(lpa, Mapping::Trimmed(at));
            }
        }
    }

    fn count_live(&mut self) -> Result<(), ImageError> {
        for (lpa, mapping) in self.found.table.entries() {
            let Mapping::At(page) = mapping else { continue };
            if page >= self.layout.flash_pages() {
                return Err(ImageError::Corrupt(format!(
                    "page {lpa} is mapped outside the flash, to {page}"
                )));
            }
            self.found.live[(page / self.layout.pages_per_block) as usize] += 1;
        }
        Ok(())
    }
}
