//! Write-back: dirty pages to the device, `fsync`.
//!
//! Blocks are allocated and entered in the extent tree in one handle, before the data are written; the
//! transaction waits for the data before it commits (ordered mode). While the data are on their way the file
//! can be read and written: the pages' contents are shared with the write.

use std::sync::Arc;

use amphi_device::{BlockPort, Completion, Structure};
use amphi_names::Guard;
use amphi_page_cache::{Mapped, Mapping, commands};
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;

use crate::core::Core;
use crate::format::{BLOCK, BLOCK_EXTENTS};
use crate::index::extent::Run;
use crate::index::inode::number;
use crate::index::part::{Body, Inode, Part, State};
use crate::journal::InFlight;
use crate::journal::buffers::{Kind, SharedBlock};
use crate::journal::commit::COMMAND_BLOCKS;
use crate::journal::handle::Handle;

/// Most pages written in one round, as ext4 maps at a time.
const ROUND_PAGES: usize = 2048;

/// Locks an inode of which nothing is on its way to the device, unless that has failed.
pub fn settled(inode: &Inode) -> Guard<'_, Part> {
    loop {
        let mut state = inode.state.write();
        let Body::File(file) = &mut state.body else { return state };
        let on_its_way = file.in_flight.clone().filter(|in_flight| !in_flight.has_failed());
        let Some(in_flight) = on_its_way else { return state };
        drop(state);
        // Whoever started it reports its failure; the file system is then read-only.
        let _reported_there = in_flight.wait();
        forget_in_flight(&mut inode.state.write(), &in_flight);
    }
}

/// The pages are on the device, and may leave memory; if they are not, they stay for ever.
fn forget_in_flight(state: &mut State, in_flight: &Arc<InFlight>) {
    if in_flight.has_failed() {
        return;
    }
    if let Body::File(file) = &mut state.body
        && file.in_flight.as_ref().is_some_and(|other| Arc::ptr_eq(other, in_flight))
    {
        file.in_flight = None;
    }
}

/// Blocks that mapping `pages` pages may change.
fn credits<D: BlockPort>(core: &Core<D>, pages: usize) -> usize {
    10 + 2 * (core.layout.groups as usize).min(8) + pages.div_ceil(BLOCK_EXTENTS) * 3
}

/// What the extents of new blocks say until their data are in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// That they are written: the transaction waits for the data.
    Written,
    /// That they are unwritten: a second handle says otherwise once the data are there, and the transaction
    /// need not wait.
    Unwritten,
}

/// Gives the dirty pages `batch` blocks.
fn map_pages<D: BlockPort>(
    handle: &mut Handle<'_, D>,
    inode: &Inode,
    state: &mut State,
    batch: &[u64],
    allocation: Allocation,
) -> Result<()> {
    let core = handle.base;
    let is_unwritten = allocation == Allocation::Unwritten;
    let mut at = 0;
    while at < batch.len() {
        let first = batch[at];
        let run = batch[at..].iter().zip(first..).take_while(|(index, due)| **index == *due).count() as u64;
        let mapped = state.extents.map(first);
        let (first, run) = (first as u32, run.min(mapped.pages()) as u32);
        match mapped {
            Mapped::At { .. } => at += run as usize,
            Mapped::Unwritten { .. } => {
                if !is_unwritten {
                    state.extents.mark(first, first + run, false);
                }
                at += run as usize;
            }
            Mapped::Hole { .. } => {
                let goal = state.extents.goal(first).unwrap_or_else(|| core.groups.goal(number(inode)));
                let (start, len) = core.groups.allocate(handle, goal, run)?;
                state.extents.insert(Run { file_block: first, start, len, unwritten: is_unwritten });
                state.blocks += len;
                state.body.file_mut()?.unmapped -= u64::from(len);
                at += len as usize;
            }
        }
    }
    Ok(())
}

/// Whether a batch needs a transaction: a page without a written block, or a larger size.
fn needs_handle(state: &State, batch: &[u64], size: u64) -> bool {
    size > state.size_on_disk
        || batch.iter().any(|index| !matches!(state.extents.map(*index), Mapped::At { .. }))
}

