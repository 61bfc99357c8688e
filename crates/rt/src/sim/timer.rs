//! When a waiting task runs again.

use super::task::{Slot, Task};
use std::cmp::Reverse;

/// A moment at which a waiting task runs again: time, slot and generation in one number, so that the heap
/// compares once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer(Reverse<u128>);

impl Timer {
    pub(super) fn new(at: u64, slot: Slot, generation: u32) -> Self {
        Self(Reverse(u128::from(at) << 64 | u128::from(slot) << 32 | u128::from(generation)))
    }

    pub(super) fn at(self) -> u64 {
        (self.0.0 >> 64) as u64
    }

    pub(super) fn slot(self) -> Slot {
        (self.0.0 >> 32) as Slot
    }

    pub(super) fn is_stale(self, tasks: &[Task]) -> bool {
        let task = &tasks[self.slot() as usize];
        !task.alive || task.generation != self.0.0 as u32
    }
}
