//! Vendor commands of firmware that keeps a transactional write log in protected device memory (ByteFS §4.3,
//! §4.7).

use crate::{PageView, Result, TxId};

/// What `recover` found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoverReport {
    /// Log entries scanned.
    pub entries_scanned: u64,
    /// Entries dropped because their transaction was never committed.
    pub entries_dropped: u64,
    /// Pages written to flash.
    pub pages_written: u64,
    /// Committed transactions found in the transaction log.
    pub transactions: u64,
}

/// The write log's commands. The log keeps newer bytes of the block port's pages, so the window is a view of
/// those. Who has a log keeps it: a file system holds what it is mounted on for as long as it likes.
pub trait WriteLog: PageView + 'static {
    /// `COMMIT(tx)`: the transaction's stores, each of which the caller has already flushed, fenced and
    /// verified, become durable together; on return they survive power loss. Later flushing to flash follows
    /// the order of commits.
    ///
    /// # Errors
    /// [`Error::AlreadyCommitted`](crate::Error::AlreadyCommitted), or a failure to make room in the
    /// transaction log.
    fn commit(&self, tx: TxId) -> Result<()>;

    /// `RECOVER()`: drops every entry of an uncommitted transaction, flushes the rest to flash in commit
    /// order, clears the log and the transaction log. Transaction numbers may start again from one.
    ///
    /// The caller has no other command in flight. Interrupted at any point, it can be issued again.
    ///
    /// # Errors
    /// Media errors; the log is then kept.
    fn recover(&self) -> Result<RecoverReport>;

    /// Cleans the log now and returns when every entry of a committed transaction has reached flash.
    ///
    /// # Errors
    /// Media errors.
    fn clean_log(&self) -> Result<()>;
}
