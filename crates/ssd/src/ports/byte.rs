//! The byte port: loads and stores over the mapped device (ByteFS §4.2, §4.4).

use amphi_device::{ByteDurability, BytePort, Error, PAGE_BYTES, Result, Structure, TxId};

use crate::core::{Core, lines};
use crate::format::PAGE;
use crate::planted::{self, Bug};
use crate::ssd::Ssd;
use crate::stats::{Cause, Command, Counter, Path};

impl BytePort for Ssd {
    fn load(&self, at: u64, into: &mut [u8], tag: Structure) -> Result<()> {
        let core = self.core();
        core.power.command()?;
        core.check_bytes("load", at, into.len())?;
        let start = core.timing.now();
        let mut done = core.timing.load_lines(start, lines(at, into.len()));
        let (mut at_byte, mut rest) = (at, &mut *into);
        while !rest.is_empty() {
            let offset = (at_byte % PAGE) as usize;
            let (part, after) = rest.split_at_mut((PAGE_BYTES - offset).min(rest.len()));
            let lpa = at_byte / PAGE;
            if let Some(cache) = &core.cache {
                let ready = core.load_cached(cache, lpa, offset, part, false)?;
                done = done.max(ready + (done - start));
            } else if core.read_newest(lpa, offset, part)? && !core.timing.is_free() {
                // The lines wait for their flash page.
                let flash = core.time_lpa_read(Cause::Host, start, lpa);
                done = done.max(flash + (done - start));
            }
            at_byte += part.len() as u64;
            rest = after;
        }
        core.overlay_staged(at, into);
        core.count().transfer(Path::ByteRead, tag, into.len() as u64);
        core.wait_for(Command::Load, Some(tag), start, done);
        Ok(())
    }

    fn store(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()> {
        let core = self.core();
        core.power.command()?;
        core.check_bytes("store", at, data.len())?;
        if data.is_empty() {
            return Ok(());
        }
        if tx.is_some() {
            core.check_log()?;
        }
        let offset = (at % PAGE) as usize;
        if offset + data.len() > PAGE_BYTES {
            return Err(Error::Misaligned {
                what: "store",
                value: at,
                expected: "an address from which the store stays within one 4096 B page",
            });
        }
        core.stage(at, data, tx.map_or(0, TxId::get), tag)
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
        core.post_staged();
        if core.contract.byte_durability == ByteDurability::Fence {
            // Global persistent flush: the fence itself waits for the device, and has nobody to tell of a failure.
            if let Err(cause) = drain(core, Command::Fence) {
                core.keep_failure(cause);
            }
        }
    }

    fn verify_read(&self) -> Result<()> {
        let core = self.core();
        core.power.command()?;
        core.count().add(Counter::VerifyReads, 1);
        match core.contract.byte_durability {
            ByteDurability::VerifyRead => drain(core, Command::VerifyRead),
            // Everything posted has arrived already.
            ByteDurability::Fence => core.take_failure(),
        }
    }
}

/// Waits until what the calling task has posted arrives, and takes it into the log.
fn drain(core: &Core, command: Command) -> Result<()> {
    if planted::has(Bug::VerifyReadReturnsEarly) {
        return Ok(());
    }
    // How much it is matters only where it takes time: asking is one lock more.
    if core.timing.is_free() {
        return core.drain();
    }
    let began = core.timing.now();
    let done = core.timing.verify_lines(core.posted_lines());
    core.timing.wait(done);
    core.power.check()?;
    let outcome = core.drain();
    core.meters.command(command, None, done - began, began);
    outcome
}
