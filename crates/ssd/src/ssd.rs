//! The emulated SSD as its owner holds it: making, opening, describing and closing one, and the powers that
//! only tests have.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::Core;
use crate::dice::Dice;
use crate::format::control;
use crate::image::Image;
use crate::info::{Info, Shutdown};
use crate::power::Loss;
use crate::powerup;
use crate::stats::{Counter, Stats};
use crate::{ImageError, Profile};

/// How to open an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpenOptions {
    /// Device times are multiplied by this. 1 is as the profile says; 0 or less, or not a number, counts as
    /// 1.
    pub dilation: f64,
    /// No device time at all, whatever the profile says.
    pub free: bool,
    /// The image's memory is shared by processes that do not have its file open, so room for it is asked for,
    /// and given back, by its addresses. Asking touches it then, which takes longer.
    pub image_is_shared: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { dilation: 1.0, free: false, image_is_shared: false }
    }
}

/// An emulated SSD with power on.
///
/// It answers on the [block port](amphi_device::BlockPort), the [byte port](amphi_device::BytePort) and the
/// [vendor commands](amphi_device::WriteLog). Dropping it closes it; what host threads have stored but not
/// posted is then lost, as caches are.
#[derive(Debug)]
pub struct Ssd {
    core: Arc<Core>,
    options: OpenOptions,
    /// How the session before this one ended.
    last_shutdown: Shutdown,
}

impl Ssd {
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Creates an image: a sparse file, mode 0600, that holds a new device of `capacity_bytes` (a multiple of
    /// 4096).
    ///
    /// # Errors
    /// The file exists, the profile or capacity is not valid, or the system refuses.
    pub fn create(path: &Path, profile: &Profile, capacity_bytes: u64) -> Result<(), ImageError> {
        let plan = powerup::Plan::new(profile, capacity_bytes)?;
        let image = Image::create(path, plan.layout.image_bytes)?;
        plan.write(&image).inspect_err(|_| {
            // Half an image is none.
            let _ = std::fs::remove_file(path);
        })
    }

    /// Opens an image, for this process alone, and powers its device up.
    ///
    /// # Errors
    /// In use, not an image, another version, truncated, damaged, or the system refuses.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self, ImageError> {
        let (mut image, parts) = powerup::open(path)?;
        if options.image_is_shared {
            image.use_addresses_alone();
        }
        let ssd = Self::power_up(Arc::new(image), &parts, *options)?;
        ssd.core.wait_for_power_up();
        ssd.core.wait_for_restore();
        Ok(ssd)
    }

