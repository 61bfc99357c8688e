//! The block port: NVMe reads, writes, flush and trim in 4 KB pages (ByteFS §4.4).

use amphi_device::{
    BlockDurability, BlockPort, Completion, Device, DurabilityContract, Lpa, PAGE_BYTES, Result, Structure,
};

use crate::core::Core;
use crate::dice::Dice;
use crate::format::PAGE;
use crate::ssd::Ssd;
use crate::stats::{Command, Counter, Path};

/// What a command in flight will do at completion.
#[derive(Debug)]
enum Work<'a> {
    Read(&'a mut [u8]),
    Write { bufs: &'a [&'a [u8]], turn: usize },
}

impl Work<'_> {
    /// How many pages it is about.
    fn pages(&self) -> u64 {
        let bytes = match self {
            Work::Read(into) => into.len(),
            Work::Write { bufs, .. } => bufs.iter().map(|buf| buf.len()).sum(),
        };
        (bytes / PAGE_BYTES) as u64
    }
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
        let _pass = core.pass_checker(self.at, work.pages())?;
        match work {
            Work::Read(into) => {
                core.power.check()?;
                for (position, page) in into.chunks_exact_mut(PAGE_BYTES).enumerate() {
                    core.read_page(self.at.0 + position as u64, page)?;
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
        while rest.clone().next().is_some() {
            let lpa = self.at.0 + position as u64;
            let (mut done, at, outcome) = core.write_some(lpa, rest.clone(), turn.wrapping_add(position));
            late = late.max(at);
            written += done as u64;
            if let Err(cause) = outcome {
                let Some((_, seed)) = core.power.loss() else { return Err(cause) };
                // The first page that did not come through is torn, each its own way.
                if let Some(page) = rest.clone().nth(done) {
                    let torn = position + done;
                    let dice = Dice::part(seed, self.number.wrapping_add((torn as u64) << 32) ^ 1 << 63);
                    core.tear(dice, self.at.plus(torn as u64), page, core.tick());
                }
                done += 1;
            }
            position += done;
            rest.by_ref().take(done).for_each(drop);
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
    fn book_read(&self, start: u64, at: Lpa, pages: u64) -> u64 {
        let ready = self.book_pages(start, at.0..at.0 + pages);
        self.timing.to_host(ready, pages * PAGE)
    }

    fn book_write(&self, start: u64, pages: u64, turn: usize) -> Result<u64> {
        let arrived = self.timing.to_device(start, pages * PAGE);
        self.book_admission(arrived, pages, turn)
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
                if noted {
                    self.forget_pages(lpa..lpa + in_partition)?;
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
        core.pass_checker(at, (into.len() / PAGE_BYTES) as u64)?;
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
        core.pass_checker(at, (bytes / PAGE_BYTES) as u64)?;
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
            let _pass = core.pass_checker(at, pages)?;
            core.trim_pages(at, pages)
        })?;
        core.count().add(Counter::PagesTrimmed, pages);
        Ok(())
    }
}