/// The length that is safe once a batch is written.
fn size_with(state: &State, batch: &[u64], all: bool) -> u64 {
    let written = batch.last().map_or(0, |last| (last + 1) * BLOCK as u64);
    if all { state.size } else { state.size.min(written).max(state.size_on_disk) }
}

/// Pages of a file that have left the cache for the device.
pub struct Departure {
    inode: Arc<Inode>,
    in_flight: Arc<InFlight>,
    leaving: Vec<(u64, SharedBlock)>,
    /// What a second handle has to say once they are there.
    conversion: Option<Conversion>,
}

/// Pages whose blocks are unwritten ones until their data are in place, and the length that the file then
/// has.
struct Conversion {
    pages: Vec<u64>,
    size: u64,
}

/// Maps a batch of a file's dirty pages and takes them, to be written. None if that took a commit and the
/// caller `cannot_wait` for one.
fn depart<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode>,
    state: &mut State,
    allocation: Allocation,
    cannot_wait: bool,
) -> Result<Option<Departure>> {
    let file = state.body.file_mut()?;
    let batch = file.pages.first_dirty(ROUND_PAGES);
    let is_all = batch.len() == file.pages.dirty_pages();
    let size = size_with(state, &batch, is_all);
    let in_flight = Arc::new(InFlight::default());
    let mut conversion = None;
    if needs_handle(state, &batch, size) {
        let credits = credits(core, batch.len());
        let mut handle = if cannot_wait {
            let Ok(handle) = core.handle_now(credits)? else { return Ok(None) };
            handle
        } else {
            core.handle(credits)?
        };
        map_pages(&mut handle, inode, state, &batch, allocation)?;
        match allocation {
            Allocation::Written => {
                state.size_on_disk = size;
                handle.order(&in_flight);
            }
            Allocation::Unwritten => conversion = Some(Conversion { pages: batch.clone(), size }),
        }
        handle.write_inode(inode, state, true)?;
        handle.finish();
    }
    let leaving = match take_pages(core, state, &batch) {
        Ok(leaving) => leaving,
        Err(error) => {
            in_flight.complete(Err(error.clone()));
            return Err(error);
        }
    };
    let file = state.body.file_mut()?;
    file.in_flight = Some(Arc::clone(&in_flight));
    file.version += 1;
    Ok(Some(Departure { inode: Arc::clone(inode), in_flight, leaving, conversion }))
}

/// Writes the pages of all departures, neighbours on the device by one command, and waits for them;
/// `meanwhile` runs when they have been sent.
pub fn arrive<D: BlockPort>(
    core: &Core<D>,
    departures: &[Departure],
    meanwhile: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut leaving: Vec<&(u64, SharedBlock)> = departures.iter().flat_map(|d| &d.leaving).collect();
    leaving.sort_by_key(|(lba, _)| *lba);
    let runs = neighbours(&leaving);
    let mut outcome = core.submit_runs(&runs, |_| Structure::Data).and_then(|sent| {
        let done = meanwhile();
        sent.into_iter().try_for_each(Completion::wait).map_err(io_error).and(done)
    });
    if outcome.is_ok() {
        outcome = departures.iter().try_for_each(|departure| convert(core, departure));
    }
    if let Err(error) = &outcome {
        core.fail(error);
    }
    // All of them first: who holds one of the inodes may wait for a commit, which waits for the others.
    for departure in departures {
        departure.in_flight.complete(outcome.clone());
    }
    for departure in departures {
        forget_in_flight(&mut departure.inode.state.write(), &departure.in_flight);
    }
    outcome
}