    /// As [`open`](Self::open), but the file stays as it is: what the device changes, its own recovery
    /// included, is in memory and gone with it. The file need not be writable. Others may do the same at the
    /// same time.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_copy(path: &Path, options: &OpenOptions) -> Result<Self, ImageError> {
        let (image, parts) = powerup::open_copy(path)?;
        let ssd = Self::power_up(Arc::new(image), &parts, *options)?;
        ssd.core.wait_for_power_up();
        ssd.core.wait_for_restore();
        Ok(ssd)
    }

    /// Powers up a device in memory from the bytes of an image, which themselves stay as they are.
    ///
    /// # Errors
    /// Not an image, another version, truncated, damaged, or there is no memory.
    pub fn from_image(bytes: &[u8], options: &OpenOptions) -> Result<Self, ImageError> {
        let (image, parts) = powerup::copy_in(bytes)?;
        Self::power_up(Arc::new(image), &parts, *options)
    }

    /// A new device in memory, of `capacity_bytes` (rounded up to whole pages).
    ///
    /// # Panics
    /// If the profile or the capacity is not valid, or there is no memory: the caller wrote them down.
    #[must_use]
    pub fn in_memory(profile: &Profile, capacity_bytes: u64) -> Self {
        Self::try_in_memory(profile, capacity_bytes, &OpenOptions::default())
            .expect("a valid profile and capacity, and memory for them")
    }

    /// As [`in_memory`](Self::in_memory), with options.
    ///
    /// # Errors
    /// The profile or the capacity is not valid, or there is no memory.
    pub fn try_in_memory(
        profile: &Profile,
        capacity_bytes: u64,
        options: &OpenOptions,
    ) -> Result<Self, ImageError> {
        let plan = powerup::Plan::new(profile, capacity_bytes.next_multiple_of(4096))?;
        let image = powerup::memory_for(&plan.layout)?;
        plan.write(&image)?;
        let parts = powerup::read(&image)?;
        Self::power_up(Arc::new(image), &parts, *options)
    }

    pub(crate) const fn options(&self) -> OpenOptions {
        self.options
    }

    pub(crate) fn power_up(
        image: Arc<Image>,
        parts: &powerup::Parts,
        options: OpenOptions,
    ) -> Result<Self, ImageError> {
        Self::power_up_cut(image, parts, options, None)
    }

    fn power_up_cut(
        image: Arc<Image>,
        parts: &powerup::Parts,
        options: OpenOptions,
        cut: Option<(u64, u64)>,
    ) -> Result<Self, ImageError> {
        let dilation = if options.dilation > 0.0 { options.dilation } else { 1.0 };
        let last_shutdown = powerup::shutdown(&image)?;
        let core = powerup::power_up(image, parts, dilation, options.free, cut)?;
        core.image.word(control!(power_ups)).fetch_add(1, Ordering::Relaxed);
        core.image.word(control!(shutdown)).store(Shutdown::InUse as u64, Ordering::Release);
        Ok(Self { core, options, last_shutdown })
    }

    /// What the device is.
    #[must_use]
    pub fn info(&self) -> Info {
        powerup::info(&self.core.image, &self.core.layout, &self.core.profile, self.last_shutdown)
    }

    /// What the device did since it was made.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let core = &self.core;
        let mut stats = core.count().report();
        stats.take_wear(core.wear());
        stats.bad_blocks = core.blocks.bad();
        core.meters.report(&mut stats);
        core.report_memory(&mut stats);
        stats.index_bytes = self.index_bytes();
        stats
    }

    /// Reads what an image's device is and did, without powering it up: it may be in use meanwhile.
    ///
    /// # Errors
    /// Not an image, another version, truncated, damaged, or the system refuses.
    pub fn inspect(path: &Path) -> Result<(Info, Stats), ImageError> {
        powerup::inspect(path)
    }

    /// Writes the image back to the host's disk. What the emulated device promises needs this only against
    /// failures of the real machine.
    ///
    /// # Errors
    /// The disk failed.
    pub fn sync(&self) -> amphi_device::Result<()> {
        self.core.image.sync()
    }

    /// Bytes of memory that the write log's index holds.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        self.core.partitions.iter().map(|partition| partition.index.read().bytes() as u64).sum()
    }

    /// Looks a byte address up in the write log's index, as every load does, and answers whether the log
    /// holds that byte. For measuring the index alone.
    ///
    /// # Panics
    /// If `at` is outside the device.
    #[must_use]
    pub fn is_logged(&self, at: u64) -> bool {
        let (partition, page) = self.core.partition(at / crate::format::PAGE);
        let offset = (at % crate::format::PAGE) as usize;
        let index = partition.index.read();
        index.chunks_near(page, offset, offset + 1).iter().any(|chunk| chunk.meets(offset, offset + 1))
    }
}

/// Powers that belong to tests and the crash laboratory, and to no host.
impl Ssd {
    /// Cuts the power. What was not durable is kept, dropped or torn as the contract allows, by the seed.
    /// From now on every command answers [`PowerLost`](amphi_device::Error::PowerLost).
    pub fn power_cut(&self, seed: u64) {
        self.core.power.cut(Loss::PowerCut, seed);
    }

    /// As [`power_cut`](Self::power_cut), by a process that serves the device and is about to exit: returns
    /// once commands that were under way have ended and the device is [settled](Self::settle).
    pub fn power_cut_and_settle(&self, seed: u64) {
        /// Commands in flight end within this, one way or the other.
        const IN_FLIGHT_NS: u64 = 3_000_000;
        self.power_cut(seed);
        amphi_rt::time::sleep_ns(IN_FLIGHT_NS);
        self.settle();
    }

    /// Crashes the host: as a power cut, but what was posted on the link arrives.
    pub fn host_crash(&self, seed: u64) {
        self.core.power.cut(Loss::HostCrash, seed);
    }

    /// Carries out what a power cut or host crash does to what was on its way, and records it. Dropping the
    /// device does this too; a process that exits without dropping it calls this before. Does nothing while
    /// there is power.
    pub fn settle(&self) {
        let core = &self.core;
        let Some((loss, seed)) = core.power.loss() else { return };
        if loss == Loss::PowerCut {
            let mut tear = |seed, page, data: &[u8], number| core.tear(Dice::new(seed), page, data, number);
            core.revert_unflushed(Dice::new(seed).next(), &mut tear);
        }
        core.settle(loss, Dice::new(seed).next());
        if loss == Loss::PowerCut {
            core.dump_memory();
        }
        let (counter, shutdown) = match loss {
            Loss::HostCrash => (Counter::HostCrashes, Shutdown::HostCrash),
            Loss::PowerCut => (Counter::PowerCuts, Shutdown::PowerCut),
        };
        if core.power.record() {
            core.count().add(counter, 1);
            core.image.word(control!(shutdown)).store(shutdown as u64, Ordering::Release);
        }
    }

