//! Which of several versions of a byte counts.
//!
//! A store takes effect when it is stored; a store of a transaction takes effect *again* when the transaction
//! commits. The version with the latest effect is the newest. So loads see a store at once, and flash
//! receives committed stores in commit order, with one rule for both. Times are numbers of the sequence
//! clock.

use crate::log::Log;
use crate::overlay::Chunk;
use crate::overlay::PageIndex;
use crate::planted::{self, Bug};

/// A chunk and when it took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) effect: u64,
    pub(crate) seq: u64,
    /// The transaction, or 0.
    pub(crate) tx: u32,
    /// Whether a crash keeps it: it has no transaction, or a committed one.
    pub(crate) lasting: bool,
    pub(crate) chunk: Chunk,
}

impl Version {
    /// What versions are sorted by.
    pub(crate) fn order(&self) -> (u64, u64) {
        (self.effect, self.seq)
    }
}

/// Versions that a read sorts without touching the heap.
const ON_STACK: usize = 24;
/// Versions that an insertion compares without touching the heap.
const FEW: usize = 6;

impl Log {
    /// When a chunk took effect.
    pub(crate) fn version(&self, chunk: Chunk) -> Version {
        let header = self.entry(chunk.place);
        let (seq, tx) = (header.seq.get(), header.tx.get());
        let committed = match tx {
            0 => Some(seq),
            // A number below the store's own is of an earlier transaction of the same name.
            tx => self
                .txlog
                .committed_at(tx)
                .filter(|&at| at > seq || planted::has(Bug::CommitsOutliveRecovery)),
        };
        let lasting = committed.is_some() || planted::has(Bug::UncommittedReplayed);
        Version { effect: committed.unwrap_or(seq), seq, tx, lasting, chunk }
    }

    fn copy_chunk(&self, chunk: Chunk, start: usize, into: &mut [u8]) {
        let end = start + into.len();
        let (from, to) = (start.max(usize::from(chunk.offset)), end.min(chunk.end()));
        if from < to {
            self.entry_data(
                chunk.place,
                from - usize::from(chunk.offset),
                &mut into[from - start..to - start],
            );
        }
    }

    /// Lays the newest versions of bytes `start..` of a page over `into`. `chunks` are ordered by offset.
    pub(crate) fn overlay(&self, chunks: &[Chunk], start: usize, into: &mut [u8]) {
        let end = start + into.len();
        let mut first = 0;
        while first < chunks.len() {
            // A cluster: chunks that overlap, directly or through others.
            let mut reach = chunks[first].end();
            let mut next = first + 1;
            while next < chunks.len() && usize::from(chunks[next].offset) < reach {
                reach = reach.max(chunks[next].end());
                next += 1;
            }
            let cluster = &chunks[first..next];
            first = next;
            if cluster.len() == 1 {
                self.copy_chunk(cluster[0], start, into);
                continue;
            }
            let wanted = cluster.iter().filter(|chunk| chunk.meets(start, end));
            let blank = Version { effect: 0, seq: 0, tx: 0, lasting: false, chunk: cluster[0] };
            let mut stack = [blank; ON_STACK];
            let mut heap = Vec::new();
            let versions = if cluster.len() <= ON_STACK {
                let mut count = 0;
                for &chunk in wanted {
                    stack[count] = self.version(chunk);
                    count += 1;
                }
                &mut stack[..count]
            } else {
                heap.extend(wanted.map(|&chunk| self.version(chunk)));
                &mut heap[..]
            };
            versions.sort_unstable_by_key(Version::order);
            for version in versions {
                self.copy_chunk(version.chunk, start, into);
            }
        }
    }

    /// Lays versions, whatever their order, over a whole page.
    pub(crate) fn apply(&self, versions: &mut [Version], page: &mut [u8]) {
        versions.sort_unstable_by_key(Version::order);
        if planted::has(Bug::CleaningOutOfOrder) {
            versions.reverse();
        }
        for version in versions {
            self.copy_chunk(version.chunk, 0, page);
        }
    }

    /// Puts a new chunk of transaction `tx` (0: none) in the place of one of the same bytes that is replaced
    /// for good, by the rule of [`prune`](Self::prune): by the new one, or by a third. Answers whether there
    /// was such a chunk.
    pub(crate) fn supersede(&self, index: &mut PageIndex, page: u16, new: Chunk, tx: u32) -> bool {
        let mut newest: Option<(Version, &mut Chunk)> = None;
        for chunk in index.same_bytes(page, new) {
            let version = self.version(*chunk);
            let replaced = match (&mut newest, version.lasting) {
                // Of the same transaction, neither of them committed.
                (_, false) if tx != 0 && version.tx == tx => chunk,
                (_, false) => continue,
                (_, true) if tx == 0 => chunk,
                (Some((other, place)), true) => {
                    if other.order() < version.order() {
                        place
                    } else {
                        chunk
                    }
                }
                (None, true) => {
                    newest = Some((version, chunk));
                    continue;
                }
            };
            *replaced = new;
            return true;
        }
        false
    }

    /// Drops from the index what the new chunk, or another, has replaced for good.
    ///
    /// A version is replaced if one later in effect covers it that a crash keeps as well as it; or a later
    /// store of its own transaction does.
    pub(crate) fn prune(&self, index: &mut PageIndex, page: u16, new: Chunk) {
        let (start, end) = (usize::from(new.offset), new.end());
        let near = index.chunks_near(page, start, end);
        let meeting = near.iter().filter(|chunk| chunk.meets(start, end));
        // A page seldom has more than a few versions of one place: they are looked at without touching the
        // heap.
        let blank = Version { effect: 0, seq: 0, tx: 0, lasting: false, chunk: new };
        let mut stack = [blank; FEW];
        let mut heap = Vec::new();
        let count = meeting.clone().count();
        let versions = match count {
            0 | 1 => return,
            2..=FEW => {
                for (slot, &chunk) in stack.iter_mut().zip(meeting) {
                    *slot = self.version(chunk);
                }
                &mut stack[..count]
            }
            _ => {
                heap.extend(meeting.map(|&chunk| self.version(chunk)));
                &mut heap[..]
            }
        };
        versions.sort_unstable_by_key(Version::order);
        let versions = &*versions;
        let replaced = |position: usize| {
            let old = versions[position];
            versions[position + 1..].iter().any(|later| {
                later.chunk.covers(old.chunk)
                    && if old.lasting { later.lasting } else { later.tx == old.tx && !later.lasting }
            })
        };
        if (0..count).any(replaced) {
            index.retain_near(page, start, end, |chunk| {
                versions
                    .iter()
                    .position(|version| version.chunk.place == chunk.place)
                    .is_none_or(|position| !replaced(position))
            });
        }
    }
}

/// Whether chunks, ordered by offset, leave no byte of `start..end` out.
pub(crate) fn cover(chunks: impl IntoIterator<Item = Chunk>, start: usize, end: usize) -> bool {
    let mut reach = start;
    for chunk in chunks {
        if usize::from(chunk.offset) > reach {
            return false;
        }
        reach = reach.max(chunk.end());
        if reach >= end {
            return true;
        }
    }
    reach >= end
}
