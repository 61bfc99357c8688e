//! Third layer of the log's index: per page, the chunks of it that the log holds, ordered by their offset in the page
//! (ByteFS §4.3). A page's chunks lie side by side in an arena, in runs of a power of two.

/// One log entry's data as the index knows it: 8 bytes. (The paper has 1 + 4 + 4 bytes, with offsets in 64 B blocks; byte offsets let
/// a store of any size be one entry.)
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
const CLASSES: usize = 17;

/// Runs of chunks, in powers of two, with a free list per size.
#[derive(Debug)]
pub(crate) struct ChunkArena {
    slots: Vec<Chunk>,
    free: [u32; CLASSES],
}

impl ChunkArena {
    /// An arena without storage.
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: [NONE; CLASSES] }
    }

    /// The size class that holds `count` chunks.
    pub(crate) const fn class_for(count: usize) -> u16 {
        count.next_power_of_two().trailing_zeros() as u16
    }

    /// Takes a run of `1 << class` slots.
    pub(crate) fn take(&mut self, class: u16) -> u32 {
        let head = self.free[usize::from(class)];
        if head != NONE {
            self.free[usize::from(class)] = self.slots[head as usize].place;
            return head;
        }
        let run = self.slots.len();
        let size = 1_usize << class;
        if self.slots.capacity() - run < size {
            // An eighth of slack, not a doubling: the index is the log's memory overhead.
            self.slots.reserve_exact(size.max(run / 8));
        }
        self.slots.resize(run + size, Chunk { place: NONE, offset: 0, len: 0 });
        run as u32
    }

    /// Returns a run.
    pub(crate) fn give(&mut self, run: u32, class: u16) {
        self.slots[run as usize].place = self.free[usize::from(class)];
        self.free[usize::from(class)] = run;
    }

    /// The first `count` chunks of a run.
    pub(crate) fn run(&self, run: u32, count: usize) -> &[Chunk] {
        &self.slots[run as usize..run as usize + count]
    }

    /// The first `count` chunks of a run, to be changed.
    pub(crate) fn run_mut(&mut self, run: u32, count: usize) -> &mut [Chunk] {
        &mut self.slots[run as usize..run as usize + count]
    }

    /// Copies `count` chunks from one run to another.
    pub(crate) fn move_run(&mut self, from: u32, to: u32, count: usize) {
        self.slots.copy_within(from as usize..from as usize + count, to as usize);
    }

    /// Bytes of memory held.
    pub(crate) fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Chunk>()
    }
}