/// Says that a departure's blocks are written: what ext4_convert_unwritten_io_end_vec() does when a write has
/// ended. Nobody who holds the inode waits for this departure: waiting for what is in flight is done without
/// it, and no transaction has these data in order.
fn convert<D: BlockPort>(core: &Core<D>, departure: &Departure) -> Result<()> {
    let Some(Conversion { pages, size }) = &departure.conversion else { return Ok(()) };
    let inode = &departure.inode;
    let mut state = inode.state.write();
    let mut handle = core.handle(credits(core, pages.len()))?;
    let mut rest = &pages[..];
    while let Some(first) = rest.first() {
        let run = rest.iter().zip(*first..).take_while(|(index, due)| **index == *due).count();
        state.extents.mark(*first as u32, *first as u32 + run as u32, false);
        rest = &rest[run..];
    }
    state.size_on_disk = state.size_on_disk.max(*size);
    state.body.file_mut()?.version += 1;
    handle.write_inode(inode, &mut state, true)?;
    handle.finish();
    Ok(())
}

/// Writes a file's dirty pages and waits for them. The transaction that maps them is not committed.
///
/// # Errors
/// [`Error::Io`], [`Error::ReadOnly`].
pub fn write_back<D: BlockPort>(core: &Core<D>, inode: &Arc<Inode>) -> Result<()> {
    loop {
        let mut state = settled(inode);
        let Body::File(file) = &state.body else { return Ok(()) };
        if file.pages.is_clean() {
            core.dirty.remove(inode.ino, &inode.beside.dirty);
            // What is on its way still has failed.
            return file.in_flight.as_ref().map_or(Ok(()), |failed| failed.wait());
        }
        core.writable()?;
        if core.journals_data() {
            return journal_dirty(core, inode, &mut state);
        }
        let departure = depart(core, inode, &mut state, Allocation::Written, false)?;
        drop(state);
        arrive(core, departure.as_slice(), || Ok(()))?;
    }
}

/// Dirty pages of many files that go together.
pub struct Round {
    /// What goes.
    pub departures: Vec<Departure>,
    /// A file of them has more.
    pub leaves_some: bool,
}

/// Takes dirty pages of `waiting` files, as many as make a round. What somebody else has, or would take a
/// commit to map, stays.
///
/// # Errors
/// [`Error::Io`], [`Error::ReadOnly`], after which what had departed is written.
pub fn depart_together<'a, D: BlockPort>(
    core: &Core<D>,
    waiting: impl Iterator<Item = &'a Arc<Inode>>,
    allocation: Allocation,
) -> Result<Round> {
    let mut round = Round { departures: Vec::new(), leaves_some: false };
    let mut pages = 0;
    for inode in waiting {
        // While ours have not been sent, waiting for an inode, for another's write or for a commit could be
        // waiting for ourselves.
        let Some(mut state) = inode.state.try_write() else { continue };
        if !matches!(&state.body, Body::File(file) if file.in_flight.is_none() && !file.pages.is_clean()) {
            continue;
        }
        match depart(core, inode, &mut state, allocation, true) {
            Ok(None) => {}
            Ok(Some(departure)) => {
                pages += departure.leaving.len();
                round.departures.push(departure);
                round.leaves_some |= matches!(&state.body, Body::File(file) if !file.pages.is_clean());
            }
            Err(error) => {
                drop(state);
                return arrive(core, &round.departures, || Ok(())).and(Err(error));
            }
        }
        if pages >= ROUND_PAGES {
            break;
        }
    }
    Ok(round)
}

/// Writes the dirty pages of many files, with neighbours on the device written by one command, as the
/// kernel's flusher has it. What cannot be done so is done one file after the other.
///
/// # Errors
/// [`Error::Io`], [`Error::ReadOnly`].
pub fn write_back_many<D: BlockPort>(core: &Core<D>, inodes: &[Arc<Inode>]) -> Result<()> {
    let mut waiting = inodes.iter();
    while !core.journals_data() {
        let round = depart_together(core, &mut waiting, Allocation::Written)?;
        if round.departures.is_empty() {
            break;
        }
        arrive(core, &round.departures, || Ok(()))?;
    }
    inodes.iter().try_for_each(|inode| write_back(core, inode))
}

