//! Device time: how long a transfer or flash operation takes, and what it has to wait for.
//!
//! Every shared resource is a timeline: the moment until which it is booked. Booking is one atomic update, so
//! the completion time of a command is known when it is submitted, in real and in virtual time alike. With a
//! free profile no clock is read at all, and every moment is 0, which has always passed.

mod commands;
mod dies;
mod link;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::profile::{LinkKind, LinkProfile};
use crate::{Firmware, Profile};
use commands::Commands;
use dies::Die;
use link::Link;

/// A time of the profile, dilated.
fn scaled(value: u64, dilation: f64) -> u64 {
    (value as f64 * dilation) as u64
}

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
    link: Link,
    commands: Option<Box<Commands>>,
    command_cpu_ns: u64,
    entry_cpu_ns: u64,
    page_cpu_ns: u64,
    fill_page_ns: u64,
    firmware: Box<[Timeline]>,
    read_ns: u64,
    program_ns: u64,
    erase_ns: u64,
    transfer_ns: u64,
    retry_ns: u64,
    channels: Box<[Timeline]>,
    dies: Box<[Die]>,
    buffer: Box<[AtomicU64]>,
    buffered: AtomicU64,
}

impl Timing {
    /// The times of a profile, multiplied by `dilation`; none at all if `free` or the profile is.
    pub(crate) fn new(profile: &Profile, dilation: f64, free: bool) -> Self {
        let mut inside = profile.clone();
        let free = free || profile.is_free();
        let mut commands = None;
        if profile.firmware.kind == Firmware::FileSystem {
            commands = Some(Box::new(Commands::new(profile, dilation, free)));
            // Its ports are the firmware's own: there is no link, and no command to take apart.
            let link = LinkProfile { kind: LinkKind::Unlimited, read_mb_s: 0, write_mb_s: 0, ..inside.link };
            let link =
                LinkProfile { line_read_ns: 0, line_write_ns: 0, command_ns: 0, load_gap_ps: 0, ..link };
            let link = LinkProfile { post_ns: 0, post_gap_ps: 0, store_gap_ps: 0, ..link };
            inside.link = LinkProfile { stream_store_gap_ps: 0, ..link };
            inside.queue.interrupt_ns = 0;
            // What is a command at a port is a transfer that a processor starts.
            let firmware = &mut inside.firmware;
            (firmware.command_cpu_ns, firmware.entry_cpu_ns) = (firmware.page_cpu_ns, 0);
        }
        let profile = &inside;
        let scale = |ns: u64| scaled(ns, dilation);
        let (firmware, flash) = (&profile.firmware, &profile.flash);
        let timelines = |count: u64| (0..count).map(|_| Timeline::default()).collect();
        Self {
            free,
            link: Link::new(profile, dilation, free),
            commands,
            command_cpu_ns: scale(firmware.command_cpu_ns),
            entry_cpu_ns: scale(firmware.entry_cpu_ns),
            page_cpu_ns: scale(firmware.page_cpu_ns),
            fill_page_ns: scale(firmware.fill_page_ns),
            firmware: timelines(firmware.cores),
            read_ns: scale(flash.read_ns),
            program_ns: scale(flash.program_ns),
            erase_ns: scale(flash.erase_ns),
            transfer_ns: scale(flash.transfer_ns),
            retry_ns: scale(profile.media.read_retry_ns),
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

    /// The firmware works for `ns` on the processor that is free first; answers when it is done.
    fn firmware(&self, from: u64, ns: u64) -> u64 {
        if ns == 0 {
            return from;
        }
        let free_first = self.firmware.iter().min_by_key(|core| core.0.load(Ordering::Relaxed));
        free_first.map_or(from, |core| core.book(from, ns))
    }

    /// When the firmware has prepared a page for flash.
    pub(crate) fn prepare_page(&self) -> u64 {
        if self.free { 0 } else { self.firmware(self.now(), self.page_cpu_ns) }
    }

    /// When a page cache has stored `pages` pages that came from flash at `ready`, as far as readers wait for
    /// that.
    pub(crate) const fn fill(&self, ready: u64, pages: u64) -> u64 {
        if self.free { 0 } else { ready + pages * self.fill_page_ns }
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

    /// A page enters the write buffer, which a program on `die` will empty. Answers when it is admitted, or
    /// programmed where there is no buffer.
    pub(crate) fn program_page(&self, from: u64, die: u64) -> u64 {
        if self.free {
            return 0;
        }
        if self.buffer.is_empty() {
            return self.program_past_buffer(from, die);
        }
        let slot = self.buffered.fetch_add(1, Ordering::Relaxed) as usize % self.buffer.len();
        let admitted = from.max(self.buffer[slot].load(Ordering::Relaxed));
        self.buffer[slot].store(self.program_past_buffer(admitted, die), Ordering::Relaxed);
        admitted
    }

    /// A die programs a page that takes no place of the write buffer. Answers when it is done.
    pub(crate) fn program_past_buffer(&self, from: u64, die: u64) -> u64 {
        if self.free {
            return 0;
        }
        let there = self.over_channel(from, die);
        self.die(die).program(there, self.program_ns, die / self.dies.len() as u64)
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
    fn a_full_write_buffer_admits_at_the_pace_of_programs() {
        let timing = timing();
        let pages = timing.buffer.len() as u64;
        for page in 0..pages {
            assert_eq!(timing.program_page(0, page % 64), 0);
        }
        assert_eq!(timing.program_page(0, 0), 60_000);
    }

    #[test]
    fn without_a_write_buffer_a_page_is_in_when_it_is_programmed() {
        let timing = Timing::new(&Profile::named("mssd-artifact").expect("valid"), 1.0, false);
        assert_eq!((timing.program_page(1000, 0), timing.program_page(1000, 1)), (61_000, 61_000));
        assert_eq!(timing.program_page(1000, 0), 121_000, "one die after the other");
    }

    #[test]
    fn a_free_device_never_asks_the_clock() {
        let timing = Timing::new(&Profile::named("free").expect("valid"), 1.0, false);
        assert_eq!((timing.now(), timing.verify_lines(9, 9), timing.to_host(0, 4096)), (0, 0, 0));
    }
}
