//! The byte port: loads and stores on the mapped window (ByteFS §4.2, §4.4), and what the window shows.

use amphi_device::{
    ByteDurability, BytePort, Error, MemoryArea, MemoryPromise, PAGE_BYTES, PageView, Result, Structure, TxId,
};

use crate::core::Core;
use crate::format::PAGE;
use crate::personality::Personality;
use crate::planted::{self, Bug};
use crate::ssd::Ssd;
use crate::stats::{Command, Counter, Path};

impl BytePort for Ssd {
    fn bytes(&self) -> u64 {
        self.core().window_bytes()
    }

    fn load(&self, at: u64, into: &mut [u8], tag: Structure) -> Result<()> {
        let core = self.core();
        core.power.command()?;
        core.check_bytes("load", at, into.len())?;
        let start = core.timing.now();
        let done = core.load_bytes(start, at, into)?;
        let done = done.max(core.timing.load(start, at, into.len() as u64) + (done - start));
        core.overlay_staged(at, into);
        core.count().transfer(Path::ByteRead, tag, into.len() as u64);
        core.wait_for(Command::Load, Some(tag), start, done);
        Ok(())
    }

    fn load_dma(&self, at: u64, into: &mut [u8], tag: Structure) -> Result<()> {
        let core = self.core();
        core.power.command()?;
        core.check_bytes("DMA read", at, into.len())?;
        if core.profile.link.dma_read_ns == 0 {
            return Err(Error::Unsupported("reads of byte ranges by DMA"));
        }
        let began = core.timing.now();
        let slot = core.timing.enter_queue();
        let ready = core.load_bytes(core.timing.fetch_command(), at, into)?;
        let done = core.timing.complete(slot, core.timing.dma_to_host(ready, into.len() as u64));
        core.count().transfer(Path::ByteRead, tag, into.len() as u64);
        core.wait_for(Command::DmaRead, Some(tag), began, done);
        core.power.check()
    }

    fn store(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()> {
        stage(self.core(), at, data, tx, tag, false)
    }

    fn store_flushed(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()> {
        let core = self.core();
        if !core.power.is_armed() {
            return stage(core, at, data, tx, tag, true);
        }
        // Two commands, between which the power may fail.
        self.store(at, data, tx, tag)?;
        self.flush_lines(at, data.len());
        Ok(())
    }

    fn flush_lines(&self, at: u64, len: usize) {
        let core = self.core();
        if core.power.command().is_ok() {
            core.flush_staged(at, len);
        }
    }

    fn fence(&self) {
        let core = self.core();
        if core.power.command().is_err() {
            return;
        }
        let lines = core.post_staged();
        core.timing.wait(core.timing.post_lines(lines));
        if core.contract.byte_durability == ByteDurability::Fence {
            // Global persistent flush: the fence itself waits for the device, and has nobody to tell of a
            // failure.
            if let Err(cause) = drain(core, Command::Fence) {
                core.keep_failure(cause);
            }
        }
    }

    fn verify_read(&self) -> Result<()> {
        let core = self.core();
        core.power.command()?;
        match core.contract.byte_durability {
            ByteDurability::VerifyRead => {
                core.count().add(Counter::VerifyReads, 1);
                drain(core, Command::VerifyRead)
            }
            // Everything posted has arrived already, and nothing is read.
            ByteDurability::Fence => core.take_failure(),
        }
    }
}

impl PageView for Ssd {
    fn check_page_view(&self) -> Result<()> {
        match self.core().personality {
            Personality::Log(_) | Personality::PageCache(_) => Ok(()),
            Personality::Memory(_) => {
                Err(Error::Unsupported("reaching its pages by bytes: its window is a memory area of its own"))
            }
            Personality::BaBuffer(_) => Err(Error::Unsupported(
                "reaching all pages by bytes: its window is a BA-buffer, which shows those pinned",
            )),
        }
    }
}

impl MemoryArea for Ssd {
    fn memory(&self) -> Result<MemoryPromise> {
        let core = self.core();
        match core.personality {
            Personality::Log(_) | Personality::PageCache(_) => {
                Err(Error::Unsupported("a memory area: its window shows the pages of its block side"))
            }
            Personality::BaBuffer(_) => Err(Error::Unsupported(
                "a memory area: its window is a BA-buffer, which pins load pages into",
            )),
            Personality::Memory(_) => Ok(MemoryPromise {
                bytes: core.window_bytes(),
                store_atomic_bytes: core.contract.store_atomic_bytes,
                durability: core.contract.byte_durability,
            }),
        }
    }
}

/// Stages a store of the calling task, with its lines written back if `flushed`.
fn stage(core: &Core, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure, flushed: bool) -> Result<()> {
    core.power.command()?;
    core.check_bytes("store", at, data.len())?;
    if data.is_empty() {
        return Ok(());
    }
    if tx.is_some() {
        core.log()?;
    }
    let offset = (at % PAGE) as usize;
    if offset + data.len() > PAGE_BYTES {
        return Err(Error::Misaligned {
            what: "store",
            value: at,
            expected: "an address from which the store stays within one 4096 B page",
        });
    }
    core.stage(at, data, tx.map_or(0, TxId::get), tag, flushed)
}

/// Waits until what the calling task has posted arrives, and has the firmware take it in.
fn drain(core: &Core, command: Command) -> Result<()> {
    if planted::has(Bug::VerifyReadReturnsEarly) {
        return Ok(());
    }
    // How much it is matters only where it takes time: asking is one lock more.
    if core.timing.is_free() {
        return core.drain();
    }
    let began = core.timing.now();
    let (lines, stores) = core.posted();
    let done = core.timing.verify_lines(lines, stores);
    core.timing.wait(done);
    core.power.check()?;
    let outcome = core.drain();
    core.meters.command(command, None, done - began, began);
    outcome
}
