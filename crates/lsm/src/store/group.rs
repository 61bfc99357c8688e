//! Writing in groups, as stores do that AugeFS is held against (§II-C): one task writes what all wait for.
//!
//! It is there to be measured beside the parallel path, and for nothing else. What tasks ask for while a
//! group is being written is the next group; whoever finds nobody writing leads it, and the others wait for
//! it.

use amphi_device::{BlockPort, MemoryArea};
use amphi_rt::sync::{Condvar, Mutex};

use super::Store;
use crate::batch::Batch;
use crate::{Error, Result};

/// Writes that wait for each other.
#[derive(Debug, Default)]
pub(super) struct Groups {
    queue: Mutex<Queue>,
    /// A group has been written.
    written: Condvar,
}

/// What is guarded of them.
#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Batch>,
    /// Batches that have come.
    came: u64,
    /// Batches that were written, the first ones of those that came.
    done: u64,
    leading: bool,
    failed: Option<Error>,
}

impl<D: BlockPort + MemoryArea + 'static> Store<D> {
    /// Makes a batch durable with those of others, by one entry of the log for all of them.
    pub(super) fn write_with_others(&self, batch: &Batch) -> Result<()> {
        let groups = &self.shared.groups;
        let mut queue = groups.queue.lock();
        let number = queue.came;
        queue.came += 1;
        queue.waiting.push(batch.clone());
        loop {
            if queue.done > number {
                return Ok(());
            }
            if let Some(error) = &queue.failed {
                return Err(error.clone());
            }
            if queue.leading {
                groups.written.wait(&mut queue);
                continue;
            }
            queue.leading = true;
            let (mut group, mut taken) = (Batch::new(), 0);
            for batch in &queue.waiting {
                if taken > 0 && !group.has_room_for(batch, self.shared.log.content_max()) {
                    break;
                }
                group.append(batch);
                taken += 1;
            }
            queue.waiting.drain(..taken);
            drop(queue);
            let outcome = self.write_alone(&group);
            queue = groups.queue.lock();
            queue.leading = false;
            match outcome {
                Ok(()) => queue.done += taken as u64,
                Err(error) => queue.failed = Some(error),
            }
            groups.written.notify_all();
        }
    }
}
