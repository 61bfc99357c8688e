//! Frames of host DRAM between two uses: what a page or its duplicate gives back, the next one takes.
//!
//! Each `fsync` gives duplicates back and each overwrite takes some: without the heap in between, and while the processor's cache still holds them.

use amphi_rt::cpu;
use amphi_rt::sync::{Mutex, Padded};
use smallvec::SmallVec;

use crate::format::PAGE;

/// A page of host DRAM.
pub type Frame = Box<[u8; PAGE]>;

/// Frames kept per processor: 1 MB, as much as one write-back gives back at a time.
const KEPT: usize = 256;
/// Frames that a task has in hand without touching the heap.
const FEW: usize = 4;

/// Frames that nobody uses just now, per processor.
#[derive(Debug)]
pub struct FramePool(Box<[Padded<Mutex<Vec<Frame>>>]>);

impl Default for FramePool {
    fn default() -> Self {
        Self((0..cpu::count().max(1)).map(|_| Padded::default()).collect())
    }
}

impl FramePool {
    fn mine(&self) -> &Mutex<Vec<Frame>> {
        &self.0[cpu::current() % self.0.len()]
    }

    /// A frame that holds a copy of `page`.
    pub fn copy_of(&self, page: &[u8; PAGE]) -> Frame {
        self.stock(1).copy_of(page)
    }

    /// Up to `count` frames at once: between two copies the pool would be locked, and a processor waits at each lock until all it has written is in its cache.
    pub fn stock(&self, count: usize) -> Stock {
        if count == 0 {
            return Stock(SmallVec::new());
        }
        let mut kept = self.mine().lock();
        let rest = kept.len().saturating_sub(count);
        Stock(kept.drain(rest..).collect())
    }

    /// Takes frames back.
    pub fn give(&self, frames: impl IntoIterator<Item = Frame>) {
        let mut kept = self.mine().lock();
        let room = KEPT - kept.len();
        kept.extend(frames.into_iter().take(room));
    }
}

/// Frames in the hand of one task.
#[derive(Debug)]
pub struct Stock(SmallVec<[Frame; FEW]>);

impl Stock {
    /// A frame that holds a copy of `page`, from the heap once the stock is used up.
    pub fn copy_of(&mut self, page: &[u8; PAGE]) -> Frame {
        match self.0.pop() {
            Some(mut frame) => {
                frame.copy_from_slice(page);
                frame
            }
            None => Box::new(*page),
        }
    }

    /// What is left of it.
    pub fn rest(self) -> impl ExactSizeIterator<Item = Frame> {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_with_other_contents() {
        let pool = FramePool::default();
        let frame = pool.copy_of(&[1; PAGE]);
        let at = frame.as_ptr();
        pool.give([frame]);
        let again = pool.copy_of(&[2; PAGE]);
        assert_eq!((again.as_ptr(), again[0], again[PAGE - 1]), (at, 2, 2));
        pool.give((0..2 * KEPT).map(|_| Frame::new([0; PAGE])));
        assert_eq!(pool.mine().lock().len(), KEPT, "and what is kept is bounded");
        let mut stock = pool.stock(2);
        let copies: Vec<Frame> = (1..=3).map(|byte| stock.copy_of(&[byte; PAGE])).collect();
        assert_eq!((stock.rest().len(), pool.mine().lock().len()), (0, KEPT - 2));
        assert!(
            copies.iter().zip(1..).all(|(copy, byte)| **copy == [byte; PAGE]),
            "the third is from the heap"
        );
    }
}
