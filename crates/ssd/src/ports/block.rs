//! The block port: NVMe reads, writes, flush and trim in 4 KB pages (ByteFS §4.4).

use amphi_device::{
    BlockDurability, BlockPort, Completion, Device, DurabilityContract, Lpa, PAGE_BYTES, Result, Structure,
};

use crate::core::Core;
use crate::dice::Dice;
use crate::format::{Mapping, PAGE};
use crate::ssd::Ssd;
use crate::stats::{Cause, Command, Counter, Path};

/// What a command in flight will do at completion.
#[derive(Debug)]
enum Work<'a> {
    Read(&'a mut [u8]),
    Write { bufs: &'a [&'a [u8]], turn: usize },
}

/// A block command in flight. It takes effect in [`wait`](Completion::wait), or when it is dropped.
#[derive(Debug)]
pub struct Ticket<'a> {
    core: &'a Core,
    at: Lpa,
    tag: Structure,
    number: u64,
    began: u64,
    done_at: u64,
    work: Option<Work<'a>>,
}

impl Ticket<'_> {
    fn complete(&mut self) -> Result<()> {
        let Some(work) = self.work.take() else { return Ok(()) };
        let core = self.core;
        let called_at = core.timing.now();
        core.timing.wait(self.done_at);
        core.meters.completed();
        let command = if matches!(work, Work::Read(_)) { Command::BlockRead } else { Command::BlockWrite };
        let outcome = self.take_effect(work);
        let device_ns = self.done_at.saturating_sub(self.began);
        core.meters.command(command, Some(self.tag), device_ns, called_at);
        outcome
    }

    fn take_effect(&self, work: Work<'_>) -> Result<()> {
        let core = self.core;
        match work {
            Work::Read(into) => {
                core.power.check()?;
                for (position, page) in into.chunks_exact_mut(PAGE_BYTES).enumerate() {
                    core.read_merged(self.at.0 + position as u64, page)?;
                }
                core.count().transfer(Path::BlockRead, self.tag, into.len() as u64);
                Ok(())
            }
            Work::Write { bufs, turn } => self.write(bufs, turn),
        }
    }

    fn write(&self, bufs: &[&[u8]], turn: usize) -> Result<()> {
        let core = self.core;
        let mut rest = bufs.iter().flat_map(|buf| buf.chunks_exact(PAGE_BYTES));
        let (mut position, mut written, mut late) = (0, 0, 0);
        while let Some(page) = rest.clone().next() {
            let lpa = self.at.0 + position as u64;
            let (mut done, outcome) = match (core.power.check(), &core.cache) {
                (Err(lost), _) => (0, Err(lost)),
                (Ok(()), Some(cache)) => match core.write_page_cached(cache, lpa, page) {
                    Ok(at) => {
                        late = late.max(at);
                        (1, Ok(()))
                    }
                    Err(cause) => (0, Err(cause)),
                },
                (Ok(()), None) => core.write_pages(lpa, rest.clone(), turn.wrapping_add(position)),
            };
            written += done as u64;
            if let Err(cause) = outcome {
                let Some((_, seed)) = core.power.loss() else { return Err(cause) };
                // The first page that did not come through is torn, each its own way.
                if let Some(page) = rest.clone().nth(done) {
                    let torn = position + done;
                    let dice = Dice::part(seed, self.number.wrapping_add((torn as u64) << 32) ^ 1 << 63);
                    core.tear(dice, (self.at.0 + torn as u64) * PAGE, page, core.tick());
                }
                done += 1;
            }
            position += done;
            rest.by_ref().take(done).for_each(drop);
        }
        if core.cache.is_none() {
            core.count().flash_write(Cause::Host, written);
        }
        core.timing.wait(late);
        core.power.check()?;
        core.count().transfer(Path::BlockWrite, self.tag, written * PAGE);
        Ok(())
    }
}

impl Completion for Ticket<'_> {
    fn done_at_ns(&self) -> u64 {
        self.done_at
    }

    fn wait(mut self) -> Result<()> {
        self.complete()
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        // Whoever drops a ticket does not want to know.
        let _ = self.complete();
    }
}

impl Core {
    /// A block read's page: from flash, merged with the log's newer chunks (ByteFS §4.4).
    fn read_merged(&self, lpa: u64, into: &mut [u8]) -> Result<()> {
        if let Some(cache) = &self.cache {
            return self.load_cached(cache, lpa, 0, into, true).map(|_| ());
        }
        let (partition, page) = self.partition(lpa);
        let index = partition.index.read();
        self.read_flash(lpa, 0, into)?;
        self.overlay(index.chunks(page), 0, into);
        Ok(())
    }