    /// Cuts the power just before the n-th command (from 0) that reaches a port from now on.
    pub fn cut_after_commands(&self, commands: u64, seed: u64) {
        self.core.power.arm(Some(commands), None, seed);
    }

    /// Cuts the power just before the n-th change (from 0) that the firmware makes to its lasting state from
    /// now on: inside a command, cleaning, garbage collection or recovery.
    pub fn cut_after_steps(&self, steps: u64, seed: u64) {
        self.core.power.arm(None, Some(steps), seed);
    }

    /// Has about one in `one_in` of the firmware's steps, as `seed` says, take up to 1 ms from now on. Host
    /// threads then meet where they seldom do, as if the scheduler kept one of them waiting.
    pub fn slow_down_steps(&self, seed: u64, one_in: u64) {
        self.core.power.slow_down(seed, one_in);
    }

    /// Spoils the flash page that holds a logical page: reads that need it answer
    /// [`Media`](amphi_device::Error::Media) from now on, until it is written anew. Answers whether the page
    /// was in flash at all.
    ///
    /// # Panics
    /// If the page is outside the device.
    pub fn spoil(&self, at: amphi_device::Lpa) -> bool {
        let (partition, _) = self.core.partition(at.0);
        let _index = partition.index.write();
        let crate::format::Mapping::At(page) = self.core.mapping(at.0) else { return false };
        let spoiled = self.core.oob(page).unreadable();
        self.core.image.write_struct(self.core.layout.oob_record(page), &spoiled);
        true
    }

    /// Where every logical page that is in flash lies: logical page and flash page, by logical page. No
    /// command may be in flight.
    #[must_use]
    pub fn mapped_pages(&self) -> Vec<(amphi_device::Lpa, u64)> {
        let mapped = self.core.table.entries().filter_map(|(lpa, mapping)| match mapping {
            crate::format::Mapping::At(page) => Some((amphi_device::Lpa(lpa), page)),
            _ => None,
        });
        let mut pages: Vec<_> = mapped.collect();
        pages.sort_unstable();
        pages
    }

    /// How many live pages each erase block has. No command may be in flight.
    #[must_use]
    pub fn live_pages(&self) -> Vec<u32> {
        (0..self.core.layout.blocks).map(|block| self.core.blocks.live_pages(block)).collect()
    }

    /// Whether the power is still on.
    #[must_use]
    pub fn has_power(&self) -> bool {
        self.core.power.check().is_ok()
    }

    /// Powers the device up again, after a cut or crash; without either, as after a host crash.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn restart(self) -> Result<Self, ImageError> {
        self.restart_cut(None)
    }

    /// As [`restart`](Self::restart), with the power gone again just before the n-th change (from 0) that the
    /// power-up makes to what lasts; a power-up that makes fewer leaves the cut armed.
    ///
    /// # Errors
    /// The image is damaged.
    pub fn restart_and_cut(self, steps: u64, seed: u64) -> Result<Self, ImageError> {
        self.restart_cut(Some((steps, seed)))
    }

    fn restart_cut(self, cut: Option<(u64, u64)>) -> Result<Self, ImageError> {
        self.core.power.cut(Loss::HostCrash, 0);
        let image = Arc::clone(&self.core.image);
        let (options, parts) = (self.options, self.core.parts());
        drop(self);
        let ssd = Self::power_up_cut(image, &parts, options, cut)?;
        ssd.core.wait_for_power_up();
        ssd.core.wait_for_restore();
        Ok(ssd)
    }

    /// Lets the process that emulates the device be killed after so many steps of the dump that the next
    /// power loss makes: what the dump would do after them is not done.
    ///
    /// # Errors
    /// The device's firmware makes no dump.
    pub fn kill_in_dump(&self, steps: u64) -> amphi_device::Result<()> {
        self.core.pins()?.die_in_dump(steps);
        Ok(())
    }

    /// A copy of the device in memory, with what host threads have staged. No command may be in flight.
    ///
    /// # Errors
    /// There is no memory.
    pub fn fork(&self) -> Result<Self, ImageError> {
        let mut fork = self.fork_device()?;
        fork.last_shutdown = self.last_shutdown;
        fork.core.stages.take_from(self.core.stages.copy());
        Ok(fork)
    }
}

impl Drop for Ssd {
    fn drop(&mut self) {
        let core = &self.core;
        core.close_background();
        core.collect_bell.close();
        core.checkpoint_bell.close();
        if core.power.loss().is_none() {
            core.checkpoint_at_close();
            core.image.word(control!(shutdown)).store(Shutdown::Clean as u64, Ordering::Release);
        }
        self.settle();
    }
}
