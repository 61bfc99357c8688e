//! Device time: how long a transfer or flash operation takes, and what it has to wait for.
//!
//! Every shared resource is a timeline: the moment until which it is booked. Booking is one atomic update, so the completion time of a
//! command is known when it is submitted, in real and in virtual time alike. With a free profile no clock is read at all, and
//! every moment is 0, which has always passed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Profile;

mod dies;

use dies::Die;

/// A resource that serves one thing at a time.
#[derive(Debug, Default)]
struct Timeline(AtomicU64);

impl Timeline {
    /// Books `ns` from `earliest` or later; answers when the booking ends.
    fn book(&self, earliest: u64, ns: u64) -> u64 {
        let mut busy = self.0.load(Ordering::Relaxed);
        loop {
            let end = busy.max(earliest) + ns;
            match self.0.compare_exchange_weak(busy, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return end,
                Err(now) => busy = now,
            }
        }
    }
}

/// The device's resources and the times they take, dilation included.
#[derive(Debug)]
pub(crate) struct Timing {
    free: bool,
    line_read_ns: u64,
    line_write_ns: u64,
    command_ns: u64,
    read_ns: u64,
    program_ns: u64,
    erase_ns: u64,
    transfer_ns: u64,
    retry_ns: u64,
    /// ns per byte, times 2^20.
    to_host: u64,
    to_device: u64,
    link_to_host: Timeline,
    link_to_device: Timeline,
    channels: Box<[Timeline]>,
    dies: Box<[Die]>,
    buffer: Box<[AtomicU64]>,
    buffered: AtomicU64,
}

impl Timing {
    /// The times of a profile, multiplied by `dilation`; none at all if `free` or the profile is.
    pub(crate) fn new(profile: &Profile, dilation: f64, free: bool) -> Self {
        let scale = |ns: u64| (ns as f64 * dilation) as u64;
        let per_byte = |mb_s: u64| match mb_s {
            0 => 0,
            mb_s => (1000.0 / mb_s as f64 * dilation * f64::from(1 << 20)) as u64,
        };
        let (link, flash) = (&profile.link, &profile.flash);
        let timelines = |count: u64| (0..count).map(|_| Timeline::default()).collect();
        Self {
            free: free || profile.is_free(),
            line_read_ns: scale(link.line_read_ns),
            line_write_ns: scale(link.line_write_ns),
            command_ns: scale(link.command_ns),
            read_ns: scale(flash.read_ns),
            program_ns: scale(flash.program_ns),
            erase_ns: scale(flash.erase_ns),
            transfer_ns: scale(flash.transfer_ns),
            retry_ns: scale(profile.media.read_retry_ns),
            to_host: per_byte(link.read_mb_s),
            to_device: per_byte(link.write_mb_s),
            link_to_host: Timeline::default(),
            link_to_device: Timeline::default(),
            channels: timelines(flash.channels),
            dies: (0..flash.channels * flash.ways).map(|_| Die::default()).collect(),
            buffer: (0..flash.write_buffer_pages).map(|_| AtomicU64::new(0)).collect(),
            buffered: AtomicU64::new(0),
        }
    }

    /// Whether nothing takes time.
    pub(crate) const fn is_free(&self) -> bool {
        self.free
    }

    /// Now, or 0 where nothing takes time.
    pub(crate) fn now(&self) -> u64 {
        if self.free { 0 } else { amphi_rt::time::now_ns() }
    }

    /// Sleeps until a moment that this structure named.
    pub(crate) fn wait(&self, until: u64) {
        if until > 0 {
            amphi_rt::time::sleep_until_ns(until);
        }
    }

    /// Bytes travel to the host, after a command's fixed part.
    pub(crate) fn to_host(&self, from: u64, bytes: u64) -> u64 {
        if self.free {
            return 0;
        }
        self.link_to_host.book(from, (bytes * self.to_host) >> 20) + self.command_ns
    }

    /// Bytes travel to the device, after a command's fixed part.
    pub(crate) fn to_device(&self, from: u64, bytes: u64) -> u64 {
        if self.free {
            return 0;
        }
        self.link_to_device.book(from, (bytes * self.to_device) >> 20) + self.command_ns
    }

