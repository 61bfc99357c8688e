//! Whether a file system may still be changed.
//!
//! A change that fails half way is in memory, in part, and others that are under way may see it. So it
//! [fails](Health::fail) before it lets go of the lock that they wait for, and they ask whether all is
//! [sound](Health::sound) behind that lock, before anything of theirs becomes durable. What such a change was
//! about to bring to the device may be there, or what was there before, of whomever: it is
//! [not to be read](Health::known).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use amphi_rt::sync::Mutex;
use amphi_vfs::{Error, Failure, Ino, Result};

use crate::planted::{self, Bug};

/// Read-only because it was mounted so, or because memory and device no longer agree.
pub struct Health {
    read_only: AtomicBool,
    failed: AtomicBool,
    failure: Mutex<Option<String>>,
    /// Inodes of which nobody knows what the device holds.
    unknown: Mutex<BTreeSet<Ino>>,
}

impl Health {
    /// That of a file system that is mounted to be changed, or `read_only`.
    pub const fn new(read_only: bool) -> Self {
        Self {
            read_only: AtomicBool::new(read_only),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            unknown: Mutex::new(BTreeSet::new()),
        }
    }

    /// Fails once the file system has turned read-only, or if it was mounted so.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    #[inline]
    pub fn writable(&self) -> Result<()> {
        if self.read_only.load(Ordering::Acquire) { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Turns the file system read-only; the first reason is kept.
    pub fn fail(&self, error: &Error) {
        if planted::has(Bug::FailureForgotten) {
            return;
        }
        let mut failure = self.failure.lock();
        if failure.is_none() {
            *failure = Some(error.to_string());
            tracing::error!(
                "{error}; the file system is read-only from now on: unmount it and run `amphi fsck`"
            );
        }
        self.failed.store(true, Ordering::Release);
        self.read_only.store(true, Ordering::Release);
    }

    /// Turns the file system read-only if this is a failure. Returns it as it is.
    ///
    /// # Errors
    /// Its own.
    pub fn judge<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            self.fail(error);
        }
        outcome
    }

    /// Fails once a change has failed half way: for those who began before, and are about to write what it
    /// has changed in memory, or to say that what it should have written is durable.
    ///
    /// # Errors
    /// [`Error::Io`] with the first reason.
    #[inline]
    pub fn sound(&self) -> Result<()> {
        if self.has_failed() {
            return Err(Error::Io(Failure::Earlier(self.failure().unwrap_or_default())));
        }
        Ok(())
    }

    /// Notes, if writing an inode or what it holds has failed, that nobody knows what the device holds of it.
    /// Returns the outcome as it is.
    ///
    /// # Errors
    /// Its own.
    pub fn judge_written<T>(&self, ino: Ino, outcome: Result<T>) -> Result<T> {
        let is_unknown = match &outcome {
            Err(Error::Io(_) | Error::Corrupt(_)) => true,
            // Another one failed while this one was under way.
            Err(Error::ReadOnly) => self.has_failed(),
            _ => false,
        };
        if is_unknown {
            self.unknown.lock().insert(ino);
        }
        outcome
    }

    /// Whether what the device holds of an inode is what it should be.
    ///
    /// # Errors
    /// [`Error::Io`] with the first reason, if [writing it](Self::judge_written) has failed.
    #[inline]
    pub fn known(&self, ino: Ino) -> Result<()> {
        if self.has_failed() && self.unknown.lock().contains(&ino) && !planted::has(Bug::UnknownRead) {
            return self.sound();
        }
        Ok(())
    }

    /// What was read, or why not. Once a change has failed half way, what cannot be right is half of what it
    /// did, not damage.
    ///
    /// # Errors
    /// Those of `outcome`; instead of [`Error::Corrupt`], [`Error::Io`] with the first reason.
    #[inline]
    pub fn explain<T>(&self, outcome: Result<T>) -> Result<T> {
        if matches!(outcome, Err(Error::Corrupt(_))) {
            self.sound()?;
        }
        outcome
    }

    /// Whether a change has failed half way.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Why the file system turned read-only, if it did.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }
}
