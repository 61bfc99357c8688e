//! What was written and is not durable yet (RO-10, `-o data=lazy`): bytes of one file in host memory. Readers
//! see them; `fsync`, the background task and a full budget bring them to the device (`lazy.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_rt::sync::Mutex;
use amphi_vfs::Ino;
use smallvec::SmallVec;

/// A piece takes no more bytes from here on. What one transaction writes back is less than twice as much,
/// since a write that is no longer than this stays in one piece.
pub const PIECE_BYTES: usize = 1 << 20;

/// Ranges of a file that are not buffered.
pub type Gaps = SmallVec<[Range<u64>; 4]>;

/// What all files of a mount have buffered.
#[derive(Debug, Default)]
pub struct Tally {
    bytes: AtomicU64,
    pieces: AtomicU64,
}

impl Tally {
    /// Bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Pieces that they are in.
    pub fn pieces(&self) -> u64 {
        self.pieces.load(Ordering::Relaxed)
    }
}

/// What is buffered, and of which files.
#[derive(Default)]
pub struct Lazy {
    /// How much.
    pub tally: Arc<Tally>,
    /// Whose.
    pub files: Mutex<BTreeSet<Ino>>,
}

/// A file's buffered bytes.
#[derive(Debug)]
pub struct Buffer {
    /// By first byte. No two overlap.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// The file's size on the device.
    pub stored_size: u64,
    /// Pieces that are on their way to the device.
    in_flight: usize,
    tally: Arc<Tally>,
}

impl Buffer {
    /// Nothing yet, of a file that has `stored_size` bytes on the device.
    pub const fn new(stored_size: u64, tally: Arc<Tally>) -> Self {
        Self { pieces: BTreeMap::new(), stored_size, in_flight: 0, tally }
    }