/// Makes the pages of a batch clean and returns their contents, with the blocks they go to.
fn take_pages<D: BlockPort>(
    core: &Core<D>,
    state: &mut State,
    batch: &[u64],
) -> Result<Vec<(u64, SharedBlock)>> {
    let Part { body: Body::File(file), extents, .. } = &mut state.part else { return Ok(Vec::new()) };
    file.pages.leave(&core.pages, batch, |index, page| match extents.map(index) {
        Mapped::At { lba, .. } | Mapped::Unwritten { lba, .. } => Ok((lba, Arc::clone(&page.data))),
        Mapped::Hole { .. } => Err(Error::corrupt("page", index, "it is dirty and has no block")),
    })
}

/// Pages in the order of their blocks, as commands.
fn neighbours<'a>(leaving: &[&'a (u64, SharedBlock)]) -> Vec<(u64, Vec<&'a [u8]>)> {
    commands(leaving, COMMAND_BLOCKS, |(lba, _)| *lba)
        .map(|run| (run[0].0, run.iter().map(|(_, data)| &data[..]).collect()))
        .collect()
}

/// Puts a file's dirty pages into the running transaction (data journaling). Nothing is in flight.
///
/// # Errors
/// [`Error::Io`], [`Error::ReadOnly`].
pub fn journal_dirty<D: BlockPort>(core: &Core<D>, inode: &Arc<Inode>, state: &mut State) -> Result<()> {
    let round = (core.journal.transaction_max / 2).min(ROUND_PAGES);
    loop {
        let file = state.body.file_mut()?;
        let batch = file.pages.first_dirty(round);
        if batch.is_empty() {
            core.dirty.remove(inode.ino, &inode.beside.dirty);
            return Ok(());
        }
        let is_all = batch.len() == file.pages.dirty_pages();
        let size = size_with(state, &batch, is_all);
        let mapping = if needs_handle(state, &batch, size) { credits(core, batch.len()) } else { 1 };
        let mut handle = core.handle(batch.len() + mapping)?;
        map_pages(&mut handle, inode, state, &batch, Allocation::Written)?;
        let leaving = take_pages(core, state, &batch)?;
        state.body.file_mut()?.version += 1;
        state.body.file_mut()?.journaled = true;
        for (lba, data) in &leaving {
            handle.put(*lba, Kind::Data, data)?;
        }
        state.size_on_disk = size;
        handle.write_inode(inode, state, true)?;
        handle.finish();
    }
}

/// Makes a file's data durable, and its attributes unless `data_only` and they are not needed to read them.
///
/// # Errors
/// [`Error::Io`].
pub fn fsync<D: BlockPort>(core: &Core<D>, inode: &Arc<Inode>, data_only: bool) -> Result<()> {
    if core.options.read_only {
        return Ok(());
    }
    write_back(core, inode)?;
    core.sound()?;
    if core.journals_data() {
        checkpoint_data(core, inode)?;
    }
    let tid = {
        let state = inode.state.read();
        if data_only { state.datasync_tid } else { state.sync_tid }
    };
    let (covered, committed) = {
        let state = core.journal.state.lock();
        (state.flushing >= tid, state.committed >= tid)
    };
    if !committed {
        core.commit_to(tid)?;
    }
    // A commit flushes the device, and the data with it, unless it had begun to before they were there.
    if covered { core.barrier() } else { Ok(()) }
}

/// With data journaling, an `fsync` begins with what is done to write a file's pages: ext4_do_writepages()
/// commits the transaction that has them in the journal, and writes them in place. ext4_fsync_journal() then
/// finds its transaction committed, and flushes the device once more.
fn checkpoint_data<D: BlockPort>(core: &Core<D>, inode: &Arc<Inode>) -> Result<()> {
    let (tid, ranges) = {
        let mut state = inode.state.write();
        let Body::File(file) = &mut state.body else { return Ok(()) };
        if !std::mem::take(&mut file.journaled) {
            return Ok(());
        }
        let blocks = |run: Run| u64::from(run.start)..u64::from(run.start) + u64::from(run.len);
        (state.datasync_tid, state.extents.iter().map(blocks).collect::<Vec<_>>())
    };
    core.commit_to(tid)?;
    core.write_data_in_place(&ranges)?;
    Ok(())
}
