//! The server's end: takes commands out of lanes and puts completions in. What it knows of a lane it keeps to
//! itself; from the memory it takes only a count and copies of entries, and both may be anything.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::bell::Bell;
use crate::format::{
    ASLEEP_AT, COMPLETED_AT, COMPLETIONS_AT, Completion, DOORBELL_AT, ENDED_AT, ENTRIES, RUNG_AT,
    SUBMISSIONS_AT, SUBMITTED_AT, Submission, WAITING_AT,
};
use crate::memory::{Memory, Payload};

/// What the server knows of one lane. One thread at a time has it.
#[derive(Debug)]
pub struct Lane {
    number: u32,
    at: usize,
    /// Submissions taken, which is also the completions given but for the one being served.
    taken: u32,
    /// The client's count cannot be right; the lane is served no more.
    broken: bool,
}

impl Lane {
    /// Whether the client has made the lane unusable for itself.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.broken
    }
}

/// The server of one memory.
#[derive(Clone, Debug)]
pub struct Server {
    memory: Arc<Memory>,
}

impl Server {
    /// Serves a queue that was just begun.
    #[must_use]
    pub const fn new(memory: Arc<Memory>) -> Self {
        Self { memory }
    }

    /// All lanes, to be given to the threads that serve them.
    #[must_use]
    pub fn lanes(&self) -> Vec<Lane> {
        let geometry = self.memory.geometry();
        (0..geometry.lanes())
            .map(|number| Lane { number, at: geometry.lane_at(number), taken: 0, broken: false })
            .collect()
    }

    /// Names and data of the lane's commands.
    #[must_use]
    pub fn payload(&self, lane: &Lane) -> Payload<'_> {
        self.memory.payload(lane.number)
    }

    /// Whether a command waits in the lane.
    #[must_use]
    pub fn has_work(&self, lane: &Lane) -> bool {
        !lane.broken
            && self.memory.word(lane.at + SUBMITTED_AT).load(Ordering::Acquire).wrapping_sub(lane.taken) != 0
    }

    /// A copy of the lane's next command, to be answered before the next is taken.
    pub fn take(&self, lane: &mut Lane) -> Option<Submission> {
        let submitted = self.memory.word(lane.at + SUBMITTED_AT).load(Ordering::Acquire);
        let waiting = submitted.wrapping_sub(lane.taken);
        lane.broken |= waiting > ENTRIES;
        if waiting == 0 || lane.broken {
            return None;
        }
        let slot = (lane.taken % ENTRIES) as usize;
        Some(self.memory.entry(lane.at + SUBMISSIONS_AT + slot * size_of::<Submission>()))
    }

    /// Whether `submission`, just taken from the lane, was put there for this turn and is not what the ring
    /// held before.
    #[must_use]
    pub const fn is_fresh(&self, lane: &Lane, submission: &Submission) -> bool {
        submission.sequence.get() == lane.taken
    }

    /// Answers the command that was taken last.
    pub fn complete(&self, lane: &mut Lane, completion: Completion, bell: &impl Bell) {
        let slot = (lane.taken % ENTRIES) as usize;
        let entry = Completion { sequence: lane.taken.into(), ..completion };
        self.memory.put_entry(lane.at + COMPLETIONS_AT + slot * size_of::<Completion>(), &entry);
        lane.taken = lane.taken.wrapping_add(1);
        let completed = self.memory.word(lane.at + COMPLETED_AT);
        completed.store(lane.taken, Ordering::Release);
        // Pairs with the client's, between its word that it waits and its last look.
        fence(Ordering::SeqCst);
        if self.memory.word(lane.at + WAITING_AT).load(Ordering::Relaxed) != 0 {
            bell.wake(completed);
        }
    }

    /// Sleeps until a client rings, for `limit_ns` at the most, unless `has_work` finds something once
    /// clients know that they must ring.
    pub fn sleep(&self, bell: &impl Bell, limit_ns: u64, has_work: impl FnOnce() -> bool) {
        let (asleep, doorbell) = (self.memory.word(ASLEEP_AT), self.memory.word(DOORBELL_AT));
        let seen = doorbell.load(Ordering::SeqCst);
        asleep.fetch_add(1, Ordering::SeqCst);
        // Pairs with the client's, between its count of submissions and its look at our word.
        fence(Ordering::SeqCst);
        if !has_work() {
            bell.sleep(doorbell, seen, limit_ns);
        }
        asleep.fetch_sub(1, Ordering::SeqCst);
    }

    /// As [`sleep`](Self::sleep), for threads each of which serves all lanes: clients need not ring while one
    /// of them looks for commands. Whoever is the last to look says so here. Whoever wakes up
    /// [looks](Self::looks) for all.
    ///
    /// After how long, ns, a client rang, or all the time if none did: a thread that is woken runs some 50 us
    /// later where its processor slept too.
    pub fn stand_by(
        &self,
        bell: &impl Bell,
        limit_ns: u64,
        is_last: bool,
        has_work: impl FnOnce() -> bool,
    ) -> u64 {
        let begin_us = bell.now_us();
        let (asleep, doorbell) = (self.memory.word(ASLEEP_AT), self.memory.word(DOORBELL_AT));
        let seen = doorbell.load(Ordering::SeqCst);
        if is_last {
            asleep.store(1, Ordering::SeqCst);
        }
        // As in `sleep`.
        fence(Ordering::SeqCst);
        if has_work() {
            return 0;
        }
        bell.sleep(doorbell, seen, limit_ns);
        let all_us = bell.now_us().wrapping_sub(begin_us);
        let rung_us = self.memory.word(RUNG_AT).load(Ordering::Relaxed).wrapping_sub(begin_us);
        // The client's word is believed within what may be.
        u64::from(rung_us.min(all_us)) * 1000
    }

    /// Tells clients that somebody looks for commands, whoever [stands by](Self::stand_by).
    pub fn looks(&self) {
        let asleep = self.memory.word(ASLEEP_AT);
        if asleep.load(Ordering::SeqCst) != 0 {
            asleep.store(0, Ordering::SeqCst);
        }
    }

    /// Wakes the server's own threads, so that they see that they shall end.
    pub fn wake(&self, bell: &impl Bell) {
        let doorbell = self.memory.word(DOORBELL_AT);
        doorbell.fetch_add(1, Ordering::SeqCst);
        bell.wake(doorbell);
    }

    /// Tells all clients that nothing is served any more.
    pub fn end(&self, bell: &impl Bell) {
        self.memory.word(ENDED_AT).store(1, Ordering::SeqCst);
        for lane in self.lanes() {
            bell.wake(self.memory.word(lane.at + COMPLETED_AT));
        }
    }
}
