//! Recovery (RO-10): what was checkpointed is in the metadata area; the records behind it that count are
//! applied to the metadata in host memory, in the order of their numbers.

use std::sync::Arc;

use amphi_device::{MemoryArea, Structure};
use amphi_vfs::{Error, Result};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::format::{CHECKPOINT_AT, LaneHead, Layout, RecordHeader, RecordTail, mark};
use crate::memory::Memory;
use crate::meta::Meta;
use crate::planted::{self, Bug};

/// What no number or position of the journal reaches by counting.
const NUMBER_MAX: u64 = 1 << 62;

/// What recovery found.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Number of the last transaction.
    pub sequence: u64,
    /// Position behind the last record of each lane.
    pub tails: Vec<u64>,
    /// Transactions that were applied.
    pub applied: u64,
    /// Records that were begun and did not count.
    pub passed_over: u64,
}

/// A record that counts.
struct Counted {
    sequence: u64,
    body: Vec<u8>,
    tail: Vec<u8>,
}

/// Applies what counts to `meta`, which is new. The device is not changed.
///
/// # Errors
/// [`Error::Io`]; [`Error::Corrupt`] for a record that counts and makes no sense.
pub fn recover<D: MemoryArea>(memory: &Arc<Memory<D>>, layout: &Layout, meta: &Meta<D>) -> Result<Recovered> {
    let mut sequence = [0; 8];
    memory.load(CHECKPOINT_AT, &mut sequence, Structure::Journal)?;
    let checkpointed = possible(u64::from_le_bytes(sequence))?;
    let mut found = Recovered { sequence: checkpointed, tails: Vec::new(), applied: 0, passed_over: 0 };
    let mut counted = Vec::new();
    for lane in 0..layout.plan.lanes {
        let mut position = {
            let mut head = LaneHead::new_zeroed();
            memory.load(Layout::head(lane), head.as_mut_bytes(), Structure::Journal)?;
            possible(head.position.get())?
        };
        let end = position.saturating_add(layout.plan.lane_bytes);
        while position < end {
            let Some(header) = read_header(memory, layout, lane, position)? else { break };
            if !header.is_filler() {
                match read_record(memory, layout, lane, &header)? {
                    Some(record) if record.sequence > checkpointed => counted.push(record),
                    Some(_) => {}
                    None => found.passed_over += 1,
                }
            }
            position += u64::from(header.bytes.get());
        }
        found.tails.push(position);
    }
    counted.sort_by_key(|record| record.sequence);
    if planted::has(Bug::RedoOutOfOrder) {
        counted.reverse();
    }
    if planted::has(Bug::RedoSkipped) {
        counted.pop();
    }
    for record in counted {
        if record.sequence == found.sequence {
            return Err(Error::corrupt("transaction", record.sequence, "the journal has it twice"));
        }
        possible(record.sequence)?;
        meta.apply(&record.body)?;
        meta.apply(&record.tail)?;
        found.sequence = record.sequence;
        found.applied += 1;
    }
    Ok(found)
}

/// A number or a position of the journal, if counting can have come to it. There are to be as many behind it.
fn possible(number: u64) -> Result<u64> {
    if number < NUMBER_MAX {
        return Ok(number);
    }
    Err(Error::corrupt("journal", number, "it cannot have counted as far as that"))
}

fn read_header<D: MemoryArea>(
    memory: &Memory<D>,
    layout: &Layout,
    lane: u64,
    position: u64,
) -> Result<Option<RecordHeader>> {
    let mut header = RecordHeader::new_zeroed();
    let lane_bytes = layout.plan.lane_bytes;
    if lane_bytes - position % lane_bytes < size_of::<RecordHeader>() as u64 {
        return Ok(None);
    }
    let at = layout.lane(lane) + position % lane_bytes;
    memory.load(at, header.as_mut_bytes(), Structure::Journal)?;
    Ok(header.is_at(position, lane_bytes).then_some(header))
}

/// The record, if it counts.
fn read_record<D: MemoryArea>(
    memory: &Memory<D>,
    layout: &Layout,
    lane: u64,
    header: &RecordHeader,
) -> Result<Option<Counted>> {
    let position = header.position.get();
    let at = layout.lane(lane) + position % layout.plan.lane_bytes;
    let mut bytes = vec![0; header.bytes.get() as usize];
    memory.load(at, &mut bytes, Structure::Journal)?;
    let marks_at = header.marks_at() as usize;
    let (marks, behind) = bytes[marks_at..].split_at(header.marks() as usize * 8);
    let done = |(number, found): (usize, &[u8])| found == mark(position, number as u64).to_le_bytes();
    if !marks.chunks(8).enumerate().all(done) {
        return Ok(None);
    }
    let Ok((tail, ops)) = RecordTail::read_from_prefix(behind) else { return Ok(None) };
    let body = &bytes[size_of::<RecordHeader>()..marks_at];
    let Some(ops) = ops.get(..tail.bytes.get() as usize) else { return Ok(None) };
    let asked = RecordTail::new(position, tail.sequence.get(), body, ops);
    if asked.crc != tail.crc && !planted::has(Bug::TailNotChecked) {
        return Ok(None);
    }
    Ok(Some(Counted { sequence: tail.sequence.get(), body: body.to_vec(), tail: ops.to_vec() }))
}