    /// A command without data.
    pub(crate) fn command(&self) -> u64 {
        if self.free { 0 } else { self.now() + self.command_ns }
    }

    /// Lines are loaded one after the other.
    pub(crate) fn load_lines(&self, from: u64, lines: u64) -> u64 {
        if self.free {
            return 0;
        }
        self.link_to_host.book(from, (lines * 64 * self.to_host) >> 20);
        from + lines * self.line_read_ns
    }

    /// Posted lines arrive and a write-verify read returns: the latency of one line, and the link's time for the others.
    pub(crate) fn verify_lines(&self, lines: u64) -> u64 {
        if self.free {
            return 0;
        }
        let now = self.now();
        let ns = (lines.saturating_sub(1) * 64 * self.to_device) >> 20;
        self.link_to_device.book(now, ns).max(now) + self.line_write_ns
    }

    /// The die of a plane. Planes are numbered through all dies: the first of each, then the second.
    fn die(&self, plane: u64) -> &Die {
        &self.dies[plane as usize % self.dies.len()]
    }

    /// A die reads a page and the channel carries it. `die` is the number of the plane.
    pub(crate) fn read_page(&self, from: u64, die: u64) -> u64 {
        if self.free {
            return 0;
        }
        let read = self.die(die).book(from, self.read_ns);
        self.over_channel(read, die)
    }

    /// A die reads a page once more, with other thresholds. Answers when it is done.
    pub(crate) fn retry_read(&self, from: u64, die: u64) -> u64 {
        if self.free { 0 } else { self.die(die).book(from, self.retry_ns) }
    }

    fn over_channel(&self, from: u64, die: u64) -> u64 {
        if self.transfer_ns == 0 {
            return from;
        }
        self.channels[die as usize % self.channels.len()].book(from, self.transfer_ns)
    }

    /// A page enters the write buffer, which a program on `die` will empty. Answers when it is admitted.
    pub(crate) fn program_page(&self, from: u64, die: u64) -> u64 {
        if self.free {
            return 0;
        }
        let slot = self.buffered.fetch_add(1, Ordering::Relaxed) as usize % self.buffer.len();
        let admitted = from.max(self.buffer[slot].load(Ordering::Relaxed));
        let programmed = self.die(die).program(
            self.over_channel(admitted, die),
            self.program_ns,
            die / self.dies.len() as u64,
        );
        self.buffer[slot].store(programmed, Ordering::Relaxed);
        admitted
    }

    /// When the write buffer is empty, if nothing more enters it.
    pub(crate) fn all_programmed(&self) -> u64 {
        if self.free {
            return 0;
        }
        self.buffer.iter().map(|slot| slot.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// A die erases a block. Answers when it is done.
    pub(crate) fn erase_block(&self, from: u64, die: u64) -> u64 {
        if self.free { 0 } else { self.die(die).book(from, self.erase_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing() -> Timing {
        Timing::new(&Profile::named("mssd-pcie3").expect("valid"), 1.0, false)
    }

    #[test]
    fn reads_of_one_die_queue_and_of_two_dies_overlap() {
        let timing = timing();
        assert_eq!(timing.read_page(1000, 0), 41_000);
        assert_eq!(timing.read_page(1000, 1), 41_000);
        assert_eq!(timing.read_page(1000, 0), 81_000);
    }

    #[test]
    fn the_link_carries_its_bandwidth() {
        let timing = timing();
        let one = timing.to_device(0, 1 << 20);
        let two = timing.to_device(0, 1 << 20);
        let ns = (two - one) as f64;
        assert!(((1 << 20) as f64 / ns * 1000.0 - 2500.0).abs() < 1.0, "{ns} ns a MiB");
    }

    #[test]
    fn a_full_write_buffer_admits_at_the_pace_of_programs() {
        let timing = timing();
        let pages = timing.buffer.len() as u64;
        for page in 0..pages {
            assert_eq!(timing.program_page(0, page % 64), 0);
        }
        assert_eq!(timing.program_page(0, 0), 60_000);
    }

    #[test]
    fn a_free_device_never_asks_the_clock() {
        let timing = Timing::new(&Profile::named("free").expect("valid"), 1.0, false);
        assert_eq!((timing.now(), timing.verify_lines(9), timing.to_host(0, 4096)), (0, 0, 0));
    }
}
