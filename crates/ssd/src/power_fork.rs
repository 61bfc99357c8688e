//! Forks of a device by the thousand: what the crash laboratory needs to look at one moment in many ways.
//!
//! A device made [`forkable`](Ssd::forkable) is the origin of a lineage of images (`image/lineage.rs`). The
//! other powers here decide what a crash leaves: which bytes on their way arrive.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use amphi_device::{Structure, TxId};
use foldhash::fast::FixedState;
use hashbrown::HashSet;

use crate::ImageError;
use crate::dice::Dice;
use crate::flash::Fate;
use crate::format::{COUNTERS_AT, Mapping, PAGE};
use crate::power::Loss;
use crate::powerup;
use crate::ssd::Ssd;
use crate::store::Store;

/// A number that tells what a page holds: 0 of one that holds only zeros.
fn tell(page: &[u8; PAGE as usize]) -> u64 {
    if *page == [0; PAGE as usize] {
        return 0;
    }
    let mut hash = FixedState::with_seed(0).build_hasher();
    hash.write(page);
    hash.finish() | 1
}

/// Powers that belong to the crash laboratory.
impl Ssd {
    /// Powers the device down and makes it the origin of forks, which [`fork`](Self::fork) and
    /// [`fork_device`](Self::fork_device) then make by copying the pages that changed. The origin itself is
    /// not to be used any more except for forking.
    ///
    /// # Errors
    /// There is no memory; the image is damaged.
    pub fn forkable(self) -> Result<Self, ImageError> {
        let mut image = {
            let _background = self.core().hold_background();
            powerup::copy(self.core())?
        };
        let (options, parts) = (self.options(), self.core().parts());
        drop(self);
        image.found_lineage();
        Self::power_up(Arc::new(image), &parts, options)
    }

    /// What the device alone has at this moment, powered up: what host threads have staged is not in it, and
    /// commands in flight have no effect. What the origin could still lose from a volatile write buffer, the
    /// fork can.
    ///
    /// # Errors
    /// There is no memory; the image is damaged.
    pub fn fork_device(&self) -> Result<Self, ImageError> {
        let core = self.core();
        let _background = core.hold_background();
        let image = match core.image.fork() {
            Some(fork) => fork?,
            None => powerup::copy(core)?,
        };
        let fork = Self::power_up(Arc::new(image), &core.parts(), self.options())?;
        fork.core().take_unflushed_from(core);
        Ok(fork)
    }

    /// The block writes that have completed and that no flush has covered yet, where the write buffer is
    /// volatile: a number that names each on this device and on forks made from now on, and its page; oldest
    /// first.
    #[must_use]
    pub fn unflushed(&self) -> Vec<(u64, amphi_device::Lpa)> {
        self.core().unflushed()
    }

    /// On a device whose power was cut: decides what has become of each [unflushed](Self::unflushed) write,
    /// by its number. Of several of one page the newest comes first. It counts from the next
    /// [`restart`](Self::restart) on.
    pub fn lose_unflushed(&self, fate: &mut dyn FnMut(u64) -> Fate) {
        let core = self.core();
        core.lose_unflushed(fate, &mut |seed, page, data, number| {
            core.tear(Dice::new(seed), page, data, number)
        });
    }

