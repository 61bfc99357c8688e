//! What a write to a file will do, decided with the inode locked and before anything is written: sub-writes
//! on both paths, and the metadata that come with them (RO-4, stages 1 and 2).

use std::ops::Range;

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::{Error, Result};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::format::{INLINE_SLOTS, Map, PAGE, Slot};
use crate::logs;
use crate::merge::{self, Put};
use crate::part::{Inode, State};
use crate::planted::{self, Bug};
use crate::pool::Run;
use crate::split::Part;
use crate::tree::{Leaf, Logs};
use crate::tx::Tx;

/// What is written to data blocks in a row on the device.
pub struct BlockPut {
    /// The first of the device's blocks.
    pub first: u32,
    /// Where the bytes come from.
    pub source: Source,
}

/// Where the bytes of data blocks come from.
pub enum Source {
    /// The caller's buffer, at this range.
    Caller(Range<usize>),
    /// A block is put together anew: what was visible of it, its logs, and bytes of the caller's (RO-8).
    Rewrite(Box<Rewrite>),
}

/// A block that is put together anew.
pub struct Rewrite {
    /// The device's block, and how much of it is visible.
    pub old: Option<(u32, u64)>,
    /// Its logs.
    pub logs: Logs,
    /// Bytes that are new, counted from the block's first, and where the caller's buffer has the first.
    pub new: Option<(Range<u64>, usize)>,
    /// Bytes of the block that hold data afterwards.
    pub valid: u64,
}

/// A put of the memory path, and where the caller's buffer has its first new byte.
pub struct LogPut {
    /// What is stored.
    pub put: Put,
    /// First byte of the caller's buffer.
    pub from: usize,
}

/// What becomes of one data block of the file.
pub struct BlockChange {
    /// Which.
    pub block: u64,
    /// Its slot.
    pub slot: Slot,
    /// Its logs, if they change.
    pub leaf: Option<Leaf>,
}

/// A plan.
#[derive(Default)]
pub struct Plan {
    /// Sub-writes on the block path.
    pub blocks: SmallVec<[BlockPut; 4]>,
    /// Sub-writes on the memory path.
    pub logs: SmallVec<[LogPut; 4]>,
    /// What changes in the file's index.
    pub changes: SmallVec<[BlockChange; 4]>,
    /// By how much the file's data blocks become more.
    pub more_blocks: i64,
    /// By how much its log pages become more.
    pub more_logs: i64,
}

impl Plan {
    /// Adds a part of a write. `from` is where the caller's buffer has its first byte.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::Corrupt`], [`Error::Io`].
    pub fn add<D: BlockPort + MemoryArea>(
        &mut self,
        tx: &mut Tx<'_, D>,
        inode: &Inode,
        state: &State,
        part: &Part,
        from: usize,
    ) -> Result<()> {
        match part {
            Part::Blocks(blocks) => self.add_blocks(tx, inode, state, blocks.clone(), from),
            Part::Bytes(block, bytes) => {
                if self.add_bytes(tx, inode, state, *block, bytes.clone(), from)? {
                    return Ok(());
                }
                self.add_rewrite(tx, state, *block, Some((bytes.clone(), from)))
            }
        }
    }

    fn add_blocks<D: BlockPort + MemoryArea>(
        &mut self,
        tx: &mut Tx<'_, D>,
        inode: &Inode,
        state: &State,
        blocks: Range<u64>,
        from: usize,
    ) -> Result<()> {
        let (core, block_bytes) = (tx.core, tx.core.block_bytes());
        let mut next = blocks.start;
        while next < blocks.end {
            let source = from + ((next - blocks.start) * block_bytes) as usize;
            let slot = core.slot(&state.part.mapping, next)?;
            // Nobody sees what is in it.
            let hidden = slot.block().filter(|_| slot.valid.get() == 0 || planted::has(Bug::BlockInPlace));
            let run = match hidden {
                Some(block) => Run { first: block.into(), count: 1 },
                None => match tx.take(Map::Blocks, blocks.end - next) {
                    Ok(run) => run,
                    // The block zone is full: perhaps the memory zone is not.
                    Err(Error::NoSpace)
                        if self.add_bytes(tx, inode, state, next, 0..block_bytes, source)? =>
                    {
                        next += 1;
                        continue;
                    }
                    Err(error) => return Err(error),
                },
            };
            for number in 0..run.count {
                let block = next + number;
                let old = core.slot(&state.part.mapping, block)?;
                let leaf = self.empty_leaf(tx, state, block);
                let device = (run.first + number) as u32;
                if let Some(freed) = old.block().filter(|freed| *freed != device) {
                    tx.free(Map::Blocks, freed.into(), 1);
                }
                self.more_blocks += i64::from(old.block().is_none());
                let slot = Slot { block: (device + 1).into(), valid: (block_bytes as u32).into(), ..old };
                self.changes.push(BlockChange { block, slot, leaf });
            }
            let bytes = source..source + (run.count * block_bytes) as usize;
            self.put_blocks(run.first as u32, bytes, block_bytes);
            next += run.count;
        }
        Ok(())
    }

    /// Adds blocks, to the last sub-write if they follow it in both places.
    fn put_blocks(&mut self, first: u32, bytes: Range<usize>, block_bytes: u64) {
        if let Some(BlockPut { first: before, source: Source::Caller(there) }) = self.blocks.last_mut()
            && there.end == bytes.start
            && u64::from(*before) + there.len() as u64 / block_bytes == u64::from(first)
        {
            there.end = bytes.end;
            return;
        }
        self.blocks.push(BlockPut { first, source: Source::Caller(bytes) });
    }

