//! The link as a resource: each direction carries loads, stores, DMA and block commands; and the block engine
//! and the queues behind it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Timeline, Timing, scaled};
use crate::planted::{self, Bug};
use crate::profile::{LinkKind, LinkProfile, Profile};

/// Times of the link and its queues, dilation included.
#[derive(Debug)]
pub(crate) struct Link {
    kind: LinkKind,
    /// ns per byte on the wire, times 2^20.
    wire: u64,
    /// ns per byte of the block engine, times 2^20.
    engine_out: u64,
    engine_in: u64,
    command_ns: u64,
    completion_ns: u64,
    load_bytes: u64,
    load_ps: u64,
    load_gap_ps: u64,
    post_ns: u64,
    post_gap_ps: u64,
    line_write_ns: u64,
    store_gap_ps: u64,
    stream_lines: u64,
    stream_gap_ps: u64,
    dma_read_ns: u64,
    /// ns per byte of the path between flash and a BA-buffer, times 2^20.
    buffer_in: u64,
    buffer_out: u64,
    to_host: Direction,
    to_device: Direction,
    engine_to_host: Timeline,
    engine_to_device: Timeline,
    /// The path from flash to a BA-buffer, and back.
    to_buffer: Timeline,
    from_buffer: Timeline,
    /// Per pair of queues, when each of the last `depth` commands is done.
    queues: Box<[Queue]>,
}

/// One direction of the wire. Packets of loads and stores take turns with those of block commands and DMA: a
/// line does not wait for megabytes that were submitted before it, but gets half of the wire while they
/// travel, and they are later by what it took.
#[derive(Debug, Default)]
struct Direction {
    /// Everything.
    all: Timeline,
    /// Loads and stores.
    lines: Timeline,
    /// When the last block command or DMA will have passed.
    bulk_until: AtomicU64,
}

impl Direction {
    /// A block command's or DMA's `ns`.
    fn bulk(&self, from: u64, ns: u64) -> u64 {
        let end = self.all.book(from, ns);
        self.bulk_until.fetch_max(end, Ordering::Relaxed);
        end
    }

    /// A load's or store's `ns`.
    fn lines(&self, from: u64, ns: u64) -> u64 {
        self.all.book(from, ns);
        let turns = if self.bulk_until.load(Ordering::Relaxed) > from { 2 } else { 1 };
        self.lines.book(from, ns * turns)
    }
}

#[derive(Debug)]
struct Queue {
    submitted: AtomicU64,
    done: Box<[AtomicU64]>,
}

/// A command's place in its queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    queue: usize,
    entry: usize,
}

impl Link {
    pub(super) fn new(profile: &Profile, dilation: f64, free: bool) -> Self {
        let link: &LinkProfile = &profile.link;
        let scale = |value: u64| scaled(value, dilation);
        let per_byte =
            |mb_s: f64| if mb_s > 0.0 { (1000.0 / mb_s * dilation * f64::from(1 << 20)) as u64 } else { 0 };
        let queue = || Queue {
            submitted: AtomicU64::new(0),
            done: (0..profile.queue.depth).map(|_| AtomicU64::new(0)).collect(),
        };
        Self {
            kind: link.kind,
            wire: per_byte(link.kind.wire().map_or(0.0, |wire| wire.raw_mb_s)),
            engine_out: per_byte(link.read_mb_s as f64),
            engine_in: per_byte(link.write_mb_s as f64),
            command_ns: scale(link.command_ns),
            completion_ns: scale(profile.queue.completion_ns()),
            load_bytes: link.load_bytes,
            load_ps: scale(link.line_read_ns * 1000 * link.load_bytes / 64),
            load_gap_ps: scale(link.load_gap_ps),
            post_ns: scale(link.post_ns),
            post_gap_ps: scale(link.post_gap_ps),
            line_write_ns: scale(link.line_write_ns),
            store_gap_ps: scale(link.store_gap_ps),
            stream_lines: link.stream_bytes / 64,
            stream_gap_ps: scale(link.stream_store_gap_ps),
            dma_read_ns: scale(link.dma_read_ns),
            buffer_in: per_byte(profile.ba_buffer.internal_read_mb_s as f64),
            buffer_out: per_byte(profile.ba_buffer.internal_write_mb_s as f64),
            to_host: Direction::default(),
            to_device: Direction::default(),
            engine_to_host: Timeline::default(),
            engine_to_device: Timeline::default(),
            to_buffer: Timeline::default(),
            from_buffer: Timeline::default(),
            queues: if free { Box::default() } else { (0..profile.queue.pairs).map(|_| queue()).collect() },
        }
    }

    /// When the block engine has sent `bytes` to the host.
    pub(super) fn carry_to_host(&self, from: u64, bytes: u64) -> u64 {
        let engine = self.engine_to_host.book(from, (bytes * self.engine_out) >> 20);
        self.to_host.bulk(from, self.wire_ns(bytes, DMA_PIECE)).max(engine)
    }

    /// When the block engine has taken `bytes` from the host.
    pub(super) fn carry_to_device(&self, from: u64, bytes: u64) -> u64 {
        let engine = self.engine_to_device.book(from, (bytes * self.engine_in) >> 20);
        self.to_device.bulk(from, self.wire_ns(bytes, DMA_PIECE)).max(engine)
    }

    /// The fixed part of a command, ns.
    pub(super) const fn command_ns(&self) -> u64 {
        self.command_ns
    }

    /// From a command's end until the host knows of it, ns.
    pub(super) const fn completion_ns(&self) -> u64 {
        self.completion_ns
    }