    /// Lets bytes of a store that were on their way arrive while the power goes. They count from the next
    /// [`restart`](Self::restart) on. Answers whether the log had room.
    ///
    /// # Panics
    /// If the bytes are outside the window or cross a page.
    pub fn arrive(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> bool {
        let core = self.core();
        assert!((at % PAGE) as usize + data.len() <= PAGE as usize, "what arrives lies within one page");
        assert!(core.check_bytes("arrival", at, data.len()).is_ok(), "what arrives lies inside the window");
        core.take_in_at(Loss::PowerCut, &Store { at, data, tx: tx.map_or(0, TxId::get), tag })
    }

    /// Lets parts of one page of a block write in flight arrive while the power goes: each its first byte in
    /// the page and its bytes. They count from the next [`restart`](Self::restart) on. Answers whether there
    /// was room.
    ///
    /// # Panics
    /// If the page is outside the device, or a part outside the page.
    pub fn arrive_in_page(&self, at: amphi_device::Lpa, parts: &[(usize, &[u8])]) -> bool {
        let core = self.core();
        assert!(at.0 < core.layout.capacity_pages, "what arrives lies inside the device");
        for (offset, data) in parts {
            assert!(offset + data.len() <= PAGE as usize, "what arrives lies within one page");
        }
        core.take_in_torn(at.0, parts, core.tick())
    }

    /// Whether garbage collection in the background has something to do: it may run at any time from when
    /// free blocks run low until enough are free again.
    #[must_use]
    pub fn is_collection_due(&self) -> bool {
        self.core().is_collection_due()
    }

    /// Does what garbage collection in the background would do now. What it met shows in the device, as it
    /// does when it runs by itself.
    pub fn collect_garbage(&self) {
        let _nobody_waits_for_it = self.core().collect_round();
    }

    /// How many firmware steps are left before a cut armed by [`cut_after_steps`](Self::cut_after_steps);
    /// nothing if none is armed.
    #[must_use]
    pub fn steps_before_cut(&self) -> Option<u64> {
        self.core().power.steps_left()
    }

    /// A number that two devices of one lineage share, as good as certainly, exactly if they hold the same,
    /// down to the last bit of log and flash: the pages of the image in which each differs from `origin`, the
    /// device that [`forkable`](Self::forkable) made, counters apart. What powers up from either is the same.
    /// Of devices of no lineage, or not of `origin`'s, there is no such number.
    #[must_use]
    pub fn difference_from(&self, origin: &Self) -> Option<u64> {
        let (mine, theirs) = (&self.core().image, &origin.core().image);
        let (mut page, mut was) = ([0; PAGE as usize], [0; PAGE as usize]);
        let mut hash = FixedState::with_seed(0).build_hasher();
        for at in mine.differing(theirs)? {
            let len = PAGE.min(mine.bytes() - at) as usize;
            mine.read(at, &mut page[..len]);
            theirs.read(at, &mut was[..len]);
            if at != COUNTERS_AT && page[..len] != was[..len] {
                hash.write_u64(at);
                hash.write(&page[..len]);
            }
        }
        Some(hash.finish())
    }

    /// A number that two devices of one lineage share, as good as certainly, exactly if every page reads the
    /// same on both, but for pages in `except`, and so does all of the memory area or BA-buffer, where there
    /// is one; and if the same pages are pinned.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn contents(&self, except: &[amphi_device::Lpa]) -> amphi_device::Result<u64> {
        let core = self.core();
        let mut page = [0; PAGE as usize];
        let mut hash = FixedState::with_seed(0).build_hasher();
        for (partition, first) in
            core.partitions.iter().zip((0..).step_by(core.layout.partition_pages as usize))
        {
            let pages = first..(first + core.layout.partition_pages).min(core.layout.capacity_pages);
            let logged: HashSet<u64> = {
                let index = partition.index.read();
                let found =
                    std::iter::successors(index.next_page(0), |page| index.next_page(page.checked_add(1)?));
                found.map(|page| first + u64::from(page)).collect()
            };
            for lpa in pages.filter(|lpa| except.iter().all(|skipped| skipped.0 != *lpa)) {
                let tells = if logged.contains(&lpa) || core.is_cached(lpa) {
                    core.peek_page(lpa, &mut page)?;
                    tell(&page)
                } else if let Mapping::At(at) = core.mapping(lpa) {
                    // Most of what there is after a recovery is in flash where the origin has it too. Whether
                    // it can be read is asked of each.
                    core.read_flash(lpa, 0, &mut [])?;
                    core.image.told(core.layout.flash_page(at), || {
                        core.read_flash(lpa, 0, &mut page)?;
                        Ok::<_, amphi_device::Error>(tell(&page))
                    })?
                } else {
                    0
                };
                if tells != 0 {
                    hash.write_u64(lpa);
                    hash.write_u64(tells);
                }
            }
        }
        for entry in core.pinned() {
            for word in [u64::from(entry.id.0), entry.offset, entry.at.0, entry.pages] {
                hash.write_u64(word);
            }
        }
        for (at, len) in core.window_in_use() {
            for at in (at..at + len).step_by(PAGE as usize) {
                core.load_bytes(0, at, &mut page)?;
                let tells = tell(&page);
                if tells != 0 {
                    hash.write_u64(!at);
                    hash.write_u64(tells);
                }
            }
        }
        Ok(hash.finish())
    }
}

#[cfg(test)]
mod tests {
    use amphi_device::{BlockPort, BytePortExt, Lpa};

    use super::*;
    use crate::{Firmware, Profile};

