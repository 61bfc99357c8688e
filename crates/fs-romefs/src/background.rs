//! The background task: checkpoints before the journal is full, and write-back before the memory zone is.

use amphi_device::{BlockPort, MemoryArea};
use amphi_rt::task;

use crate::core::Core;
use crate::{checkpoint, lazy, writeback};

/// Blocks that are written back between two looks at whether to stop.
const BLOCKS_AT_A_TIME: usize = 4;
/// Tasks that write back beside each other: a block is read and written by commands that wait for flash, and
/// an SSD has many of its chips idle while one task waits.
const WRITERS: usize = 4;
/// Free log pages, in hundredths beyond the limit, at which write-back ends.
const ENOUGH_PERCENT: u64 = 5;

/// What the task does until it is told to stop.
pub fn run<D: BlockPort + MemoryArea>(core: &Core<D>) {
    while core.background.wait(core.options.checkpoint_interval_ns).is_some() {
        if core.names.health.writable().is_err() {
            continue;
        }
        // Whatever fails here, the next operation meets too; `fsync` does.
        let _reported_by_fsync = lazy::flush_all(core);
        let _reported_by_the_next_operation = checkpoint::checkpoint(core);
        write_back_until_enough(core);
    }
}

fn write_back_until_enough<D: BlockPort + MemoryArea>(core: &Core<D>) {
    let pool = core.pool(crate::format::Map::Logs);
    let enough =
        |free: u64| free * 100 >= pool.bits() * (core.options.write_back_below_percent + ENOUGH_PERCENT);
    if !core.logs_are_scarce() {
        return;
    }
    let write = || {
        while !enough(pool.free()) && !core.background.is_stopped() {
            if !writeback::write_back_largest(core, BLOCKS_AT_A_TIME).is_ok_and(|written| written > 0) {
                return;
            }
        }
    };
    task::scope(|scope| {
        for _ in 1..WRITERS {
            let _joined_by_the_scope = scope.spawn("romefs-write-back", write);
        }
        write();
    });
}