    /// Whether a piece is on its way.
    pub const fn has_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// Whether there is nothing, and nothing on its way.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.in_flight == 0
    }

    /// Whether some of the bytes `range` are buffered, and not on their way.
    pub fn meets(&self, range: Range<u64>) -> bool {
        let before_end = self.pieces.range(..range.end).next_back();
        before_end.is_some_and(|(start, piece)| start + piece.len() as u64 > range.start)
    }

    /// Whether some of the bytes `range` of a file with `size` bytes would come behind what the device has of
    /// it and before what is buffered. They would be written back before the latter, and a crash in between
    /// would leave a size that the file never had.
    pub fn leaves_gap_before_end(&self, range: Range<u64>, size: u64) -> bool {
        let mut at = range.start.max(self.stored_size);
        let end = range.end.min(size);
        while at < end {
            match self.pieces.range(..=at).next_back() {
                Some((start, piece)) if start + piece.len() as u64 > at => at = start + piece.len() as u64,
                _ => return true,
            }
        }
        false
    }

    /// Takes over `data` at `offset`, over what is there.
    pub fn put(&mut self, offset: u64, data: &[u8]) {
        self.merge(offset, data, true);
    }

    /// A piece that was [taken](Self::take) is on the device; or it is not, and is buffered again, under what
    /// has come since.
    pub fn arrived(&mut self, offset: u64, data: &[u8], stored: bool) {
        self.in_flight -= 1;
        if !stored {
            self.merge(offset, data, false);
        }
    }

    fn merge(&mut self, offset: u64, data: &[u8], newer: bool) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let rest = &data[done..];
            let before = self.pieces.range_mut(..=at).next_back();
            if let Some((start, piece)) = before {
                let from = (at - start) as usize;
                if from < piece.len() {
                    let len = (piece.len() - from).min(rest.len());
                    if newer {
                        piece[from..from + len].copy_from_slice(&rest[..len]);
                    }
                    done += len;
                    continue;
                }
            }
            let len = self.gap_behind(at).min(rest.len());
            done += self.fill(at, &rest[..len]);
        }
    }

    /// Bytes from `at`, which is not buffered, to the next that is.
    fn gap_behind(&self, at: u64) -> usize {
        self.pieces.range(at..).next().map_or(usize::MAX, |(next, _)| (next - at) as usize)
    }

    /// Fills a gap from its start, at the end of the piece before it if that leaves room. Returns how far it
    /// came.
    fn fill(&mut self, at: u64, data: &[u8]) -> usize {
        // Where a piece that begins here is full: what is large travels by whole data blocks.
        let full = |start: u64| (start / PIECE_BYTES as u64 + 1) * PIECE_BYTES as u64;
        let before = self.pieces.range_mut(..at).next_back();
        let before = before.filter(|(start, piece)| *start + piece.len() as u64 == at && at < full(**start));
        let room = (full(before.as_ref().map_or(at, |(start, _)| **start)) - at) as usize;
        let len = if data.len() <= PIECE_BYTES { data.len() } else { room };
        match before {
            Some((_, piece)) => piece.extend_from_slice(&data[..len]),
            None => {
                self.pieces.insert(at, data[..len].to_vec());
                self.tally.pieces.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.tally.bytes.fetch_add(len as u64, Ordering::Relaxed);
        len
    }

    /// The range of the first piece that begins in `within`, which may start behind its end.
    pub fn first(&self, within: Range<u64>) -> Option<Range<u64>> {
        if within.is_empty() {
            return None;
        }
        self.pieces.range(within).next().map(|(start, piece)| *start..start + piece.len() as u64)
    }

    /// Gives the piece away that begins at `start`. [`arrived`](Self::arrived) follows.
    pub fn take(&mut self, start: u64) -> Option<Vec<u8>> {
        let piece = self.pieces.remove(&start)?;
        self.tally.bytes.fetch_sub(piece.len() as u64, Ordering::Relaxed);
        self.tally.pieces.fetch_sub(1, Ordering::Relaxed);
        self.in_flight += 1;
        Some(piece)
    }

    /// Copies what is buffered of the bytes at `offset`. Returns the ranges that are not.
    pub fn copy_out(&self, offset: u64, into: &mut [u8]) -> Gaps {
        let end = offset + into.len() as u64;
        let mut gaps = Gaps::new();
        let mut at = offset;
        let before = self.pieces.range(..offset).next_back();
        for (start, piece) in before.into_iter().chain(self.pieces.range(offset..end)) {
            let range = (*start).max(offset)..(start + piece.len() as u64).min(end);
            if range.is_empty() {
                continue;
            }
            if at < range.start {
                gaps.push(at..range.start);
            }
            let from = &piece[(range.start - start) as usize..(range.end - start) as usize];
            into[(range.start - offset) as usize..(range.end - offset) as usize].copy_from_slice(from);
            at = range.end;
        }
        if at < end {
            gaps.push(at..end);
        }
        gaps
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes: u64 = self.pieces.values().map(|piece| piece.len() as u64).sum();
        self.tally.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.tally.pieces.fetch_sub(self.pieces.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: usize = 3 << 20;

    fn first(buffer: &mut Buffer) -> Option<(u64, Vec<u8>)> {
        let start = buffer.first(0..u64::MAX)?.start;
        buffer.take(start).map(|bytes| (start, bytes))
    }

    proptest! {
        #[test]
        fn the_newest_bytes_are_read_and_each_is_given_away_once(
            writes in proptest::collection::vec((0..FILE, 1..200_000_usize, 1..=u8::MAX), 1..40),
            taken in 0..4_usize,
        ) {
            let tally = Arc::new(Tally::default());
            let mut buffer = Buffer::new(0, Arc::clone(&tally));
            let mut expected = vec![0; FILE + 200_000];
            for (at, len, byte) in &writes {
                buffer.put(*at as u64, &vec![*byte; *len]);
                expected[*at..at + len].fill(*byte);
            }
            // Some are on their way and come back, under a newer write.
            let away: Vec<_> = std::iter::from_fn(|| first(&mut buffer)).take(taken).collect();
            buffer.put(1000, &[255; 5000]);
            expected[1000..6000].fill(255);
            for (at, bytes) in away {
                buffer.arrived(at, &bytes, false);
            }
            let mut read = vec![0; expected.len()];
            for gap in buffer.copy_out(0, &mut read) {
                prop_assert!(expected[gap.start as usize..gap.end as usize].iter().all(|byte| *byte == 0));
            }
            prop_assert!(read == expected, "what was written is read");
            let mut device = vec![0; expected.len()];
            while let Some((at, bytes)) = first(&mut buffer) {
                prop_assert!(at % PIECE_BYTES as u64 + (bytes.len() as u64) < 2 * PIECE_BYTES as u64);
                prop_assert!(!buffer.is_empty(), "it is on its way");
                buffer.arrived(at, &bytes, true);
                device[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
            }
            prop_assert!(device == expected, "all of it is given away");
            prop_assert!(buffer.is_empty());
            prop_assert_eq!((tally.bytes(), tally.pieces()), (0, 0));
        }
    }
}
