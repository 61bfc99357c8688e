//! Threads for the block path, as the paper has them (§3.3): each serves data blocks of its own, interleaved,
//! and the caller's task waits for them once the memory path is done.
//!
//! A device whose commands are submitted and waited for apart needs no threads, and none are made unless the
//! mount asks for some. They get copies of the data: the caller's buffer is the caller's.

use std::sync::Arc;

use amphi_device::{BlockPort, Lpa, PAGE_BYTES, Structure};
use amphi_rt::sync::{Sender, channel};
use amphi_rt::task::{self, JoinHandle};
use amphi_vfs::{Error, Failure, Result};
use amphi_volume::io_error;

/// Commands that wait for a thread, before their senders wait.
const QUEUE: usize = 64;

struct Command {
    at: Lpa,
    bytes: Vec<u8>,
    done: Sender<Result<()>>,
}

/// The threads.
#[derive(Default)]
pub struct IoThreads {
    threads: Vec<(Sender<Command>, JoinHandle<()>)>,
}

impl IoThreads {
    /// So many threads for a device.
    pub fn start<D: BlockPort + 'static>(device: &Arc<D>, count: usize) -> Self {
        let thread = |number: usize| {
            let (sender, receiver) = channel::<Command>(QUEUE);
            let device = Arc::clone(device);
            let task = task::spawn(&format!("romefs-io-{number}"), move || {
                while let Ok(Command { at, bytes, done }) = receiver.receive() {
                    let written = device.write(at, &bytes, Structure::Data).map_err(io_error);
                    // Who does not wait any more has met another error.
                    let _nobody_waits = done.send(written);
                }
            });
            (sender, task)
        };
        Self { threads: (0..count).map(thread).collect() }
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.threads.is_empty()
    }

    /// Has blocks of `block_bytes` written, each by the thread that serves it, runs `meanwhile`, and waits.
    ///
    /// # Errors
    /// The first that a thread or `meanwhile` met.
    pub fn write<'a>(
        &self,
        puts: impl Iterator<Item = (Lpa, &'a [u8])>,
        block_bytes: usize,
        meanwhile: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let block_pages = (block_bytes / PAGE_BYTES) as u64;
        let mut waiting = Vec::new();
        for (first, bytes) in puts {
            for (number, bytes) in (0..).zip(bytes.chunks(block_bytes)) {
                let at = first.plus(number * block_pages);
                let (done, outcome) = channel(1);
                let thread = (at.0 / block_pages) as usize % self.threads.len();
                let command = Command { at, bytes: bytes.to_vec(), done };
                self.threads[thread].0.send(command).map_err(|_| gone())?;
                waiting.push(outcome);
            }
        }
        let done = meanwhile();
        // All of them, so that nobody writes any more once this returns.
        let written: Vec<_> = waiting.into_iter().map(|outcome| outcome.receive()).collect();
        done?;
        written.into_iter().try_for_each(|written| written.map_err(|_| gone())?)
    }
}

impl Drop for IoThreads {
    /// Ends the threads, also those of a mount that has failed: none holds the device any more.
    fn drop(&mut self) {
        for (sender, task) in self.threads.drain(..) {
            drop(sender);
            task.join();
        }
    }
}

fn gone() -> Error {
    Error::Io(Failure::Stuck("a thread of the block path has ended"))
}