    fn book_read(&self, start: u64, at: Lpa, pages: u64) -> u64 {
        let mut mapped = 0;
        let mut ready = start;
        for lpa in at.0..at.0 + pages {
            if let Some(cached) = self.cached_at(lpa) {
                ready = ready.max(cached);
            } else if let Mapping::At(page) = self.mapping(lpa) {
                mapped += 1;
                ready = ready.max(self.time_page_read(Cause::Host, start, page));
            }
        }
        if mapped > 0 && self.cache.is_none() {
            self.count().flash_read(Cause::Host, mapped);
        }
        self.timing.to_host(ready, pages * PAGE)
    }

    fn book_write(&self, start: u64, pages: u64, turn: usize) -> Result<u64> {
        let arrived = self.timing.to_device(start, pages * PAGE);
        if let Some(cache) = &self.cache {
            return Ok(arrived.max(self.make_room(cache, pages)?));
        }
        if self.timing.is_free() {
            return Ok(0);
        }
        Ok((0..pages as usize).fold(arrived, |admitted, page| {
            let die = self.blocks.die_of_turn(turn.wrapping_add(page));
            admitted.max(self.time_program(Cause::Host, arrived, die))
        }))
    }

    fn trim_pages(&self, at: Lpa, pages: u64) -> Result<()> {
        let end = at.0 + pages;
        let mut lpa = at.0;
        while lpa < end {
            let (partition, first) = self.partition(lpa);
            let in_partition = (self.layout.partition_pages - u64::from(first)).min(end - lpa);
            let noted = {
                let mut index = partition.index.write();
                let noted = self.trim_part(&mut index, lpa, in_partition, first)?;
                if noted && self.cache.is_some() {
                    (lpa..lpa + in_partition).try_for_each(|page| self.drop_cached(page))?;
                }
                noted
            };
            if noted {
                lpa += in_partition;
            } else {
                // The trim log is full; a checkpoint empties it.
                self.checkpoint()?;
            }
        }
        Ok(())
    }
}

impl Device for Ssd {
    fn capacity_pages(&self) -> u64 {
        self.core().layout.capacity_pages
    }

    fn contract(&self) -> DurabilityContract {
        self.core().contract
    }
}

impl BlockPort for Ssd {
    type Ticket<'a> = Ticket<'a>;

    fn submit_read<'a>(&'a self, at: Lpa, into: &'a mut [u8], tag: Structure) -> Result<Ticket<'a>> {
        let core = self.core();
        core.power.command()?;
        core.check_pages("block read", at, into.len())?;
        let began = core.timing.now();
        let slot = core.timing.enter_queue();
        let read_at = core.book_read(core.timing.fetch_command(), at, (into.len() / PAGE_BYTES) as u64);
        let done_at = core.timing.complete(slot, read_at);
        core.meters.submitted();
        let work = Some(Work::Read(into));
        Ok(Ticket { core, at, tag, number: core.power.ticket(), began, done_at, work })
    }

    fn submit_write<'a>(&'a self, at: Lpa, bufs: &'a [&'a [u8]], tag: Structure) -> Result<Ticket<'a>> {
        let core = self.core();
        core.power.command()?;
        let mut bytes = 0_usize;
        for buf in bufs {
            core.check_pages("block write", at, buf.len())?;
            bytes = bytes.saturating_add(buf.len());
        }
        core.check_pages("block write", at, bytes)?;
        let turn = core.blocks.take_turns(bytes / PAGE_BYTES);
        let began = core.timing.now();
        let slot = core.timing.enter_queue();
        let admitted = core.book_write(core.timing.fetch_command(), (bytes / PAGE_BYTES) as u64, turn)?;
        let done_at = core.timing.complete(slot, admitted);
        core.meters.submitted();
        let work = Some(Work::Write { bufs, turn });
        Ok(Ticket { core, at, tag, number: core.power.ticket(), began, done_at, work })
    }

    fn flush(&self) -> Result<()> {
        let core = self.core();
        core.power.command()?;
        core.measured(Command::Flush, || {
            core.timing.wait(core.timing.command());
            if core.contract.block_durability == BlockDurability::Flush {
                core.timing.wait(core.timing.all_programmed());
                core.power.check()?;
                core.flush_cache();
            }
            core.power.check()
        })
    }

    fn trim(&self, at: Lpa, pages: u64) -> Result<()> {
        let core = self.core();
        core.power.command()?;
        core.check_page_count("trim", at, pages)?;
        core.measured(Command::Trim, || {
            core.timing.wait(core.timing.command());
            core.trim_pages(at, pages)
        })?;
        core.count().add(Counter::PagesTrimmed, pages);
        Ok(())
    }
}
