//! What the host asks of the device, as the recorder notes it, and what the device is about to carry out.

use std::fmt;

use amphi_device::{Entry, EntryId, Lpa, PAGE_BYTES, Structure, TxId};

/// Something the host asked of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A store on the byte port.
    Store {
        /// Byte address.
        at: u64,
        /// Bytes.
        len: usize,
        /// Transaction.
        tx: Option<TxId>,
        /// What it serves.
        tag: Structure,
    },
    /// Lines written back.
    FlushLines {
        /// Byte address.
        at: u64,
        /// Bytes.
        len: usize,
    },
    /// A fence.
    Fence,
    /// A write-verify read.
    VerifyRead,
    /// A block write submitted.
    SubmitWrite {
        /// First page.
        at: Lpa,
        /// Pages.
        pages: usize,
        /// What it serves.
        tag: Structure,
    },
    /// A block write about to complete.
    CompleteWrite {
        /// First page.
        at: Lpa,
        /// Pages.
        pages: usize,
    },
    /// A flush of the device's write buffer.
    Flush,
    /// A trim.
    Trim {
        /// First page.
        at: Lpa,
        /// Pages.
        pages: u64,
    },
    /// `COMMIT`.
    Commit(TxId),
    /// `RECOVER`.
    Recover,
    /// Cleaning on demand.
    CleanLog,
    /// `BA_PIN` of what will be this entry.
    Pin(Entry),
    /// `BA_FLUSH`.
    FlushEntry(EntryId),
    /// `BA_SYNC`.
    SyncEntry(EntryId),
    /// Not the host's doing: an operation of the workload begins, by its place in the workload.
    Begin(usize),
    /// The operation has returned.
    End(usize),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store { at, len, tx, tag } => {
                write!(f, "store {len} B at page {} + {} ({}", at / 4096, at % 4096, tag.name())?;
                match tx {
                    Some(tx) => write!(f, ", transaction {})", tx.get()),
                    None => write!(f, ")"),
                }
            }
            Self::FlushLines { at, len } => {
                write!(f, "flush lines of {len} B at page {} + {}", at / 4096, at % 4096)
            }
            Self::Fence => f.write_str("fence"),
            Self::VerifyRead => f.write_str("write-verify read"),
            Self::SubmitWrite { at, pages, tag } => {
                write!(f, "submit block write of {pages} pages at {} ({})", at.0, tag.name())
            }
            Self::CompleteWrite { at, pages } => {
                write!(f, "complete block write of {pages} pages at {}", at.0)
            }
            Self::Flush => f.write_str("flush"),
            Self::Trim { at, pages } => write!(f, "trim {pages} pages at {}", at.0),
            Self::Commit(tx) => write!(f, "COMMIT {}", tx.get()),
            Self::Recover => f.write_str("RECOVER"),
            Self::CleanLog => f.write_str("clean the log"),
            Self::Pin(Entry { id, offset, at, pages }) => {
                write!(f, "BA_PIN {} of {pages} pages from page {} on at {offset} of the window", id.0, at.0)
            }
            Self::FlushEntry(id) => write!(f, "BA_FLUSH {}", id.0),
            Self::SyncEntry(id) => write!(f, "BA_SYNC {}", id.0),
            Self::Begin(operation) => write!(f, "operation {operation} begins"),
            Self::End(operation) => write!(f, "operation {operation} has returned"),
        }
    }
}

/// What the device is about to carry out at a crash point.
#[derive(Clone, Copy, Debug, Hash)]
pub enum Next<'a> {
    /// Nothing.
    Idle,
    /// Whatever is posted is about to arrive.
    Arrival,
    /// A block write of this data.
    Write(Lpa, &'a [&'a [u8]]),
    /// A trim.
    Trim(Lpa, u64),
    /// A commit.
    Commit(TxId),
    /// Cleaning.
    CleanLog,
    /// A recovery.
    Recover,
    /// A flush.
    Flush,
    /// `BA_PIN`.
    Pin(Entry),
    /// `BA_FLUSH`.
    FlushEntry(EntryId),
}

impl fmt::Display for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Idle => f.write_str("nothing: the operation has returned"),
            Self::Arrival => f.write_str("a write-verify read or fence, by which what is posted arrives"),
            Self::Write(at, bufs) => {
                let bytes: usize = bufs.iter().map(|buf| buf.len()).sum();
                write!(f, "the completion of a block write of {} pages at {}", bytes / PAGE_BYTES, at.0)
            }
            Self::Trim(at, pages) => write!(f, "a trim of {pages} pages at {}", at.0),
            Self::Commit(tx) => write!(f, "COMMIT {}", tx.get()),
            Self::CleanLog => f.write_str("cleaning"),
            Self::Recover => f.write_str("RECOVER"),
            Self::Flush => f.write_str("a flush"),
            Self::Pin(entry) => write!(f, "BA_PIN {}", entry.id.0),
            Self::FlushEntry(id) => write!(f, "BA_FLUSH {}", id.0),
        }
    }
}
