//! The byte port: loads and stores over the mapped device (ByteFS §4.2, §4.4).

use amphi_device::{ByteDurability, BytePort, Error, PAGE_BYTES, Result, Structure, TxId};

use crate::core::lines;
use crate::format::PAGE;
use crate::ssd::Ssd;
use crate::stats::{Counter, Path};

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
            if core.read_newest(lpa, offset, part)? && !core.timing.is_free() {
                // The lines wait for their flash page.
                let flash = core.timing.read_page(start, core.die_of_lpa(lpa));
                done = done.max(flash + (done - start));
            }
            at_byte += part.len() as u64;
            rest = after;
        }
        core.overlay_staged(at, into);
        core.count().transfer(Path::ByteRead, tag, into.len() as u64);
        core.timing.wait(done);
        Ok(())
    }

    fn store(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()> {
        let core = self.core();
        core.power.command()?;
        core.check_bytes("store", at, data.len())?;
        if data.is_empty() {
            return Ok(());
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
        if core.power.command().is_ok() {
            core.post_staged();
        }
    }

    fn verify_read(&self) -> Result<()> {
        let core = self.core();
        core.power.command()?;
        let mut failure = None;
        // Asked only where the answer matters: it is one lock more.
        if !core.timing.is_free() || core.contract.byte_durability == ByteDurability::Fence {
            let posted;
            (posted, failure) = core.posted_lines();
            core.timing.wait(core.timing.verify_lines(posted));
            core.power.check()?;
        }
        core.drain()?;
        core.count().add(Counter::VerifyReads, 1);
        failure.map_or(Ok(()), Err)
    }
}
