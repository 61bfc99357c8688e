//! Carries the plan of a write, or of a write-back, out: the stages of RO-4 that `write.rs` lists.

use amphi_device::{BlockDurability, BlockPort, Completion, MemoryArea, PAGE_BYTES, Structure};
use amphi_rt::time;
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;
use smallvec::SmallVec;

use crate::core::Core;
use crate::format::{INLINE_SLOTS, PAGE};
use crate::journal::Record;
use crate::logs;
use crate::ops::Ops;
use crate::part::{Inode, State};
use crate::plan::{BlockPut, LogPut, Plan, Rewrite, Source};
use crate::planted::{self, Bug};
use crate::tx::{Tx, put_inode};

/// Room that the inode takes behind a record's tail.
const TAIL_ROOM: usize = 16 + 256;

/// Carries a plan out, stages 1 to 6. `finish` changes the inode when everything else is durable.
///
/// # Errors
/// [`Error::TooLarge`] for more than the journal takes at once; [`Error::Io`]. Nothing has changed.
pub fn execute<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    tx: &mut Tx<'_, D>,
    plan: &Plan,
    data: &[u8],
    inline: bool,
    finish: impl FnOnce(&mut State),
) -> Result<()> {
    let (on_memory, on_blocks) = (plan.logs.len(), plan.blocks.len());
    if on_memory + on_blocks > usize::from(u16::MAX) {
        return Err(Error::TooLarge);
    }
    let record = core.journal.begin(&core.meta, &tx.ops, on_memory as u16, on_blocks as u16, TAIL_ROOM)?;
    let late = planted::has(Bug::SubWritesAfterTail);
    let done = if late { mark_all(core, &record, plan) } else { sub_writes(core, &record, plan, data) };
    if let Err(error) = done {
        core.journal.abandon(&record);
        return Err(error);
    }
    let mut state = inode.state.write();
    if state.gone {
        core.journal.abandon(&record);
        return Err(Error::Stale(inode.ino));
    }
    finish(&mut state);
    for change in plan.changes.iter().filter(|change| change.block < INLINE_SLOTS) {
        state.part.mapping.slots[change.block as usize] = change.slot;
    }
    state.part.blocks = state.part.blocks.saturating_add_signed(plan.more_blocks);
    state.part.logs = state.part.logs.saturating_add_signed(plan.more_logs);
    let mut tail = Ops::default();
    put_inode(&mut tail, core, inode, &state, inline);
    tx.commit_by(|core, ops| core.journal.commit(&core.meta, &record, ops, &tail))?;
    if late {
        sub_writes(core, &record, plan, data)?;
    }
    let tree = logs::open(core, inode, &mut state)?;
    for change in &plan.changes {
        if let Some(leaf) = &change.leaf {
            core.victims.note(inode.ino, change.block, leaf.logs.len());
            tree.set(change.block, leaf);
        }
    }
    Ok(())
}

