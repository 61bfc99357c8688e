//! Writing in groups, as stores do that AugeFS is held against (§II-C): one task writes what all wait for.
//!
//! It is there to be measured beside the parallel path, and for nothing else. What tasks ask for while as
//! many groups are being written as may be is the next group; whoever finds room for one more leads it, and
//! the others wait for it.

use std::ops::Range;

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
    /// Batches that are of a group, the first ones of those that came.
    taken: u64,
    /// The batches of each group that is being written, or was not written for an error.
    under_way: Vec<Range<u64>>,
    failed: Option<Error>,
}

impl Queue {
    fn is_written(&self, number: u64) -> bool {
        number < self.taken && !self.under_way.iter().any(|group| group.contains(&number))
    }

    /// Takes the next group out of what waits.
    fn take_group(&mut self, content_max: usize) -> (Batch, Range<u64>) {
        let (mut group, mut taken) = (Batch::new(), 0);
        for batch in &self.waiting {
            if taken > 0 && !group.has_room_for(batch, content_max) {
                break;
            }
            group.append(batch);
            taken += 1;
        }
        self.waiting.drain(..taken);
        let numbers = self.taken..self.taken + taken as u64;
        self.taken = numbers.end;
        self.under_way.push(numbers.clone());
        (group, numbers)
    }
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
            if queue.is_written(number) {
                return Ok(());
            }
            if let Some(error) = &queue.failed {
                return Err(error.clone());
            }
            if number < queue.taken || queue.under_way.len() >= self.shared.options.groups {
                groups.written.wait(&mut queue);
                continue;
            }
            let (group, numbers) = queue.take_group(self.shared.log.content_max());
            drop(queue);
            let outcome = self.write_alone(&group);
            queue = groups.queue.lock();
            match outcome {
                Ok(()) => queue.under_way.retain(|group| *group != numbers),
                Err(error) => queue.failed = Some(error),
            }
            groups.written.notify_all();
        }
    }
}
