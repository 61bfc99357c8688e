//! Duplicates of what the device holds, beside cached pages (BY-14).
//!
//! The first modification of a line of a page that the device holds keeps a duplicate of what is there. At
//! write-back the two are compared line by line, and the difference decides between bytes and block. Lines
//! that nobody touched need no duplicate to be known as equal: a write of 64 B copies one line, not the page.

use std::ops::Range;

use amphi_page_cache::{Beside, BoxedFrame, Change, Frame, FramePool, Page, Pages, Stock};

use crate::data::diff::{self, LineMask, kept_lines_by_bytes, lines_of, runs};
use crate::format::{LINE, PAGE};

/// What the device holds of a page.
struct Duplicate {
    frame: BoxedFrame,
    /// The lines that may differ from the page's data. What the frame has in others means nothing.
    kept: LineMask,
}

/// What is kept beside a cached page.
#[derive(Default)]
pub struct Duplicates {
    /// What the device holds, where that is known and may differ from the page's data.
    original: Option<Duplicate>,
    /// Whether the device holds what the page was before it was modified, so that a duplicate would say what
    /// is there.
    on_device: bool,
}

impl Beside for Duplicates {
    #[inline]
    fn frames(&self) -> usize {
        usize::from(self.original.is_some())
    }
}

/// A page of file data in host DRAM.
pub type CachedPage = Page<BoxedFrame, Duplicates>;
/// Those of a file.
pub type CachedPages = Pages<BoxedFrame, Duplicates>;

/// A page as read from the device, of which the first `valid` bytes belong to the file. The rest reads as
/// zeros, whatever the device has there.
pub fn read(mut data: BoxedFrame, valid: usize) -> CachedPage {
    let mut original = None;
    if data[valid..].iter().any(|&byte| byte != 0) {
        original = Some(Duplicate { frame: data.clone(), kept: LineMask::MAX });
        data[valid..].fill(0);
    }
    Page::new(data, Duplicates { original, on_device: true })
}

/// These bytes of a page, to change: keeps a duplicate of their lines first, if duplicates are wanted.
pub fn change<'a>(
    page: &'a mut CachedPage,
    bytes: Range<usize>,
    wanted: bool,
    pool: &FramePool,
) -> &'a mut [u8] {
    if wanted && page.beside.on_device && page.beside.original.is_none() {
        page.beside.original = Some(Duplicate { frame: pool.frame(), kept: 0 });
    }
    keep(page, lines_of(&bytes));
    &mut page.data[bytes]
}

/// Has the duplicate, if there is one, keep these lines.
fn keep(page: &mut CachedPage, lines: LineMask) {
    let Some(Duplicate { frame, kept }) = &mut page.beside.original else { return };
    for (line, lines) in runs(lines & !*kept) {
        let bytes = line * LINE..(line + lines) * LINE;
        frame[bytes.clone()].copy_from_slice(&page.data[bytes]);
    }
    *kept |= lines;
}

/// Gives a page other contents as a whole. Pages with few enough modified lines by `threshold` (none: all of
/// them go by block) keep a duplicate, which is what the page held, as it is. Of one that is modified in more
/// already there is none: it goes by block, and what it held need not be kept to find that out later.
fn overwrite(page: &mut CachedPage, now: &[u8; PAGE], threshold: Option<u32>, frames: &mut Stock<'_>) {
    let first = threshold.filter(|_| page.beside.on_device && page.beside.original.is_none());
    if first.is_some_and(|threshold| diff::lines_by_bytes(&page.data, now, threshold).is_some()) {
        let frame = std::mem::replace(&mut page.data, frames.copy_of(now));
        page.beside.original = Some(Duplicate { frame, kept: LineMask::MAX });
        return;
    }
    if page.beside.original.is_none() {
        page.beside.on_device = false;
    }
    keep(page, LineMask::MAX);
    page.data.copy_from_slice(now);
}

/// How a write changes pages.
pub struct Writing<'a> {
    /// By which duplicates are kept, if they are.
    pub threshold: Option<u32>,
    /// Frames for whole pages.
    pub frames: Stock<'a>,
    /// Where others come from.
    pub pool: &'a FramePool,
}

impl Change<BoxedFrame, Duplicates> for Writing<'_> {
    #[inline]
    fn change(&mut self, page: &mut CachedPage, from: usize, part: &[u8]) {
        match part.try_into() {
            Ok(now) => overwrite(page, now, self.threshold, &mut self.frames),
            Err(_) => change(page, from..from + part.len(), self.threshold.is_some(), self.pool)
                .copy_from_slice(part),
        }
    }

    #[inline]
    fn make(&mut self, from: usize, part: &[u8]) -> CachedPage {
        let data = match part.try_into() {
            Ok(whole) => self.frames.copy_of(whole),
            Err(_) => {
                let mut data = BoxedFrame::zeros();
                data[from..from + part.len()].copy_from_slice(part);
                data
            }
        };
        Page::new(data, Duplicates::default())
    }
}

