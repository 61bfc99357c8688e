//! Whether others want the processor of a thread that looks at memory again and again.
//!
//! Where there are more such threads than processors, one that goes on looking keeps the one that it waits
//! for from running. Letting it run takes a system call, which tells by its duration whether somebody did.

use amphi_rt::{task, time};

/// How long a thread looks, ns, before it lets others run in case there are any.
pub const ALONE_NS: u64 = 5_000;
/// Whoever lets others run and is back sooner, ns, was alone: the system call by itself takes 100 to 700.
const BACK_NS: u64 = 1_500;

/// What a thread has found out lately.
#[derive(Debug, Default)]
pub struct Crowd {
    /// Somebody else ran when this thread last let them.
    there: bool,
}

impl Crowd {
    /// Whether somebody else wants this thread's processor: then looking again is of no use before they had
    /// it.
    #[must_use]
    pub const fn is_there(&self) -> bool {
        self.there
    }

    /// Lets others run.
    pub fn make_way(&mut self) {
        let begin_ns = time::now_ns();
        task::yield_now();
        self.there = time::now_ns() - begin_ns > BACK_NS;
    }
}
