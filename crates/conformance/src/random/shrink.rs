//! Shrinking: takes operations out as long as the sequence still fails.

use super::Mismatch;
use super::operation::Operation;

/// Times a failing sequence is tried again, at most.
const TRIES: usize = 2_000;

/// A shorter sequence that fails too, if there is one.
pub(super) fn shrink(
    operations: &[Operation],
    first: &Mismatch,
    check: &impl Fn(&[Operation]) -> Result<(), Mismatch>,
) -> Vec<Operation> {
    // What comes after the failure did not cause it.
    let mut kept = operations[..operations.len().min(first.at + 1)].to_vec();
    if check(&kept).is_ok() {
        kept = operations.to_vec();
    }
    let mut tries = 0;
    let mut width = kept.len() / 2;
    while width > 0 {
        let mut start = 0;
        let mut progress = false;
        while start < kept.len() && tries < TRIES {
            let mut fewer = kept.clone();
            fewer.drain(start..(start + width).min(kept.len()));
            tries += 1;
            if check(&fewer).is_err() {
                kept = fewer;
                progress = true;
            } else {
                start += width;
            }
        }
        if width > 1 || !progress {
            width /= 2;
        }
    }
    kept
}
