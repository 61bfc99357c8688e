//! The journal (RO-2, RO-4): lanes of records, each lane a ring that one processor fills, so that tasks do
//! not wait for each other's records.
//!
//! A record that was begun and never finished is passed over by recovery, and keeps its place until its
//! writer is done with it. What counts is applied to the metadata in host memory within the gate; a
//! checkpoint closes the gate for a moment, and so knows that everything up to its number is in there.

mod lane;
mod recovery;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{MemoryArea, Structure};
use amphi_rt::cpu;
use amphi_rt::sync::{Mutex, Padded, RwLock};
use amphi_vfs::{Error, Result};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::format::{CHECKPOINT_AT, JOURNAL_ALIGN, LaneHead, Layout, RecordHeader, RecordTail, mark};
use crate::memory::Memory;
use crate::meta::Meta;
use crate::ops::Ops;
use crate::planted::{self, Bug};
use lane::Lane;
pub use recovery::{Recovered, recover};

/// The journal.
pub struct Journal<D> {
    memory: Arc<Memory<D>>,
    layout: Layout,
    lanes: Box<[Padded<Lane>]>,
    /// Held to read from taking a number until the transaction is applied.
    gate: Padded<RwLock<()>>,
    /// Number of the last transaction.
    sequence: Padded<AtomicU64>,
    /// One checkpoint at a time. Holds how many there were.
    checkpoints: Mutex<u64>,
}

/// A record under construction.
#[must_use = "a record that is neither committed nor dropped keeps its place for ever"]
pub struct Record {
    lane: usize,
    position: u64,
    header: RecordHeader,
}

impl<D: MemoryArea> Journal<D> {
    /// The journal behind what recovery found. Its records count once a checkpoint has said where they begin.
    pub fn new(memory: Arc<Memory<D>>, layout: Layout, recovered: &Recovered) -> Self {
        // A round later in the same place, so that nothing that lies behind in the lane is ever taken for a
        // record that follows: a damaged one may have hidden others from recovery.
        let lane = |(number, position): (usize, &u64)| {
            let position = position + layout.plan.lane_bytes;
            Padded(Lane::new(layout.lane(number as u64), layout.plan.lane_bytes, position))
        };
        Self {
            memory,
            lanes: recovered.tails.iter().enumerate().map(lane).collect(),
            layout,
            gate: Padded::default(),
            sequence: Padded(AtomicU64::new(recovered.sequence)),
            checkpoints: Mutex::default(),
        }
    }

    /// Whether a checkpoint would soon be waited for.
    pub fn is_half_full(&self) -> bool {
        self.lanes[cpu::current() % self.lanes.len()].is_half_full()
    }

    /// Checkpoints since the file system was mounted.
    pub fn checkpoints(&self) -> u64 {
        *self.checkpoints.lock()
    }

    /// Stage 1 of a write (RO-4): a record with its header, which is durable, and its body, which is after
    /// the next barrier. `logs` and `blocks` are the sub-writes on each path, `room` the most bytes of
    /// operations that come with the tail.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the record is more than half a lane; [`Error::Io`].
    pub fn begin(&self, meta: &Meta<D>, body: &Ops, logs: u16, blocks: u16, room: usize) -> Result<Record> {
        let len = body.as_bytes().len();
        let marks = u64::from(logs) + u64::from(blocks);
        let bytes = self.record_bytes(len, marks, room)?;
        let write = |lane: &Lane, position| {
            let header = RecordHeader::new(position, bytes, len, logs, blocks);
            self.memory.store(lane.address(position), header.as_bytes(), Structure::Journal)?;
            if !planted::has(Bug::HeaderNotDurable) {
                self.memory.barrier()?;
            }
            Ok(header)
        };
        loop {
            if let Some((lane, header)) = self.place(bytes, write)? {
                let record = Record { lane, position: header.position.get(), header };
                self.store(&record, size_of::<RecordHeader>() as u64, body.as_bytes())?;
                return Ok(record);
            }
            self.make_room(meta, bytes)?;
        }
    }

    /// Bytes of a record.
    fn record_bytes(&self, body: usize, marks: u64, room: usize) -> Result<u64> {
        let bytes = size_of::<RecordHeader>() + body + marks as usize * 8 + size_of::<RecordTail>() + room;
        let bytes = (bytes as u64).next_multiple_of(JOURNAL_ALIGN);
        if bytes > self.layout.plan.lane_bytes / 2 { Err(Error::TooLarge) } else { Ok(bytes) }
    }

    /// Has `write` make a record in the first lane that has room, this processor's if it can be.
    fn place<T>(&self, bytes: u64, write: impl Fn(&Lane, u64) -> Result<T>) -> Result<Option<(usize, T)>> {
        let start = cpu::current() % self.lanes.len();
        for offset in 0..self.lanes.len() {
            let number = (start + offset) % self.lanes.len();
            let lane = &*self.lanes[number];
            if let Some(written) = lane.reserve(&self.memory, bytes, |position| write(lane, position))? {
                return Ok(Some((number, written)));
            }
        }
        Ok(None)
    }

