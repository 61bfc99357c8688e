//! Writes that no flush has covered: remembered, made durable, and taken back by a power cut.

use amphi_device::{BlockDurability, Lpa};

use super::volatile::{Fate, Unflushed};
use crate::dice::Dice;
use crate::format::{Mapping, Oob, PAGE};
use crate::media::Media;
use crate::planted::{self, Bug};

/// What lets parts of a lost write arrive, by a seed: its page, its bytes and its number. Where parts are
/// kept is the personality's.
type Tear<'a> = dyn FnMut(u64, Lpa, &[u8], u64) + 'a;

impl Media {
    /// Notes that a write, whose number of the sequence clock is `number`, is about to replace a page. Called
    /// with the partition's write lock held, so that the order is that of publication. Later would be too
    /// late: the replaced page's block could be erased, and a checkpoint could hold the new one.
    pub(crate) fn remember_unflushed(&self, number: u64, lpa: u64, page: u64) {
        let durable = self.contract.block_durability == BlockDurability::Completion;
        if durable && !planted::has(Bug::VolatileCompletion) {
            return;
        }
        let before = self.mapping(lpa);
        if let Mapping::At(old) = before {
            self.blocks.pin(old);
        }
        let mut cache = self.volatile.0.lock();
        cache.push(Unflushed { number, lpa, before, page });
        if cache.len() as u64 > self.profile.flash.write_buffer_pages {
            // The cache is full: its oldest half has been programmed.
            let half = cache.len() / 2;
            for write in cache.drain(..half) {
                self.release(&write);
            }
        }
    }

    fn release(&self, write: &Unflushed) {
        if let Mapping::At(old) = write.before {
            self.blocks.published(old);
        }
    }

    /// Makes every completed write durable. Answers how many were not.
    pub(crate) fn flush_cache(&self) -> usize {
        let writes = std::mem::take(&mut *self.volatile.0.lock());
        for write in &writes {
            self.release(write);
        }
        writes.len()
    }

    /// After a power cut: decides by the seed which unflushed writes had reached flash, and in which parts.
    pub(crate) fn revert_unflushed(&self, seed: u64, tear: &mut Tear<'_>) {
        let mut dice = Dice::part(seed, 2 << 62);
        let mut fate = |_| match dice.below(3) {
            0 => Fate::Kept,
            _ => Fate::Torn(Dice::part(seed, dice.next()).seed()),
        };
        self.lose_unflushed(&mut fate, tear);
    }

    /// After a power cut: what became of each unflushed write, the newest first, as `fate` says of its
    /// number.
    pub(crate) fn lose_unflushed(&self, fate: &mut dyn FnMut(u64) -> Fate, tear: &mut Tear<'_>) {
        let mut page = vec![0; PAGE as usize];
        let writes = std::mem::take(&mut *self.volatile.0.lock());
        for write in writes.iter().rev() {
            // What garbage collection or cleaning has rewritten since is in flash.
            if self.mapping(write.lpa) != Mapping::At(write.page) {
                continue;
            }
            let fate = fate(write.number);
            if fate == Fate::Kept {
                continue;
            }
            self.image.read(self.layout.flash_page(write.page), &mut page);
            // Parts that had arrived keep the write's number: newer than what they replaced, older than later
            // stores.
            let written_at = self.oob(write.page).written_at.get();
            self.set_mapping(write.lpa, write.before);
            self.image.write_struct(self.layout.oob_record(write.page), &Oob::spent());
            if let Fate::Torn(seed) = fate {
                tear(seed, Lpa(write.lpa), &page, written_at);
            }
        }
    }

    /// Takes over the unflushed writes of the device that this one is a copy of.
    pub(crate) fn take_unflushed_from(&self, other: &Self) {
        let writes = other.volatile.0.lock().clone();
        for write in &writes {
            if let Mapping::At(old) = write.before {
                self.blocks.pin(old);
            }
        }
        *self.volatile.0.lock() = writes;
    }

    /// The writes that no flush has covered yet: number and page of each, oldest first.
    pub(crate) fn unflushed(&self) -> Vec<(u64, Lpa)> {
        self.volatile.0.lock().iter().map(|write| (write.number, Lpa(write.lpa))).collect()
    }
}
