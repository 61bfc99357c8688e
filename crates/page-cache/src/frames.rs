//! Frames of host memory between two uses: what one page gives back, the next one takes, without the heap in
//! between, and while the processor's cache still holds them.

use amphi_rt::cpu;
use amphi_rt::sync::{Mutex, Padded};
use smallvec::SmallVec;

use crate::PAGE;
use crate::page::BoxedFrame;

/// Frames kept per processor: 1 MB, as much as one write-back gives back at a time.
const KEPT: usize = 256;
/// Frames that a task has in hand without touching the heap.
const FEW: usize = 4;

/// Frames that nobody uses just now, per processor.
#[derive(Debug)]
pub struct FramePool(Box<[Padded<Mutex<Vec<BoxedFrame>>>]>);

impl Default for FramePool {
    fn default() -> Self {
        Self((0..cpu::count().max(1)).map(|_| Padded::default()).collect())
    }
}

impl FramePool {
    fn mine(&self) -> &Mutex<Vec<BoxedFrame>> {
        &self.0[cpu::current() % self.0.len()]
    }

    /// A frame that holds anything.
    pub fn frame(&self) -> BoxedFrame {
        let kept = self.mine().lock().pop();
        kept.unwrap_or_else(|| Box::new([0; PAGE]))
    }

    /// Up to `count` frames, which are taken at once when the first is wanted: between two copies the pool
    /// would be locked, and a processor waits at each lock until all it has written is in its cache.
    pub fn stock(&self, count: usize) -> Stock<'_> {
        Stock { pool: self, wanted: count, frames: SmallVec::new() }
    }

    /// Takes frames back.
    pub fn give(&self, frames: impl IntoIterator<Item = BoxedFrame>) {
        let mut kept = self.mine().lock();
        let room = KEPT - kept.len();
        kept.extend(frames.into_iter().take(room));
    }
}

/// Frames in the hand of one task. What is left of them in the end goes back.
#[derive(Debug)]
pub struct Stock<'a> {
    pool: &'a FramePool,
    /// Frames to take from the pool; 0 once they were.
    wanted: usize,
    frames: SmallVec<[BoxedFrame; FEW]>,
}

impl Stock<'_> {
    /// A frame that holds a copy of `page`, from the heap once the stock is used up.
    pub fn copy_of(&mut self, page: &[u8; PAGE]) -> BoxedFrame {
        if self.wanted > 0 {
            let mut kept = self.pool.mine().lock();
            let rest = kept.len().saturating_sub(std::mem::take(&mut self.wanted));
            self.frames.extend(kept.drain(rest..));
        }
        match self.frames.pop() {
            Some(mut frame) => {
                frame.copy_from_slice(page);
                frame
            }
            None => Box::new(*page),
        }
    }
}

impl Drop for Stock<'_> {
    fn drop(&mut self) {
        if !self.frames.is_empty() {
            self.pool.give(self.frames.drain(..));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_with_other_contents() {
        let pool = FramePool::default();
        let frame = pool.frame();
        let at = frame.as_ptr();
        pool.give([frame]);
        let again = pool.stock(1).copy_of(&[2; PAGE]);
        assert_eq!((again.as_ptr(), again[0], again[PAGE - 1]), (at, 2, 2));
        pool.give((0..2 * KEPT).map(|_| BoxedFrame::new([0; PAGE])));
        assert_eq!(pool.mine().lock().len(), KEPT, "and what is kept is bounded");
        let mut stock = pool.stock(2);
        assert_eq!(pool.mine().lock().len(), KEPT, "none is wanted yet");
        let copies: Vec<BoxedFrame> = (1..=3).map(|byte| stock.copy_of(&[byte; PAGE])).collect();
        drop(stock);
        assert_eq!(pool.mine().lock().len(), KEPT - 2);
        pool.stock(3).copy_of(&[4; PAGE]);
        assert_eq!(pool.mine().lock().len(), KEPT - 3, "two of three have gone back");
        assert!(
            copies.iter().zip(1..).all(|(copy, byte)| **copy == [byte; PAGE]),
            "the third is from the heap"
        );
    }
}
