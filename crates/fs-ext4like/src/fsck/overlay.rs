//! A device as it would be with its journal replayed: what a check reads, so that it changes nothing.

use std::sync::Arc;

use amphi_device::{
    BlockPort, Completion, Device, DurabilityContract, Error, Lpa, PAGE_BYTES, Result, Structure,
};
use amphi_volume::Error as MountError;

use crate::format::Layout;
use crate::journal::replay::{self, Log};

/// The device, with what its journal holds over it.
pub struct Overlay<D> {
    device: Arc<D>,
    layout: Layout,
    log: Log,
}

/// A command that is done already.
pub struct Done(Result<()>);

impl Completion for Done {
    fn done_at_ns(&self) -> u64 {
        amphi_rt::time::now_ns()
    }

    fn wait(self) -> Result<()> {
        self.0
    }
}

impl<D: BlockPort> Overlay<D> {
    /// The device under a log.
    pub const fn new(device: Arc<D>, layout: Layout, log: Log) -> Self {
        Self { device, layout, log }
    }

    fn read_page(&self, lba: u64, page: &mut [u8], tag: Structure) -> Result<()> {
        let Some((at, escaped)) = self.log.copies.get(&lba) else {
            return self.device.read(Lpa(lba), page, tag);
        };
        match replay::copy(&*self.device, &self.layout, *at, *escaped) {
            Ok(block) => {
                page.copy_from_slice(&block[..]);
                Ok(())
            }
            Err(MountError::Device(error)) => Err(error),
            Err(_) => Err(Error::Media(Lpa(lba))),
        }
    }
}

impl<D: BlockPort> Device for Overlay<D> {
    fn capacity_pages(&self) -> u64 {
        self.device.capacity_pages()
    }

    fn contract(&self) -> DurabilityContract {
        self.device.contract()
    }
}

impl<D: BlockPort> BlockPort for Overlay<D> {
    type Ticket<'t>
        = Done
    where
        Self: 't;

    fn submit_read<'t>(&'t self, at: Lpa, into: &'t mut [u8], tag: Structure) -> Result<Done> {
        let pages = at.0..at.0 + (into.len() / PAGE_BYTES) as u64;
        if self.log.copies.range(pages.clone()).next().is_none() {
            return Ok(Done(self.device.read(at, into, tag)));
        }
        let chunks = into.chunks_mut(PAGE_BYTES);
        Ok(Done(pages.zip(chunks).try_for_each(|(lba, page)| self.read_page(lba, page, tag))))
    }

    fn submit_write<'t>(&'t self, _: Lpa, _: &'t [&'t [u8]], _: Structure) -> Result<Done> {
        Err(Error::Unsupported("writing during a check"))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn trim(&self, _: Lpa, _: u64) -> Result<()> {
        Err(Error::Unsupported("trimming during a check"))
    }
}