/// Stages 2 to 5.
fn sub_writes<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    record: &Record,
    plan: &Plan,
    data: &[u8],
) -> Result<()> {
    // Stage 3. What it stores is durable before the block path is waited for, so that each path takes its own
    // time.
    let on_memory_path = || {
        let begun = time::now_ns();
        put_logs(core, record, plan, data)?;
        core.memory.barrier()?;
        core.counters.memory_path_ns.add(time::now_ns() - begun);
        Ok(())
    };
    if plan.blocks.is_empty() {
        return on_memory_path();
    }
    let rewritten = rewrite_all(core, plan, data)?;
    let sources: SmallVec<[[&[u8]; 1]; 4]> = plan
        .blocks
        .iter()
        .zip(&rewritten)
        .map(|(put, rewritten)| match &put.source {
            Source::Caller(range) => [&data[range.clone()]],
            Source::Rewrite(_) => [&rewritten[..]],
        })
        .collect();
    for (put, source) in plan.blocks.iter().zip(&sources) {
        core.cache.forget(core.lpa(put.first, 0), source[0].len() / PAGE_BYTES);
    }
    let begun = time::now_ns();
    if core.io_threads.is_empty() {
        let mut tickets: SmallVec<[D::Ticket<'_>; 4]> = SmallVec::new();
        for (put, source) in plan.blocks.iter().zip(&sources) {
            if planted::has(Bug::CommandForgotten) {
                continue;
            }
            let at = core.lpa(put.first, 0);
            tickets.push(core.device.submit_write(at, source, Structure::Data).map_err(io_error)?);
        }
        on_memory_path()?;
        for ticket in tickets {
            ticket.wait().map_err(io_error)?;
        }
    } else {
        let puts = plan.blocks.iter().zip(&sources);
        let puts = puts.map(|(put, source)| (core.lpa(put.first, 0), source[0]));
        let block = core.block_bytes() as usize;
        core.io_threads.write(puts, block, on_memory_path)?;
    }
    core.counters.block_path_ns.add(time::now_ns() - begun);
    let volatile = core.contract.block_durability == BlockDurability::Flush;
    if volatile {
        core.device.flush().map_err(io_error)?;
    }
    for number in 0..plan.blocks.len() {
        core.journal.note_done(record, (plan.logs.len() + number) as u64)?;
    }
    let by_blocks: usize = sources.iter().map(|source| source[0].len()).sum();
    core.counters.block_bytes.add(by_blocks as u64);
    core.memory.barrier()
}

/// The planted bug that says so before it is true.
fn mark_all<D: BlockPort + MemoryArea>(core: &Core<D>, record: &Record, plan: &Plan) -> Result<()> {
    (0..plan.logs.len() + plan.blocks.len())
        .try_for_each(|number| core.journal.note_done(record, number as u64))
}

/// The memory path: stage 3, and its marks.
fn put_logs<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    record: &Record,
    plan: &Plan,
    data: &[u8],
) -> Result<()> {
    for (number, put) in plan.logs.iter().enumerate() {
        put_log(core, put, data)?;
        core.journal.note_done(record, number as u64)?;
    }
    Ok(())
}

fn put_log<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    LogPut { put, from }: &LogPut,
    data: &[u8],
) -> Result<()> {
    let page = core.layout.log(put.log.page);
    let new = &data[*from..*from + (put.new.end - put.new.start) as usize];
    let within = |byte: u64| byte as usize % PAGE;
    core.counters.log_bytes.add(new.len() as u64);
    if put.old.is_empty() {
        return core.memory.store(page + within(put.new.start) as u64, new, Structure::Data);
    }
    let mut bytes = [0; PAGE];
    for old in &put.old {
        let range = old.in_page() as usize..old.in_page() as usize + old.size as usize;
        let at = core.layout.log(old.page) + old.in_page();
        core.memory.load(at, &mut bytes[range], Structure::Data)?;
    }
    let start = within(put.new.start);
    bytes[start..start + new.len()].copy_from_slice(new);
    let range = put.log.in_page() as usize..put.log.in_page() as usize + put.log.size as usize;
    core.memory.store(page + put.log.in_page(), &bytes[range], Structure::Data)
}

/// The bytes of the blocks that are put together anew; nothing for the others.
fn rewrite_all<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    plan: &Plan,
    data: &[u8],
) -> Result<SmallVec<[Vec<u8>; 4]>> {
    let rewritten = |put: &BlockPut| match &put.source {
        Source::Caller(_) => Ok(Vec::new()),
        Source::Rewrite(rewrite) => put_together(core, rewrite, data),
    };
    plan.blocks.iter().map(rewritten).collect()
}

fn put_together<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    rewrite: &Rewrite,
    data: &[u8],
) -> Result<Vec<u8>> {
    let mut bytes = vec![0; (rewrite.valid as usize).next_multiple_of(PAGE_BYTES)];
    if let Some((block, valid)) = rewrite.old.filter(|(_, valid)| *valid > 0) {
        let pages = (valid as usize).next_multiple_of(PAGE_BYTES);
        core.device.read(core.lpa(block, 0), &mut bytes[..pages], Structure::Data).map_err(io_error)?;
        bytes[valid as usize..].fill(0);
    }
    for log in &rewrite.logs {
        let range = log.range().start as usize..log.range().end as usize;
        core.memory.load(core.layout.log(log.page) + log.in_page(), &mut bytes[range], Structure::Data)?;
    }
    if let Some((range, from)) = &rewrite.new {
        let len = (range.end - range.start) as usize;
        bytes[range.start as usize..range.end as usize].copy_from_slice(&data[*from..*from + len]);
    }
    Ok(bytes)
}