    /// Frees the logs of a block, and tells what its leaf is then. It stays, empty, until a checkpoint.
    fn empty_leaf<D: BlockPort + MemoryArea>(
        &mut self,
        tx: &mut Tx<'_, D>,
        state: &State,
        block: u64,
    ) -> Option<Leaf> {
        let leaf = logs::known(state)?.get(block).filter(|leaf| !leaf.logs.is_empty())?;
        for log in &leaf.logs {
            tx.free(Map::Logs, log.page.into(), 1);
        }
        self.more_logs -= leaf.logs.len() as i64;
        if planted::has(Bug::WriteBackKeepsEntries) {
            return None;
        }
        let empty = Leaf { number: leaf.number, logs: Logs::new() };
        logs::store_entries(&mut tx.ops, tx.core, &empty, leaf.logs.len());
        Some(empty)
    }

    /// Adds bytes of a block as data logs. False, and nothing is added, if there is no room for them: in the
    /// leaf, or in the memory zone.
    fn add_bytes<D: BlockPort + MemoryArea>(
        &mut self,
        tx: &mut Tx<'_, D>,
        inode: &Inode,
        state: &State,
        block: u64,
        bytes: Range<u64>,
        from: usize,
    ) -> Result<bool> {
        let core = tx.core;
        let leaf = logs::known(state).and_then(|tree| tree.get(block));
        let none = Logs::new();
        let before = leaf.map_or(&none, |leaf| &leaf.logs);
        let Some(mut merged) = merge::merge(before, bytes.clone()) else {
            core.counters.merges_failed.add(1);
            return Ok(false);
        };
        let Some((pages, taken)) = tx.take_for_logs(merged.pages_missing(), leaf.is_none()) else {
            return Ok(false);
        };
        let number = leaf.map(|leaf| leaf.number).or(taken).unwrap_or_default();
        merged.set_pages(&pages);
        core.counters.merges.add(merged.freed.len() as u64);
        for page in &merged.freed {
            tx.free(Map::Logs, (*page).into(), 1);
        }
        self.more_logs += merged.logs.len() as i64 - before.len() as i64;
        let changed = Leaf { number, logs: merged.logs };
        let mut slot = core.slot(&state.part.mapping, block)?;
        if leaf.is_some() {
            logs::store_entries(&mut tx.ops, core, &changed, before.len());
        } else {
            logs::store_leaf(&mut tx.ops, core, inode.ino.0, block, &changed);
            slot.leaf = (number + 1).into();
        }
        for put in merged.puts {
            let from = from + (put.new.start - bytes.start) as usize;
            self.logs.push(LogPut { put, from });
        }
        self.changes.push(BlockChange { block, slot, leaf: Some(changed) });
        Ok(true)
    }

    /// Has a block put together anew, in another one of the device's (RO-8).
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::Corrupt`], [`Error::Io`].
    pub fn add_rewrite<D: BlockPort + MemoryArea>(
        &mut self,
        tx: &mut Tx<'_, D>,
        state: &State,
        block: u64,
        new: Option<(Range<u64>, usize)>,
    ) -> Result<()> {
        let core = tx.core;
        let slot = core.slot(&state.part.mapping, block)?;
        let leaf = logs::known(state).and_then(|tree| tree.get(block));
        let logs = leaf.map_or_else(Logs::new, |leaf| leaf.logs.clone());
        let old = slot.block().map(|old| (old, u64::from(slot.valid.get())));
        let ends = logs.iter().map(|log| log.range().end).chain(new.as_ref().map(|(bytes, _)| bytes.end));
        let valid = ends.chain(old.map(|(_, valid)| valid)).max().unwrap_or(0);
        let device = match old {
            Some((hidden, 0)) => hidden,
            Some((old, _)) if planted::has(Bug::WriteBackInPlace) => old,
            _ => tx.take(Map::Blocks, 1)?.first as u32,
        };
        if let Some((freed, _)) = old.filter(|(old, _)| *old != device) {
            tx.free(Map::Blocks, freed.into(), 1);
        }
        self.more_blocks += i64::from(old.is_none());
        let leaf = self.empty_leaf(tx, state, block);
        let slot = Slot { block: (device + 1).into(), valid: (valid as u32).into(), ..slot };
        self.changes.push(BlockChange { block, slot, leaf });
        let logs = if planted::has(Bug::WriteBackForgetsLogs) { Logs::new() } else { logs };
        let source = Source::Rewrite(Box::new(Rewrite { old, logs, new, valid }));
        self.blocks.push(BlockPut { first: device, source });
        core.counters.write_backs.add(1);
        Ok(())
    }

    /// Stores the slots that are not in the inode. Whether some are.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn store_slots<D: BlockPort + MemoryArea>(&self, tx: &mut Tx<'_, D>, state: &State) -> Result<bool> {
        let core = tx.core;
        let mut inline = false;
        let mut rest = &self.changes[..];
        while let Some((first, behind)) = rest.split_first() {
            rest = behind;
            if first.block < INLINE_SLOTS {
                inline = true;
                continue;
            }
            let at = core.slot_address(&state.part.mapping, first.block)?;
            let at = at.ok_or_else(|| Error::corrupt("slot", first.block, "its mapping page has gone"))?;
            // Those that follow in the same page go with it.
            let mut bytes: SmallVec<[u8; 256]> = SmallVec::from_slice(first.slot.as_bytes());
            let mut next = first.block + 1;
            while let Some((change, behind)) = rest.split_first()
                && change.block == next
                && !(at + bytes.len() as u64).is_multiple_of(PAGE as u64)
            {
                bytes.extend_from_slice(change.slot.as_bytes());
                rest = behind;
                next += 1;
            }
            tx.ops.bytes(at, &bytes);
        }
        Ok(inline)
    }
}
