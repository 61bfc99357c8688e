//! Requests are served on the processor of the one who asks, as long as that is one.
//!
//! A thread that is woken on another processor costs more than most requests do. All serving threads wait for the same queue, and the kernel wakes the
//! one that has waited longest, whoever asks: with a thread bound to each processor every second request of a lone caller goes to the wrong one. So the
//! threads go together: now and then one looks on which processor its caller is, and all of them move there. Several callers on several processors are
//! left to the kernel, and so is a caller that does not stay where it is.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Requests of a thread between two looks. A look costs about ten microseconds.
const REQUESTS_PER_LOOK: u32 = 128;

/// Looks that decide.
const LOOKS: usize = 4;

/// No processor in particular.
const ANYWHERE: u32 = u32::MAX;

thread_local! {
    /// Requests that this thread serves before it looks again.
    static BEFORE_LOOK: Cell<u32> = const { Cell::new(0) };
    /// Where this thread has bound itself.
    static BOUND: Cell<u32> = const { Cell::new(ANYWHERE) };
}

/// Where a thread was found on a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    thread: u32,
    processor: u32,
}

/// What the serving threads of a mount know of their callers.
#[derive(Debug)]
pub(crate) struct Follow {
    /// The last looks, one after the other around the ring. All ones: none yet.
    looks: [AtomicU64; LOOKS],
    taken: AtomicU32,
    /// Where the threads should be.
    place: AtomicU32,
    /// Where this process may run; none if it has no choice.
    allowed: Option<CpuSet>,
}

impl Follow {
    /// Nobody is followed yet.
    pub(crate) fn new() -> Self {
        Self {
            looks: [const { AtomicU64::new(u64::MAX) }; LOOKS],
            taken: AtomicU32::new(0),
            place: AtomicU32::new(ANYWHERE),
            allowed: sched_getaffinity(None).ok().filter(|allowed| allowed.count() > 1),
        }
    }

    /// Moves the calling thread to where it should be; `caller` is the thread whose request it begins to serve.
    pub(crate) fn serve(&self, caller: u32) {
        let Some(allowed) = &self.allowed else { return };
        // Requests of the kernel itself come from nowhere.
        if caller == 0 {
            return;
        }
        let before = BEFORE_LOOK.get();
        if before > 0 {
            BEFORE_LOOK.set(before - 1);
        } else {
            BEFORE_LOOK.set(REQUESTS_PER_LOOK);
            self.look(caller, allowed);
        }
        let place = self.place.load(Ordering::Relaxed);
        if place != BOUND.get() {
            bind(place, allowed);
        }
    }

    fn look(&self, caller: u32, allowed: &CpuSet) {
        // A caller that cannot be seen is not followed; the next one may be.
        let Some(processor) = processor_of(caller) else { return };
        if processor as usize >= CpuSet::MAX_CPU || !allowed.is_set(processor as usize) {
            return self.place.store(ANYWHERE, Ordering::Relaxed);
        }
        let slot = self.taken.fetch_add(1, Ordering::Relaxed);
        let newest = slot as usize % LOOKS;
        self.looks[newest].store(u64::from(caller) << 32 | u64::from(processor), Ordering::Relaxed);
        // Oldest first. Looks of several threads at once may get mixed up, which costs a move that was not necessary.
        let looks = (1..=LOOKS).filter_map(|step| {
            let look = self.looks[(newest + step) % LOOKS].load(Ordering::Relaxed);
            (look != u64::MAX).then_some(Look { thread: (look >> 32) as u32, processor: look as u32 })
        });
        self.place.store(place(looks), Ordering::Relaxed);
    }
}

/// Where to serve callers that were found at `looks`, the oldest first.
fn place(looks: impl Iterator<Item = Look>) -> u32 {
    let mut looks = looks.peekable();
    let mut moves = 0;
    while let Some(look) = looks.next() {
        match looks.peek() {
            None => return look.processor,
            Some(next) if next.processor == look.processor => {}
            // Two callers at once, or one that does not stay: by the time the threads are there it is elsewhere.
            Some(next) if next.thread != look.thread || moves == 1 => return ANYWHERE,
            Some(_) => moves += 1,
        }
    }
    ANYWHERE
}

/// Binds the calling thread to a processor, or to none of those that are allowed.
fn bind(place: u32, allowed: &CpuSet) {
    let set = if place == ANYWHERE {
        *allowed
    } else {
        let mut one = CpuSet::new();
        one.set(place as usize);
        one
    };
    // A processor that has gone offline refuses; then the thread stays where it is, and works.
    if let Err(cause) = sched_setaffinity(None, &set) {
        tracing::debug!("a serving thread cannot go to processor {place}: {cause}");
    }
    BOUND.set(place);
}

/// The processor on which a thread runs, or ran last.
fn processor_of(thread: u32) -> Option<u32> {
    let stat = std::fs::read(format!("/proc/{thread}/task/{thread}/stat")).ok()?;
    parse(&stat)
}

/// Field 39 of a line of `/proc/PID/stat`. The second is a name in parentheses that may hold anything.
fn parse(stat: &[u8]) -> Option<u32> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    let field = std::str::from_utf8(&stat[name_end + 1..]).ok()?.split_ascii_whitespace().nth(36)?;
    field.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(looks: &[(u32, u32)]) -> u32 {
        place(looks.iter().map(|&(thread, processor)| Look { thread, processor }))
    }

    #[test]
    fn a_lone_caller_is_followed() {
        assert_eq!(placed(&[]), ANYWHERE);
        assert_eq!(placed(&[(7, 1)]), 1);
        assert_eq!(placed(&[(7, 1), (7, 1), (7, 1), (7, 1)]), 1);
        assert_eq!(placed(&[(7, 1), (7, 1), (7, 1), (7, 0)]), 0, "it has moved");
        assert_eq!(placed(&[(7, 1), (8, 1), (9, 1), (9, 1)]), 1, "one after the other, on one processor");
    }

    #[test]
    fn several_callers_or_a_restless_one_are_not() {
        assert_eq!(placed(&[(7, 1), (8, 0), (7, 1), (8, 0)]), ANYWHERE);
        assert_eq!(placed(&[(7, 1), (7, 1), (7, 1), (8, 0)]), ANYWHERE);
        assert_eq!(placed(&[(7, 1), (7, 0), (7, 1), (7, 1)]), ANYWHERE);
    }

    #[test]
    fn the_processor_of_a_thread_is_found() {
        let mut line = b"7 (a) b 1) S".to_vec();
        for field in 4..=52 {
            line.extend(format!(" {}", field * 10).bytes());
        }
        assert_eq!(parse(&line), Some(390));
        assert_eq!(parse(b"7 (short) S 1"), None);
        assert_eq!(parse(b""), None);
        let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(processor_of(own).is_some());
    }

    #[test]
    fn a_thread_goes_where_its_caller_is() {
        let Some(allowed) = Follow::new().allowed else { return };
        let homes: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor)).collect();
        for home in [homes[0], homes[1]] {
            bind(home as u32, &allowed);
            let mut caller = std::process::Command::new("sleep").arg("600").spawn().unwrap();
            bind(ANYWHERE, &allowed);
            let follow = Follow::new();
            BEFORE_LOOK.set(0);
            follow.serve(caller.id());
            let bound = sched_getaffinity(None).unwrap();
            caller.kill().unwrap();
            caller.wait().unwrap();
            bind(ANYWHERE, &allowed);
            assert!(bound.count() == 1 && bound.is_set(home), "bound to {bound:?}, its caller to {home}");
        }
    }
}
