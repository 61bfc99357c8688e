//! The block port: NVMe read, write, flush and dataset management (trim), in 4 KB pages.

use crate::{Device, Lpa, Result, Structure};

/// A command in flight. Submitting and waiting are separate so that a caller can overlap two paths or batch.
///
/// The command takes effect when it completes, inside [`wait`](Completion::wait) (or when the ticket is
/// dropped, which waits too). A host crash or power loss before that leaves a write torn, dropped or kept, as
/// the [`DurabilityContract`](crate::DurabilityContract) allows.
#[must_use = "a command completes only when it is waited for"]
pub trait Completion {
    /// When the device will have completed the command, in nanoseconds of `rt` time.
    fn done_at_ns(&self) -> u64;

    /// Sleeps until the command completes and returns its outcome.
    ///
    /// # Errors
    /// Whatever the command met on the medium: [`Error::Media`](crate::Error::Media) for an uncorrectable
    /// page, [`Error::NoSpace`](crate::Error::NoSpace) when the image's host disk is full, and so on.
    fn wait(self) -> Result<()>;
}

/// The block interface of an SSD.
///
/// All lengths must be non-zero multiples of 4096 and all ranges inside the device; otherwise the command is
/// refused with [`Error::Misaligned`](crate::Error::Misaligned) or
/// [`Error::OutOfRange`](crate::Error::OutOfRange) and has no effect.
pub trait BlockPort: Device + 'static {
    /// The ticket of a submitted command; it borrows the command's buffers until completion.
    type Ticket<'a>: Completion
    where
        Self: 'a;

    /// Submits one read of `into.len() / 4096` pages starting at `at`. Pages never written read as zeros.
    ///
    /// # Errors
    /// Refusal of a malformed command; media errors come from the ticket.
    fn submit_read<'a>(&'a self, at: Lpa, into: &'a mut [u8], tag: Structure) -> Result<Self::Ticket<'a>>;

    /// Submits one write of the concatenation of `bufs` (each a multiple of 4096 bytes) starting at `at`.
    ///
    /// # Errors
    /// Refusal of a malformed command; media errors come from the ticket.
    fn submit_write<'a>(&'a self, at: Lpa, bufs: &'a [&'a [u8]], tag: Structure) -> Result<Self::Ticket<'a>>;

    /// Makes every completed write durable. A no-op where the contract says that completion is durability.
    ///
    /// # Errors
    /// A media error while the device empties its volatile cache.
    fn flush(&self) -> Result<()>;

    /// Declares `pages` pages from `at` unused; they read as zeros afterwards. Not ordered with writes in
    /// flight.
    ///
    /// # Errors
    /// Refusal of a malformed command.
    fn trim(&self, at: Lpa, pages: u64) -> Result<()>;

    /// Reads and waits. See [`submit_read`](BlockPort::submit_read).
    ///
    /// # Errors
    /// As for the submission and the completion.
    fn read(&self, at: Lpa, into: &mut [u8], tag: Structure) -> Result<()> {
        self.submit_read(at, into, tag)?.wait()
    }

    /// Writes one buffer and waits. See [`submit_write`](BlockPort::submit_write).
    ///
    /// # Errors
    /// As for the submission and the completion.
    fn write(&self, at: Lpa, data: &[u8], tag: Structure) -> Result<()> {
        self.submit_write(at, &[data], tag)?.wait()
    }
}
