//! What reached the device, request by request: a port that writes down every request before it passes it on.
//!
//! One line of text each, in the order of submission: when (ns of `rt` time), what (`R`ead, `W`rite, `F`lush,
//! `T`rim), the first page, how many pages, and the structure that the request serves, as far as its sender
//! says: what the kernel sends is `other`. A flush says 0 for both numbers. A line is in the file before the
//! device has the request, so whoever has waited for a request finds its line.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use amphi_device::{
    BlockPort, Device, DurabilityContract, Lpa, PAGE_BYTES, Result as DeviceResult, Structure,
};
use amphi_rt::time;

/// A port whose requests are written down.
#[derive(Debug)]
pub struct Recorded<P> {
    port: Arc<P>,
    /// Opened to append, so that lines of several threads do not mix.
    record: File,
}

impl<P> Recorded<P> {
    /// Writes the requests to `port` into `record`, which has been opened to append.
    #[must_use]
    pub const fn new(port: Arc<P>, record: File) -> Self {
        Self { port, record }
    }

    fn line(&self, what: char, at: u64, pages: u64, tag: Structure) {
        let line = format!("{} {what} {at} {pages} {}\n", time::now_ns(), tag.name());
        if let Err(error) = (&self.record).write_all(line.as_bytes()) {
            tracing::error!("a request is missing in the record: {error}");
        }
    }
}

impl<P: Device> Device for Recorded<P> {
    fn capacity_pages(&self) -> u64 {
        self.port.capacity_pages()
    }

    fn contract(&self) -> DurabilityContract {
        self.port.contract()
    }
}

impl<P: BlockPort> BlockPort for Recorded<P> {
    type Ticket<'a>
        = P::Ticket<'a>
    where
        Self: 'a;

    fn submit_read<'a>(
        &'a self,
        at: Lpa,
        into: &'a mut [u8],
        tag: Structure,
    ) -> DeviceResult<Self::Ticket<'a>> {
        self.line('R', at.0, (into.len() / PAGE_BYTES) as u64, tag);
        self.port.submit_read(at, into, tag)
    }

    fn submit_write<'a>(
        &'a self,
        at: Lpa,
        bufs: &'a [&'a [u8]],
        tag: Structure,
    ) -> DeviceResult<Self::Ticket<'a>> {
        let bytes: usize = bufs.iter().map(|buf| buf.len()).sum();
        self.line('W', at.0, (bytes / PAGE_BYTES) as u64, tag);
        self.port.submit_write(at, bufs, tag)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.line('F', 0, 0, Structure::Other);
        self.port.flush()
    }

    fn trim(&self, at: Lpa, pages: u64) -> DeviceResult<()> {
        self.line('T', at.0, pages, Structure::Other);
        self.port.trim(at, pages)
    }
}