/// The lines of a page that differ from its duplicate, if the page goes by bytes by this threshold; `None` if
/// it must be written whole.
pub fn lines_by_bytes(page: &CachedPage, threshold: u32) -> Option<LineMask> {
    let Duplicate { frame, kept } = page.beside.original.as_ref()?;
    kept_lines_by_bytes(frame, &page.data, *kept, threshold)
}

/// Whether the device holds bytes beyond the end of the file that must be overwritten before the file grows
/// over them.
pub const fn hides_bytes(page: &CachedPage) -> bool {
    !page.is_dirty() && page.beside.original.is_some()
}

/// Notes that `bytes` went to the device at byte `from` of a page, and shows them.
pub fn stored(page: &mut CachedPage, from: usize, bytes: &[u8]) {
    page.data[from..from + bytes.len()].copy_from_slice(bytes);
    if let Some(Duplicate { frame, .. }) = &mut page.beside.original {
        frame[from..from + bytes.len()].copy_from_slice(bytes);
    }
}

/// Notes that the device now holds a page's data. Answers the duplicate, which is not the page's any more.
pub fn written(page: &mut CachedPage) -> Option<BoxedFrame> {
    page.beside.on_device = true;
    page.beside.original.take().map(|original| original.frame)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write {
            from: usize,
            len: usize,
            byte: u8,
        },
        /// Writes the whole page: what it holds, with so many lines changed.
        Overwrite {
            lines: usize,
            byte: u8,
        },
        Direct {
            from: usize,
            len: usize,
            byte: u8,
        },
        WriteBack,
    }

    fn step() -> impl Strategy<Value = Step> {
        let len = || prop_oneof![4 => 1..200_usize, 1 => 1..PAGE];
        prop_oneof![
            4 => (0..PAGE, len(), 0..4_u8).prop_map(|(from, len, byte)| Step::Write { from, len, byte }),
            2 => (0..20_usize, 0..4_u8).prop_map(|(lines, byte)| Step::Overwrite { lines, byte }),
            1 => (0..PAGE, len(), 0..4_u8).prop_map(|(from, len, byte)| Step::Direct { from, len, byte }),
            2 => Just(Step::WriteBack),
        ]
    }

    proptest! {
        #[test]
        fn what_goes_by_bytes_is_all_that_the_device_lacks(
            valid in 0..=PAGE,
            threshold in prop_oneof![Just(8), Just(0), Just(64), Just(2)],
            steps in proptest::collection::vec(step(), 1..30),
        ) {
            let pool = FramePool::default();
            // Frames of the pool hold what they held before.
            pool.give((0..3).map(|byte| Box::new([byte; PAGE])));
            let mut device = [1; PAGE];
            let mut page = read(Box::new(device), valid);
            let mut expected = device;
            expected[valid..].fill(0);
            let mut dirty = hides_bytes(&page);
            for step in steps {
                match step {
                    Step::Write { from, len, byte } => {
                        let bytes = from..(from + len).min(PAGE);
                        expected[bytes.clone()].fill(byte);
                        change(&mut page, bytes, true, &pool).fill(byte);
                        dirty = true;
                    }
                    Step::Overwrite { lines, byte } => {
                        (0..lines).for_each(|line| expected[line * 3 * LINE] = byte);
                        overwrite(&mut page, &expected, Some(threshold), &mut pool.stock(1));
                        dirty = true;
                    }
                    Step::Direct { from, len, byte } if !dirty => {
                        let bytes = from..(from + len).min(PAGE);
                        device[bytes.clone()].fill(byte);
                        expected[bytes.clone()].fill(byte);
                        stored(&mut page, from, &vec![byte; bytes.len()]);
                    }
                    Step::Direct { .. } => {}
                    Step::WriteBack => {
                        match lines_by_bytes(&page, threshold) {
                            Some(mask) => (0..PAGE)
                                .filter(|at| mask >> (at / LINE) & 1 == 1)
                                .for_each(|at| device[at] = page.data[at]),
                            None => device = *page.data,
                        }
                        pool.give(written(&mut page));
                        dirty = false;
                        prop_assert!(device == expected, "the device has what readers see");
                    }
                }
                prop_assert!(*page.data == expected);
            }
        }
    }
}
