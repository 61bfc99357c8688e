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
    /// The journal behind what recovery found.
    pub fn new(memory: Arc<Memory<D>>, layout: Layout, recovered: &Recovered) -> Self {
        let lane = |(number, position): (usize, &u64)| {
            Padded(Lane::new(layout.lane(number as u64), layout.plan.lane_bytes, *position))
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
        self.lanes.iter().any(|lane| lane.used() > self.layout.plan.lane_bytes / 2)
    }

    /// Checkpoints since the file system was mounted.
    pub fn checkpoints(&self) -> u64 {
        *self.checkpoints.lock()
    }

    /// Stage 1 of a write (RO-4): a record with its header, which is durable, and its body, which is after the
    /// next barrier. `logs` and `blocks` are the sub-writes on each path, `room` the most bytes of operations
    /// that come with the tail.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if the record is more than half a lane; [`Error::Io`].
    pub fn begin(&self, meta: &Meta<D>, body: &Ops, logs: u16, blocks: u16, room: usize) -> Result<Record> {
        let len = body.as_bytes().len();
        let marks = (u64::from(logs) + u64::from(blocks)) * 8;
        let bytes =
            size_of::<RecordHeader>() as u64 + len as u64 + marks + (size_of::<RecordTail>() + room) as u64;
        let bytes = bytes.next_multiple_of(JOURNAL_ALIGN);
        if bytes > self.layout.plan.lane_bytes / 2 {
            return Err(Error::TooLarge);
        }
        loop {
            let start = cpu::current() % self.lanes.len();
            for offset in 0..self.lanes.len() {
                let number = (start + offset) % self.lanes.len();
                let header = |position| RecordHeader::new(position, bytes, len, logs, blocks);
                let Some(header) = self.lanes[number].reserve(&self.memory, bytes, header)? else { continue };
                let record = Record { lane: number, position: header.position.get(), header };
                self.store(&record, size_of::<RecordHeader>() as u64, body.as_bytes())?;
                return Ok(record);
            }
            // Whatever holds the lanes has been applied, or its writer is at work.
            self.checkpoint(meta)?;
            self.lanes[start].wait_for_room(bytes);
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
        meta.write_lines(&dirty)?;
        if !planted::has(Bug::CheckpointBeforeLines) {
            self.memory.barrier()?;
        }
        self.memory.store(CHECKPOINT_AT, &sequence.to_le_bytes(), Structure::Journal)?;
        self.memory.barrier()?;
        for (number, position) in heads.iter().enumerate() {
            let head = LaneHead { position: (*position).into() };
            self.memory.store(Layout::head(number as u64), head.as_bytes(), Structure::Journal)?;
        }
        // Before anything behind the old heads is written over.
        self.memory.barrier()?;
        for (lane, position) in self.lanes.iter().zip(heads) {
            lane.release_up_to(position);
        }
        *checkpoints += 1;
        Ok(())
    }
}
