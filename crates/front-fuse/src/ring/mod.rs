//! Requests that come through io_uring, where the kernel has a queue for every processor: a program's request
//! goes to the queue of the processor it runs on, and is served by a thread that stays there. Nobody has to
//! wake another processor, which on a virtual machine takes longer than the request itself.
//!
//! Forgotten inodes and interrupts still come through `/dev/fuse`, so fuser's session stays, with one thread.
//!
//! Each queue has several threads, and each of them one entry. The kernel gives a request to the entry that
//! became free last, so one program on a processor is served by one thread whose memory is in the cache; the
//! others wake only while that one is busy: with a request that waits for the device, for room, or for a
//! lock. What they wait for never waits for a request of the same queue: forgotten inodes, which give room
//! back, come the other way, and a lock is held by who is being served already.
//!
//! The kernel lets requests in as soon as each queue has one entry, and a request that had to wait goes to an
//! entry that has answered another one, never to one that is registered later. So a mount is not handed out
//! before all entries are registered: else the first programs could fill the queue of one entry while three
//! stand idle.

pub(crate) mod dispatch;
pub(crate) mod format;
mod queue;

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use amphi_rt::sync::{Sender, channel};
use amphi_rt::task::{self, JoinHandle};
use amphi_vfs::FileSystem;
use fuser::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::negotiate::WRITE_BYTES_MAX;
use crate::operations::Operations;
use queue::Queue;

/// Threads of a queue, each with one entry. At most so many requests of one processor's programs are under
/// way at once; more wait in the kernel.
const THREADS_PER_QUEUE: usize = 4;

/// What an entry has room for, in bytes: the largest write, which is no less than what the kernel asks for.
/// It takes memory as far as requests have used it, and a huge page of 2 MiB once they were large: at most
/// that for each thread, 8 MiB for each processor.
const PAYLOAD_BYTES: usize = WRITE_BYTES_MAX as usize;

/// Where the kernel says which processors it could ever have.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Threads to be, with their rings, which the kernel's FUSE driver does not know yet.
pub(crate) struct Rings {
    workers: Vec<Worker>,
}

struct Worker {
    queue: Queue,
    /// Where it runs; anywhere for the queues of processors that this process may not run on, or that are not
    /// there.
    processor: Option<usize>,
}

impl Rings {
    /// Rings for all of the kernel's queues.
    ///
    /// # Errors
    /// The kernel has no io_uring for us, or no memory.
    pub(crate) fn new() -> io::Result<Self> {
        let count = count_of(&std::fs::read_to_string(POSSIBLE)?)
            .ok_or_else(|| io::Error::other(format!("{POSSIBLE} cannot be understood")))?;
        let ours = sched_getaffinity(None)?;
        let (near, far): (Vec<u16>, Vec<u16>) = (0..count).partition(|&qid| is_in(&ours, usize::from(qid)));
        let mut workers = Vec::new();
        let mut add = |qids: &[u16], processor| -> io::Result<()> {
            for _ in 0..THREADS_PER_QUEUE {
                workers.push(Worker { queue: Queue::new(qids, PAYLOAD_BYTES)?, processor });
            }
            Ok(())
        };
        for qid in near {
            add(&[qid], Some(usize::from(qid)))?;
        }
        if !far.is_empty() {
            add(&far, None)?;
        }
        Ok(Self { workers })
    }

    /// Serves requests of the mount of `device` from threads that end with it. Returns when the kernel knows
    /// all their entries.
    pub(crate) fn serve<F: FileSystem + 'static>(
        self,
        device: OwnedFd,
        operations: &Arc<Operations<F>>,
    ) -> Vec<JoinHandle<()>> {
        let device = Arc::new(device);
        operations.removals.are_told_through(Arc::clone(&device));
        let (registered, all_registered) = channel::<Infallible>(1);
        let begin = |worker: Worker| {
            let (device, operations) = (Arc::clone(&device), Arc::clone(operations));
            let registered = registered.clone();
            task::spawn("fuse-ring", move || worker.run(&device, &operations, registered))
        };
        let threads = self.workers.into_iter().map(begin).collect();
        drop(registered);
        // Nothing is ever sent: the channel closes when the last thread lets go of its end.
        let _ = all_registered.receive();
        threads
    }
}

impl Worker {
    /// Lets go of `registered` when the kernel knows its entries, or never will.
    fn run<F: FileSystem>(
        mut self,
        device: &OwnedFd,
        operations: &Operations<F>,
        registered: Sender<Infallible>,
    ) {
        if let Some(processor) = self.processor {
            let mut only = CpuSet::new();
            only.set(processor);
            if let Err(cause) = sched_setaffinity(None, &only) {
                tracing::debug!("a thread for processor {processor} runs elsewhere: {cause}");
            }
        }
        let begun = self.queue.register(device.as_fd());
        drop(registered);
        let ended = begun.and_then(|()| {
            self.queue.serve(|header, fixed, payload, given| {
                let serve = || dispatch::dispatch(operations, header, fixed, payload, given);
                // The panic has said what it was about; the program that asked must not wait for ever.
                catch_unwind(AssertUnwindSafe(serve)).unwrap_or(Err(Errno::EIO))
            })
        });
        if let Err(cause) = ended {
            tracing::error!("a ring of the kernel's FUSE driver cannot be served any more: {cause}");
        }
    }
}

fn is_in(set: &CpuSet, processor: usize) -> bool {
    processor < CpuSet::MAX_CPU && set.is_set(processor)
}

/// How many processors a list such as `0-3,8-11` has.
fn count_of(list: &str) -> Option<u16> {
    let mut count = 0_u16;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        assert_eq!(count_of("0\n"), Some(1));
        assert_eq!(count_of("0-1\n"), Some(2));
        assert_eq!(count_of("0-3,8-11,15\n"), Some(9));
        for bad in ["", "x", "3-1", "0-65535", "0-1,"] {
            assert_eq!(count_of(bad), None, "{bad:?}");
        }
    }
}
