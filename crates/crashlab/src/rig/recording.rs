//! What the recorder keeps: what was asked of the device, and what is on its way.

use amphi_device::{Structure, TxId};
use amphi_rt::random::Generator;
use hashbrown::HashSet;

use super::event::Event;

/// The smallest thing that a crash keeps or drops as a whole but for tearing: a line of a store, or a page of
/// a block write.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unit {
    /// On which port it is on its way.
    pub port: Port,
    /// Byte address, on the byte port, or of the block side's pages one after the other.
    pub at: u64,
    /// The bytes.
    pub data: Vec<u8>,
    /// Transaction of a store.
    pub tx: Option<TxId>,
    /// What it serves.
    pub tag: Structure,
    /// Bytes, aligned, that are never torn.
    pub atom: usize,
    /// Whether it is of a block write that has completed: it is in a volatile write buffer, until a flush
    /// that begins from now on has ended.
    pub buffered: bool,
}

/// A port of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Port {
    /// Stores.
    Bytes,
    /// Block writes.
    Blocks,
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) unit: Unit,
    pub(super) by: By,
}

/// On which way a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Bytes { task: u64, flushed: bool, posted: bool },
    Block { command: u64 },
}

/// What the recorder has noted.
#[derive(Default)]
pub(super) struct Recording {
    pub(super) events: Vec<Event>,
    pub(super) pending: Vec<Pending>,
    pub(super) commands: u64,
    /// Decides how long a task waits before each command, so that those of others come in between.
    pub(super) interleave: Option<Generator>,
}

impl Recording {
    /// A block write has completed, which makes it durable or puts it into the write buffer, in which the
    /// order is that of completion.
    pub(super) fn complete(&mut self, number: u64, durable: bool) {
        let of_command = |pending: &mut Pending| pending.by == By::Block { command: number };
        let completed: Vec<Pending> = self.pending.extract_if(.., of_command).collect();
        if !durable {
            self.pending.extend(
                completed
                    .into_iter()
                    .map(|pending| Pending { unit: Unit { buffered: true, ..pending.unit }, ..pending }),
            );
        }
    }

    /// The block writes that are in the write buffer.
    pub(super) fn buffered(&self) -> HashSet<u64> {
        let commands = self.pending.iter().filter_map(|pending| match pending.by {
            By::Block { command } if pending.unit.buffered => Some(command),
            _ => None,
        });
        commands.collect()
    }
}