    /// Makes room for a record of `bytes`. Whatever holds the lanes has been applied, or its writer is at
    /// work.
    fn make_room(&self, meta: &Meta<D>, bytes: u64) -> Result<()> {
        self.checkpoint(meta)?;
        self.lanes[cpu::current() % self.lanes.len()].wait_for_room(bytes);
        Ok(())
    }

    /// Makes a transaction of metadata alone count: its record is written as a whole.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the record is more than half a lane; [`Error::Io`], and host and device are
    /// apart then.
    pub fn append(&self, meta: &Meta<D>, ops: &Ops) -> Result<()> {
        let body = ops.as_bytes();
        let bytes = self.record_bytes(body.len(), 0, 0)?;
        loop {
            let open = self.gate.read();
            let write = |lane: &Lane, position| {
                let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
                let header = RecordHeader::new(position, bytes, body.len(), 0, 0);
                let tail = RecordTail::new(position, sequence, body, &[]);
                let mut record: SmallVec<[u8; 1024]> = SmallVec::from_slice(header.as_bytes());
                record.extend_from_slice(body);
                record.extend_from_slice(tail.as_bytes());
                self.memory.store(lane.address(position), &record, Structure::Journal)?;
                if planted::has(Bug::TailNotDurable) {
                    Ok(position)
                } else {
                    self.memory.barrier().map(|()| position)
                }
            };
            if let Some((lane, position)) = self.place(bytes, write)? {
                meta.apply(body)?;
                self.lanes[lane].finish(position);
                drop(open);
                return Ok(());
            }
            drop(open);
            self.make_room(meta, bytes)?;
        }
    }

    fn store(&self, record: &Record, at: u64, bytes: &[u8]) -> Result<()> {
        let base = self.lanes[record.lane].address(record.position);
        self.memory.store(base + at, bytes, Structure::Journal)
    }

    /// Stage 5: sub-write `number` is done, of all, those of the memory path first. Durable after the next
    /// barrier.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn note_done(&self, record: &Record, number: u64) -> Result<()> {
        if planted::has(Bug::MarkForgotten) && number == 0 {
            return Ok(());
        }
        let at = record.header.marks_at() + number * 8;
        self.store(record, at, &mark(record.position, number).to_le_bytes())
    }

    /// Stage 6: makes the record count. Everything that it is about is durable; `tail` comes with it.
    ///
    /// # Errors
    /// [`Error::Io`]; host and device are apart then.
    pub fn commit(&self, meta: &Meta<D>, record: &Record, body: &Ops, tail: &Ops) -> Result<()> {
        let open = self.gate.read();
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed) + 1;
        let (body, tail) = (body.as_bytes(), tail.as_bytes());
        let head = RecordTail::new(record.position, sequence, body, tail);
        let at = record.header.tail_at();
        self.store(record, at + size_of::<RecordTail>() as u64, tail)?;
        self.store(record, at, head.as_bytes())?;
        if !planted::has(Bug::TailNotDurable) {
            self.memory.barrier()?;
        }
        meta.apply(body)?;
        meta.apply(tail)?;
        self.lanes[record.lane].finish(record.position);
        drop(open);
        Ok(())
    }

    /// Gives a record up.
    pub fn abandon(&self, record: &Record) {
        self.lanes[record.lane].finish(record.position);
    }

    /// Clears the lanes, so that nothing in them is ever taken for a record: a damaged head may have hidden
    /// some that count. Everything has been checkpointed, and nothing is under way.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn clear(&self) -> Result<()> {
        let zeros = vec![0; self.layout.plan.lane_bytes as usize];
        for lane in 0..self.layout.plan.lanes {
            self.memory.store(self.layout.lane(lane), &zeros, Structure::Journal)?;
        }
        self.memory.barrier()
    }

    /// Brings everything that counts by now to the metadata area, and makes room in the journal (RO-2).
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn checkpoint(&self, meta: &Meta<D>) -> Result<()> {
        let mut checkpoints = self.checkpoints.lock();
        let (sequence, dirty, heads) = {
            let _closed = self.gate.write();
            let heads: Vec<_> = self.lanes.iter().map(|lane| lane.oldest()).collect();
            (self.sequence.load(Ordering::Relaxed), meta.take_dirty(), heads)
        };
        let store_heads = || {
            for (number, position) in heads.iter().enumerate() {
                let head = LaneHead { position: (*position).into() };
                self.memory.store(Layout::head(number as u64), head.as_bytes(), Structure::Journal)?;
            }
            self.memory.barrier()
        };
        if planted::has(Bug::HeadsBeforeLines) {
            store_heads()?;
        }
        meta.write_lines(&dirty)?;
        if !planted::has(Bug::CheckpointBeforeLines) {
            self.memory.barrier()?;
        }
        self.memory.store(CHECKPOINT_AT, &sequence.to_le_bytes(), Structure::Journal)?;
        self.memory.barrier()?;
        // Durable before anything behind the old heads is written over.
        store_heads()?;
        for (lane, position) in self.lanes.iter().zip(heads) {
            lane.release_up_to(position);
        }
        *checkpoints += 1;
        Ok(())
    }
}