    /// The wire's time for `bytes` in pieces of at most `piece`.
    fn wire_ns(&self, bytes: u64, piece: u64) -> u64 {
        self.kind.wire().map_or(0, |wire| (wire.bytes(bytes, piece) * self.wire) >> 20)
    }
}

/// Most bytes of one piece that DMA moves; the link may allow less.
const DMA_PIECE: u64 = 4096;

impl Timing {
    /// Takes a place in the calling task's submission queue; waits while the queue is full of commands that
    /// are not done.
    pub(crate) fn enter_queue(&self) -> Slot {
        if self.free {
            return Slot { queue: 0, entry: 0 };
        }
        let queue = amphi_rt::task::id() as usize % self.link.queues.len();
        let it = &self.link.queues[queue];
        let entry = it.submitted.fetch_add(1, Ordering::Relaxed) as usize % it.done.len();
        self.wait(it.done[entry].load(Ordering::Acquire));
        Slot { queue, entry }
    }

    /// When the host knows that a command is done which the device finishes at `done`; notes it in the queue.
    pub(crate) fn complete(&self, slot: Slot, done: u64) -> u64 {
        if self.free {
            return 0;
        }
        let known = done + self.link.completion_ns;
        self.link.queues[slot.queue].done[slot.entry].store(known, Ordering::Release);
        known
    }

    /// When the firmware has fetched a command that is submitted now.
    pub(crate) fn fetch_command(&self) -> u64 {
        if self.free { 0 } else { self.firmware(self.now(), self.command_cpu_ns) }
    }

    /// Bytes of a block command travel to the host, after the command's fixed part.
    pub(crate) fn to_host(&self, from: u64, bytes: u64) -> u64 {
        if self.free {
            return 0;
        }
        self.link.carry_to_host(from, bytes) + self.link.command_ns
    }

    /// Bytes of a block command travel to the device, after the command's fixed part.
    pub(crate) fn to_device(&self, from: u64, bytes: u64) -> u64 {
        if self.free {
            return 0;
        }
        self.link.carry_to_device(from, bytes) + self.link.command_ns
    }

    /// The internal path carries bytes from flash to the BA-buffer.
    pub(crate) fn flash_to_buffer(&self, from: u64, bytes: u64) -> u64 {
        self.over_internal_path(&self.link.to_buffer, from, bytes * self.link.buffer_in)
    }

    /// The internal path carries bytes from the BA-buffer to flash.
    pub(crate) fn buffer_to_flash(&self, from: u64, bytes: u64) -> u64 {
        self.over_internal_path(&self.link.from_buffer, from, bytes * self.link.buffer_out)
    }

    fn over_internal_path(&self, direction: &Timeline, from: u64, scaled_ns: u64) -> u64 {
        match self.free || planted::has(Bug::InternalPathFree) {
            true => from,
            false => direction.book(from, scaled_ns >> 20),
        }
    }

    /// A command's fixed part, behind what it had to wait for.
    pub(crate) fn fixed_part(&self, from: u64) -> u64 {
        if self.free { 0 } else { from + self.link.command_ns }
    }

    /// A command without data; answers when the host knows that it is done.
    pub(crate) fn command(&self) -> u64 {
        if self.free {
            return 0;
        }
        let slot = self.enter_queue();
        let done = self.fetch_command() + self.link.command_ns;
        self.complete(slot, done)
    }

    /// Bytes are loaded, in as many loads as the window's kind takes, one after the other or overlapping.
    pub(crate) fn load(&self, from: u64, at: u64, len: u64) -> u64 {
        if self.free || len == 0 {
            return from;
        }
        let link = &self.link;
        let loads = (at + len).div_ceil(link.load_bytes) - at / link.load_bytes;
        let gap = if link.load_gap_ps > 0 { link.load_gap_ps } else { link.load_ps };
        let carried = link.to_host.lines(from, link.wire_ns(loads * link.load_bytes, link.load_bytes));
        carried.max(from + (link.load_ps + (loads - 1) * gap) / 1000)
    }

    /// The device's DMA engine copies bytes to the host.
    pub(crate) fn dma_to_host(&self, from: u64, bytes: u64) -> u64 {
        if self.free {
            return 0;
        }
        let link = &self.link;
        link.to_host.bulk(from, link.wire_ns(bytes, DMA_PIECE)) + link.dma_read_ns
    }

    /// The host posts lines, which are on the link from now on. Answers when the host may go on.
    pub(crate) fn post_lines(&self, lines: u64) -> u64 {
        if self.free || lines == 0 {
            return 0;
        }
        let (link, now) = (&self.link, self.now());
        link.to_device.lines(now, link.wire_ns(lines * 64, 64));
        now + link.post_ns + (lines - 1) * link.post_gap_ps / 1000
    }

    /// Posted lines of `stores` stores arrive, the firmware takes them in, and a write-verify read returns:
    /// the latency of one line behind all lines that are on the link, or behind the gaps between the lines,
    /// whichever takes longer.
    pub(crate) fn verify_lines(&self, lines: u64, stores: u64) -> u64 {
        if self.free {
            return 0;
        }
        let (link, now) = (&self.link, self.now());
        let others = lines.saturating_sub(1);
        let streamed = if link.stream_lines == 0 { 0 } else { others.saturating_sub(link.stream_lines) };
        let gaps = ((others - streamed) * link.store_gap_ps + streamed * link.stream_gap_ps) / 1000;
        // The last line's own time on the link is part of its latency.
        let carried = link.to_device.lines(now, 0).saturating_sub(link.wire_ns(64, 64));
        let taken_in = self.firmware(now, stores * self.entry_cpu_ns);
        (carried.max(now + gaps) + link.line_write_ns).max(taken_in)
    }
}