    fn device() -> Ssd {
        let mut profile = Profile::named("free").expect("valid");
        (profile.log.region_bytes, profile.flash.channels, profile.flash.ways) = (64 << 10, 1, 1);
        profile.flash.pages_per_block = 16;
        Ssd::in_memory(&profile, 4 << 20)
    }

    fn byte(ssd: &Ssd, at: Lpa) -> u8 {
        let mut page = [0; PAGE as usize];
        ssd.read(at, &mut page, Structure::Data).expect("readable");
        page[0]
    }

    #[test]
    fn forks_share_nothing_however_often_their_memory_is_used_again() {
        let device = device();
        device.write(Lpa(1), &[1; 4096], Structure::Data).expect("written");
        let origin = device.forkable().expect("forkable");
        for round in 2..20_u8 {
            let fork = origin.fork_device().expect("a fork");
            assert_eq!((byte(&fork, Lpa(1)), byte(&fork, Lpa(2))), (1, 0), "round {round}");
            fork.write(Lpa(2), &[round; 4096], Structure::Data).expect("written");
            let grandchild = fork.fork_device().expect("a fork of a fork");
            grandchild.persist(Lpa(1).byte(0), &[round], None, Structure::Data).expect("stored");
            assert_eq!((byte(&fork, Lpa(1)), byte(&grandchild, Lpa(1))), (1, round));
            assert_eq!(byte(&grandchild, Lpa(2)), round);
        }
    }

    /// A fork once had its clock from before pages were written back in the background, and their records
    /// from after: what it wrote later counted as older, and at the power-up after next a page held zeros.
    #[test]
    fn a_fork_knows_of_nothing_that_is_newer_than_its_clock() {
        let mut profile = Profile::named("free").expect("valid");
        profile.firmware.kind = Firmware::PageCache;
        (profile.firmware.memory_bytes, profile.firmware.write_back_at_percent) = (16 * PAGE, 50);
        (profile.flash.channels, profile.flash.ways, profile.flash.pages_per_block) = (1, 1, 16);
        let device = Ssd::in_memory(&profile, 4 << 20);
        for round in 0..1000 {
            for page in 0..30 {
                let at = Lpa((page * 7 + round) % 64).byte(0);
                device.persist(at, &[round as u8], None, Structure::Data).expect("stored");
            }
            let fork = device.fork().expect("a fork");
            let core = fork.core();
            let newest = (0..core.layout.flash_pages()).map(|page| core.oob(page).order().0).max();
            let now = core.tick();
            assert!(newest < Some(now), "round {round}: a page was written at {newest:?}, and it is {now}");
        }
    }

    #[test]
    fn what_arrives_counts_after_a_restart_and_contents_tell() {
        let origin = device().forkable().expect("forkable");
        let (one, other) = (origin.fork_device().expect("a fork"), origin.fork_device().expect("a fork"));
        let before = one.contents(&[]).expect("readable");
        assert!(one.arrive(Lpa(3).byte(8), &[9; 8], None, Structure::Other));
        let one = one.restart().expect("it powers up");
        other.write(Lpa(3), &[&[0; 8][..], &[9; 8], &[0; 4080]].concat(), Structure::Data).expect("written");
        assert_eq!(one.contents(&[]), other.contents(&[]), "the same bytes, one in the log, one in flash");
        assert_ne!(one.contents(&[]), Ok(before));
        assert_eq!(one.contents(&[Lpa(3)]), Ok(before));
    }

    #[test]
    fn devices_that_hold_the_same_bits_are_told_from_those_that_only_read_the_same() {
        let origin = device().forkable().expect("forkable");
        let fork = || origin.fork_device().expect("a fork");
        let (one, same, other) = (fork(), fork(), fork());
        let untouched = one.difference_from(&origin);
        assert_eq!(byte(&one, Lpa(1)), 0, "reading changes counters only");
        assert_eq!(one.difference_from(&origin), untouched);
        for device in [&one, &same] {
            device.persist(Lpa(1).byte(0), &[5], None, Structure::Data).expect("stored");
        }
        other.write(Lpa(1), &[&[5][..], &[0; 4095]].concat(), Structure::Data).expect("written");
        assert_eq!(one.contents(&[]), other.contents(&[]));
        assert_eq!(one.difference_from(&origin), same.difference_from(&origin));
        assert_ne!(one.difference_from(&origin), other.difference_from(&origin));
        assert_ne!(one.difference_from(&origin), untouched);
        assert_eq!(one.difference_from(&device()), None);
    }
}
