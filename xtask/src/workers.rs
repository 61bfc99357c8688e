//! Work for as many workers as there are processors: what waits for a while leaves its processor to another.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result};

/// Gives each of `all` to `work`, in their order, one to each worker at a time; returns what it answered, in
/// the order in which it did.
///
/// # Errors
/// It cannot be told how many processors there are.
pub fn each<T: Sync, R: Send>(all: &[T], work: impl Fn(&T) -> R + Sync) -> Result<Vec<R>> {
    let processors = thread::available_parallelism().context("how many processors there are")?.get();
    let (next, answers) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(item) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answer = work(item);
                    answers.lock().expect("no worker panics while it holds the answers").push(answer);
                }
            });
        }
    });
    Ok(answers.into_inner().expect("no worker panics while it holds the answers"))
}
