//! How commands of this process reach a mount's file system: by a queue to its daemon, or by calls into the
//! range in which it lies, where the mount has one and lets this process in.
//!
//! Both take the same commands and give the same answers, so nothing else here knows which it is. In a range
//! the payload lies in this process's own memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use amphi_front_queue::{Connection, FreeLanes, FutexBell, LaneGuard, reach};
use amphi_front_shared::hello::range_of;
use amphi_front_shared::{Client, signals};
use amphi_queue::format::{Completion, Submission};
use amphi_queue::{Geometry, Memory, Patience, Payload};

/// How long a thread looks for a queue's answer before it sleeps, ns; how long it sleeps before it asks
/// whether the daemon lives.
const PATIENCE: Patience = Patience { spin_ns: 30_000, sleep_ns: 200_000_000 };
/// Threads that can give commands to a range at a time; others use the kernel.
const LANES: u32 = 64;
/// Bytes of names and data of one command, as in a queue. Pages that are not touched take no memory.
const PAYLOAD_BYTES: u32 = 1 << 20;

/// A way into one mount's file system.
#[derive(Debug)]
pub enum Way {
    Queue(Connection),
    Range(Range),
}

/// A range, and memory for what commands carry.
#[derive(Debug)]
pub struct Range {
    client: Client,
    memory: Memory,
    free: FreeLanes,
}

impl Way {
    /// The best way into the mount with the device number, which `owner` mounted. `root` is open on its root.
    pub fn find(
        device: u64,
        owner: u32,
        root: impl AsFd,
        moved: impl Fn(OwnedFd) -> OwnedFd,
    ) -> Option<Self> {
        let reached = reach(device, owner).ok()?;
        let range = Client::connect_moved(&range_of(reached.process), &moved).ok();
        if let Some(client) = range
            && let Some(geometry) = Geometry::new(LANES, PAYLOAD_BYTES)
            && let Ok(memory) = Memory::private(geometry)
        {
            signals::defer();
            return Some(Self::Range(Range { client, memory, free: FreeLanes::new(LANES) }));
        }
        Some(Self::Queue(reached.enter(root).ok()?.moved(moved)))
    }

    /// A lane for one thread; none if all are taken.
    pub fn lane(&'static self) -> Option<Lane> {
        match self {
            Self::Queue(connection) => {
                connection.lane().map(|lane| Lane::Queue(Queued { connection, lane, lost: false }))
            }
            Self::Range(range) => Some(Lane::Range { range, number: range.free.take()? }),
        }
    }

    /// The descriptor that ends it when it is closed.
    pub fn socket(&self) -> BorrowedFd<'_> {
        match self {
            Self::Queue(connection) => connection.socket(),
            Self::Range(range) => range.client.socket(),
        }
    }

    /// Whether it leads into a range.
    pub const fn is_range(&self) -> bool {
        matches!(self, Self::Range(_))
    }

    /// Waits until no command is under way that was when this was called, where one would be inside of this
    /// process.
    pub fn await_outside(&self) {
        if let Self::Range(range) = self {
            range.client.await_outside();
        }
    }

    /// Lets no command be under way any more, and none begin: the process is about to end or to become
    /// another program. A queue does not mind.
    pub fn leave(&self) {
        if let Self::Range(range) = self {
            range.client.leave();
        }
    }
}

/// One thread's part of a way. Dropping it gives it to another thread.
#[derive(Debug)]
pub enum Lane {
    Queue(Queued),
    Range { range: &'static Range, number: u32 },
}

/// A lane of a queue.
#[derive(Debug)]
pub struct Queued {
    connection: &'static Connection,
    lane: LaneGuard<'static>,
    /// A command was never answered and never will be.
    lost: bool,
}

impl Queued {
    /// Waits for all answers; the last one. None: the daemon is gone.
    fn settle(&mut self) -> Option<Completion> {
        let mut last = None;
        while self.lane.client.in_flight() > 0 && !self.lost {
            let answer = self.lane.client.wait(PATIENCE, &FutexBell, || self.connection.is_alive());
            self.lost = answer.is_err();
            last = answer.ok();
        }
        last
    }

    /// Submits a command, once there is room for it. Whether it could.
    fn submit(&mut self, submission: Submission) -> bool {
        while self.lane.client.poll().is_some() {}
        if !self.lane.client.has_room() {
            self.settle();
        }
        if !self.lost {
            self.lane.client.submit(submission, &FutexBell);
        }
        !self.lost
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        // Who gets the lane next finds nothing under way.
        self.settle();
    }
}

impl Lane {
    /// Where names and data of its commands go.
    pub fn payload(&self) -> Payload<'static> {
        match self {
            Self::Queue(queued) => queued.lane.client.payload(),
            Self::Range { range, number } => range.memory.payload(*number),
        }
    }

    /// Gives a command and waits for its answer. None: the file system is gone, or this way to it.
    pub fn exchange(&mut self, submission: Submission) -> Option<Completion> {
        match self {
            Self::Queue(queued) => {
                if !queued.submit(submission) {
                    return None;
                }
                queued.settle()
            }
            Self::Range { range, number } => range.client.command(&submission, range.memory.payload(*number)),
        }
    }

    /// Gives a command that carries nothing and whose answer nobody needs. It is carried out before the next
    /// one of this lane.
    pub fn post(&mut self, submission: Submission) {
        match self {
            Self::Queue(queued) => {
                queued.submit(submission);
            }
            Self::Range { .. } => drop(self.exchange(submission)),
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Self::Range { range, number } = self {
            range.free.give_back(*number);
        }
    }
}
