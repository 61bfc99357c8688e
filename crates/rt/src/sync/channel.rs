//! A queue between tasks: many senders, many receivers, in order, with or without a bound.

use super::{Condvar, Mutex};
use crate::time::Deadline;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Why nothing was sent; the value comes back.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SendError<T> {
    /// All receivers are gone.
    #[error("all receivers of the channel are gone")]
    Closed(T),
    /// The channel holds as much as it may.
    #[error("the channel is full")]
    Full(T),
}

/// Why nothing was received.
#[derive(Debug, Error, PartialEq, Eq, Clone, Copy)]
pub enum ReceiveError {
    /// All senders are gone and the channel is empty.
    #[error("all senders of the channel are gone")]
    Closed,
    /// The channel is empty.
    #[error("the channel is empty")]
    Empty,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    emptied: Condvar,
}

struct State<T> {
    values: VecDeque<T>,
    capacity: usize,
    senders: usize,
    receivers: usize,
}

/// The end of a channel that values go into.
pub struct Sender<T>(Arc<Shared<T>>);

/// The end of a channel that values come out of.
pub struct Receiver<T>(Arc<Shared<T>>);

/// A channel that holds at most `capacity` values; `usize::MAX` for no bound.
///
/// # Panics
/// If `capacity` is zero.
#[must_use]
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a channel holds at least one value");
    let state = State { values: VecDeque::new(), capacity, senders: 1, receivers: 1 };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        filled: Condvar::named("a value in channel"),
        emptied: Condvar::named("room in channel"),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    /// Puts a value in, after waiting for room.
    ///
    /// # Errors
    /// [`SendError::Closed`].
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut state = self.0.state.lock();
        while state.values.len() >= state.capacity && state.receivers > 0 {
            self.0.emptied.wait(&mut state);
        }
        self.put(&mut state, value)
    }

    /// Puts a value in if there is room.
    ///
    /// # Errors
    /// [`SendError::Full`] or [`SendError::Closed`].
    pub fn try_send(&self, value: T) -> Result<(), SendError<T>> {
        let mut state = self.0.state.lock();
        if state.values.len() >= state.capacity && state.receivers > 0 {
            return Err(SendError::Full(value));
        }
        self.put(&mut state, value)
    }

    fn put(&self, state: &mut State<T>, value: T) -> Result<(), SendError<T>> {
        if state.receivers == 0 {
            return Err(SendError::Closed(value));
        }
        state.values.push_back(value);
        self.0.filled.notify_one();
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Takes the oldest value, after waiting for one.
    ///
    /// # Errors
    /// [`ReceiveError::Closed`].
    pub fn receive(&self) -> Result<T, ReceiveError> {
        self.take(Deadline::NEVER)
    }

    /// As [`Receiver::receive`], waiting at most for `timeout`.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] when the time is over, or [`ReceiveError::Closed`].
    pub fn receive_for(&self, timeout: Duration) -> Result<T, ReceiveError> {
        self.take(Deadline::after(timeout))
    }

    /// Takes the oldest value if there is one.
    ///
    /// # Errors
    /// [`ReceiveError::Empty`] or [`ReceiveError::Closed`].
    pub fn try_receive(&self) -> Result<T, ReceiveError> {
        self.take(Deadline::at_ns(0))
    }

    /// Number of values in the channel.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.state.lock().values.len()
    }

    /// Whether no value is in the channel.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take(&self, deadline: Deadline) -> Result<T, ReceiveError> {
        let mut state = self.0.state.lock();
        let mut late = deadline == Deadline::at_ns(0);
        loop {
            if let Some(value) = state.values.pop_front() {
                self.0.emptied.notify_one();
                return Ok(value);
            }
            if state.senders == 0 {
                return Err(ReceiveError::Closed);
            }
            if late {
                return Err(ReceiveError::Empty);
            }
            late = self.0.filled.wait_deadline(&mut state, deadline).timed_out();
        }
    }
}

/// Takes values until all senders are gone.
impl<T> Iterator for Receiver<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receive().ok()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().receivers += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.senders -= 1;
        if state.senders == 0 {
            self.0.filled.notify_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.receivers -= 1;
        if state.receivers == 0 {
            // Nobody will take these; what they own may be waited for.
            let values = std::mem::take(&mut state.values);
            self.0.emptied.notify_all();
            drop(state);
            drop(values);
        }
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("waiting", &self.0.state.lock().values.len()).finish()
    }
}

impl<T> std::fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("waiting", &self.0.state.lock().values.len()).finish()
    }
}
