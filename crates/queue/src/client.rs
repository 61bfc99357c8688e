//! The client's end of a lane: one thread puts commands in and takes completions out, in order.

use std::sync::atomic::{Ordering, fence};

use crate::bell::Bell;
use crate::crowd::Crowd;
use crate::format::{
    ASLEEP_AT, COMPLETED_AT, COMPLETIONS_AT, Completion, DOORBELL_AT, ENDED_AT, ENTRIES, RUNG_AT,
    SUBMISSIONS_AT, SUBMITTED_AT, Submission, WAITING_AT,
};
use crate::memory::{Memory, Payload};

/// Whoever was rung for when the command was put in is given so long, ns, before it is rung for again.
const ON_ITS_WAY_NS: u64 = 1_000_000;

/// How a client waits for a completion.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Looks at the memory again and again for so long, ns, before it sleeps. If it has not rung yet it rings
    /// then, in case all who look for commands are held by other commands. Zero in virtual time, which stands
    /// still meanwhile: then it sleeps at once and does not ring.
    pub spin_ns: u64,
    /// Sleeps so long at a time, ns, before it asks whether the server is alive.
    pub sleep_ns: u64,
}

/// The server has ended, or died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server of the queue has ended; mount the file system again")]
pub struct Ended;

/// One lane, used by one thread.
#[derive(Debug)]
pub struct Client<'m> {
    memory: &'m Memory,
    lane: u32,
    at: usize,
    submitted: u32,
    completed: u32,
    /// It has rung for the last command.
    rang: bool,
    crowd: Crowd,
}

impl<'m> Client<'m> {
    /// The lane, which nobody else uses; it may have been used before.
    #[must_use]
    pub fn new(memory: &'m Memory, lane: u32) -> Self {
        let at = memory.geometry().lane_at(lane);
        let submitted = memory.word(at + SUBMITTED_AT).load(Ordering::Acquire);
        Self { memory, lane, at, submitted, completed: submitted, rang: false, crowd: Crowd::default() }
    }

    /// Where names and data of its commands go.
    #[must_use]
    pub fn payload(&self) -> Payload<'m> {
        self.memory.payload(self.lane)
    }

    /// Commands without a completion yet.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.submitted.wrapping_sub(self.completed)
    }

    /// Whether another command fits.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.in_flight() < ENTRIES
    }

    /// Puts a command in; its sequence number is filled in here. Its payload must stay as it is until the
    /// completion.
    ///
    /// # Panics
    /// Without [room](Self::has_room).
    pub fn submit(&mut self, command: Submission, bell: &impl Bell) {
        assert!(self.has_room(), "the lane is full");
        let slot = (self.submitted % ENTRIES) as usize;
        let entry = Submission { sequence: self.submitted.into(), ..command };
        self.memory.put_entry(self.at + SUBMISSIONS_AT + slot * size_of::<Submission>(), &entry);
        self.submitted = self.submitted.wrapping_add(1);
        self.memory.word(self.at + SUBMITTED_AT).store(self.submitted, Ordering::Release);
        // Pairs with the server's, between its word that it sleeps and its last look: one of the two sees the
        // other.
        fence(Ordering::SeqCst);
        self.rang = self.memory.word(ASLEEP_AT).load(Ordering::Relaxed) != 0;
        if self.rang {
            self.ring(bell);
        }
    }

    fn ring(&self, bell: &impl Bell) {
        let doorbell = self.memory.word(DOORBELL_AT);
        self.memory.word(RUNG_AT).store(bell.now_us(), Ordering::Relaxed);
        doorbell.fetch_add(1, Ordering::SeqCst);
        bell.ring(doorbell);
    }

    /// The next completion, if it is there.
    pub fn poll(&mut self) -> Option<Completion> {
        let done = self.memory.word(self.at + COMPLETED_AT).load(Ordering::Acquire);
        if self.in_flight() == 0 || done == self.completed {
            return None;
        }
        let slot = (self.completed % ENTRIES) as usize;
        self.completed = self.completed.wrapping_add(1);
        Some(self.memory.entry(self.at + COMPLETIONS_AT + slot * size_of::<Completion>()))
    }

    /// Waits for the next completion. `alive` is asked now and then while this sleeps.
    ///
    /// # Errors
    /// [`Ended`] if the server has said so or is not alive; the command may have been carried out.
    ///
    /// # Panics
    /// If no command is in flight.
    pub fn wait(
        &mut self,
        patience: Patience,
        bell: &impl Bell,
        alive: impl Fn() -> bool,
    ) -> Result<Completion, Ended> {
        assert!(self.in_flight() > 0, "nothing is in flight");
        if let Some(completion) = self.spin(patience.spin_ns) {
            return Ok(completion);
        }
        let mut sleep_ns = patience.sleep_ns;
        if patience.spin_ns > 0 {
            if self.rang {
                sleep_ns = sleep_ns.min(ON_ITS_WAY_NS);
            } else {
                self.ring(bell);
            }
        }
        let mut rung_ns = amphi_rt::time::now_ns();
        let (waiting, completed) =
            (self.memory.word(self.at + WAITING_AT), self.memory.word(self.at + COMPLETED_AT));
        loop {
            waiting.store(1, Ordering::Relaxed);
            // Pairs with the server's, between its count and its look at our word.
            fence(Ordering::SeqCst);
            let found = self.poll();
            if found.is_none() && self.memory.word(ENDED_AT).load(Ordering::Acquire) == 0 {
                bell.sleep(completed, self.completed, sleep_ns);
            }
            waiting.store(0, Ordering::Relaxed);
            if let Some(completion) = found.or_else(|| self.poll()) {
                return Ok(completion);
            }
            if self.memory.word(ENDED_AT).load(Ordering::Acquire) != 0 || !alive() {
                // It may have answered before it ended.
                return self.poll().ok_or(Ended);
            }
            // Whoever was rung for may have been about to sleep, and not have heard it. Who is woken early
            // does not ring: two clients whose bells are one would wake each other for ever.
            let now_ns = amphi_rt::time::now_ns();
            if now_ns - rung_ns >= sleep_ns {
                self.ring(bell);
                (rung_ns, sleep_ns) = (now_ns, patience.sleep_ns);
            }
        }
    }

    fn spin(&mut self, spin_ns: u64) -> Option<Completion> {
        let mut crowd = std::mem::take(&mut self.crowd);
        let completion = crowd.look(spin_ns, || self.poll());
        self.crowd = crowd;
        completion
    }
}
