//! Third layer of the log's index: per page, the chunks of it that the log holds, ordered by their offset in
//! the page (ByteFS §4.3). A page's chunks lie side by side in an arena, in runs of a power of two.

/// One log entry's data as the index knows it: 8 bytes. (The paper has 1 + 4 + 4 bytes, with offsets in 64 B
/// blocks; byte offsets let a store of any size be one entry.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// The entry's place in the log: region in the top bit, then the line within the region.
    pub(crate) place: u32,
    /// First byte in the page.
    pub(crate) offset: u16,
    /// Bytes, 1 to 4096.
    pub(crate) len: u16,
}

impl Chunk {
    /// First byte after the chunk.
    pub(crate) const fn end(self) -> usize {
        self.offset as usize + self.len as usize
    }

    /// Whether the chunk has a byte in `start..end`.
    pub(crate) const fn meets(self, start: usize, end: usize) -> bool {
        (self.offset as usize) < end && start < self.end()
    }

    /// Whether every byte of `other` is in this chunk.
    pub(crate) const fn covers(self, other: Self) -> bool {
        self.offset <= other.offset && other.end() <= self.end()
    }
}

const NONE: u32 = u32::MAX;
/// Sizes of runs: 2^1 to 2^16 chunks. (A single chunk lies in its page's node.)
const CLASSES: usize = 17;

/// Runs of chunks: a buddy allocator, so that the short runs which growing pages leave behind become long
/// ones again.
///
/// A free run shows itself in its first slot, whose `len` is 0, which no chunk has; `offset` is then its
/// class and `place` the next free run, while the second slot's `place` is the one before.
#[derive(Debug)]
pub(crate) struct ChunkArena {
    /// Runs are counted from `base`, which lies on a line of the processor's cache, so that a run of up to
    /// eight chunks is in one line.
    slots: Vec<Chunk>,
    base: usize,
    free: [u32; CLASSES],
}

/// Chunks in a line of the processor's cache.
const IN_LINE: usize = 64 / size_of::<Chunk>();

/// What a slot of a taken run holds before a chunk does: nothing that looks like a free run.
const TAKEN: Chunk = Chunk { place: NONE, offset: 0, len: 1 };

impl ChunkArena {
    /// An arena without storage.
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), base: 0, free: [NONE; CLASSES] }
    }

    /// The size class that holds `count` chunks, at least two.
    pub(crate) const fn class_for(count: usize) -> u16 {
        count.next_power_of_two().trailing_zeros() as u16
    }

    fn slot(&mut self, at: u32) -> &mut Chunk {
        &mut self.slots[self.base + at as usize]
    }

    fn link(&mut self, run: u32, class: u16) {
        let next = self.free[usize::from(class)];
        *self.slot(run) = Chunk { place: next, offset: class, len: 0 };
        *self.slot(run + 1) = TAKEN;
        if next != NONE {
            self.slot(next + 1).place = run;
        }
        self.free[usize::from(class)] = run;
    }

    fn unlink(&mut self, run: u32, class: u16) {
        let (next, before) = (self.slot(run).place, self.slot(run + 1).place);
        if before == NONE {
            self.free[usize::from(class)] = next;
        } else {
            self.slot(before).place = next;
        }
        if next != NONE {
            self.slot(next + 1).place = before;
        }
    }

    fn is_free(&self, run: u32, class: u16) -> bool {
        self.slots.get(self.base + run as usize).is_some_and(|slot| slot.len == 0 && slot.offset == class)
    }

    /// Takes a run of `1 << class` slots.
    pub(crate) fn take(&mut self, class: u16) -> u32 {
        let fitting = (class..CLASSES as u16).find(|&larger| self.free[usize::from(larger)] != NONE);
        let run = match fitting {
            Some(mut larger) => {
                let run = self.free[usize::from(larger)];
                self.unlink(run, larger);
                while larger > class {
                    larger -= 1;
                    self.link(run + (1 << larger), larger);
                }
                run
            }
            None => self.grow(class),
        };
        self.run_mut(run, 1 << class).fill(TAKEN);
        run
    }

    fn grow(&mut self, class: u16) -> u32 {
        let size = 1_usize << class;
        let end = self.slots.len() - self.base;
        let run = end.next_multiple_of(size);
        if self.slots.capacity() < self.base + run + size {
            // An eighth of slack, not a doubling: the index is the log's memory overhead.
            self.move_to(end + (run + size - end).max(end / 8));
        }
        self.slots.resize(self.base + run + size, TAKEN);
        // What alignment skipped is free, in runs of their own alignment.
        let mut at = end;
        while at < run {
            let skipped = at.trailing_zeros() as u16;
            self.link(at as u32, skipped);
            at += 1 << skipped;
        }
        run as u32
    }

    /// Moves everything to new storage, for so many slots.
    fn move_to(&mut self, capacity: usize) {
        let mut slots: Vec<Chunk> = Vec::with_capacity(capacity + IN_LINE - 1);
        let base = slots.as_ptr().align_offset(64).min(IN_LINE - 1);
        slots.resize(base, TAKEN);
        slots.extend_from_slice(&self.slots[self.base..]);
        (self.slots, self.base) = (slots, base);
    }

    /// Returns a run.
    pub(crate) fn give(&mut self, mut run: u32, mut class: u16) {
        while usize::from(class) < CLASSES - 1 {
            let buddy = run ^ (1 << class);
            if !self.is_free(buddy, class) {
                break;
            }
            self.unlink(buddy, class);
            // Neither half may look free on its own any more.
            *self.slot(run) = TAKEN;
            *self.slot(buddy) = TAKEN;
            run = run.min(buddy);
            class += 1;
        }
        self.link(run, class);
    }

    /// The first `count` chunks of a run.
    pub(crate) fn run(&self, run: u32, count: usize) -> &[Chunk] {
        &self.slots[self.base + run as usize..][..count]
    }

    /// The first `count` chunks of a run, to be changed.
    pub(crate) fn run_mut(&mut self, run: u32, count: usize) -> &mut [Chunk] {
        &mut self.slots[self.base + run as usize..][..count]
    }

    /// Copies `count` chunks from one run to another.
    pub(crate) fn move_run(&mut self, from: u32, to: u32, count: usize) {
        let from = self.base + from as usize;
        self.slots.copy_within(from..from + count, self.base + to as usize);
    }

    /// Bytes of memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Chunk>()
    }
}
