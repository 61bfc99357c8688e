//! Frames of host DRAM between two uses: what a page or its duplicate gives back, the next one takes.
//!
//! Each `fsync` gives duplicates back and each overwrite takes some: without the heap in between, and while the processor's cache still holds them.

use amphi_rt::cpu;
use amphi_rt::sync::{Mutex, Padded};

use crate::format::PAGE;

/// A page of host DRAM.
pub type Frame = Box<[u8; PAGE]>;

/// Frames kept per processor: 1 MB, as much as one write-back gives back at a time.
const KEPT: usize = 256;

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
        let kept = self.mine().lock().pop();
        match kept {
            Some(mut frame) => {
                frame.copy_from_slice(page);
                frame
            }
            None => Box::new(*page),
        }
    }

    /// Takes a frame back.
    pub fn give(&self, frame: Frame) {
        let mut kept = self.mine().lock();
        if kept.len() < KEPT {
            kept.push(frame);
        }
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
        pool.give(frame);
        let again = pool.copy_of(&[2; PAGE]);
        assert_eq!((again.as_ptr(), again[0], again[PAGE - 1]), (at, 2, 2));
        (0..2 * KEPT).for_each(|_| pool.give(Box::new([0; PAGE])));
        assert_eq!(pool.mine().lock().len(), KEPT, "and what is kept is bounded");
    }
}
