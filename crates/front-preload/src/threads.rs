//! Each thread's lane: taken at its first command, given back when the thread ends.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

use crate::mounts::{self, GENERATION};
use crate::way::Lane;

/// A lane of one mount, and whose it was.
struct Mine {
    mount: usize,
    generation: u32,
    lane: Lane,
}

thread_local! {
    /// Lanes of this thread, mostly one.
    static MINE: RefCell<Vec<Mine>> = const { RefCell::new(Vec::new()) };
    /// A command of this thread is under way.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Does something with a lane of the mount: this thread's, or, for a signal's handler that comes in the
/// middle of a call and for a thread at its end, one that is given back at once. None if there is none to be
/// had: no daemon, or all lanes taken.
pub fn with_lane<T>(mount: usize, act: impl FnOnce(&mut Lane) -> T) -> Option<T> {
    if !mounts::is_on() {
        return None;
    }
    let free = || mounts::all().get(mount)?.way()?.lane();
    if BUSY.try_with(|busy| busy.replace(true)).unwrap_or(true) {
        return Some(act(&mut free()?));
    }
    let mut act = Some(act);
    let done = MINE.try_with(|mine| {
        let mut mine = mine.try_borrow_mut().ok()?;
        let generation = GENERATION.load(Ordering::SeqCst);
        if mine.iter().any(|mine| mine.generation != generation) {
            // They are another process's, or another user's: not even to be given back.
            mine.drain(..).for_each(std::mem::forget);
        }
        let index = match mine.iter().position(|mine| mine.mount == mount) {
            Some(index) => index,
            None => {
                mine.push(Mine { mount, generation, lane: free()? });
                mine.len() - 1
            }
        };
        Some(act.take()?(&mut mine[index].lane))
    });
    let done = done.unwrap_or_else(|_ended| Some(act.take()?(&mut free()?)));
    let _ = BUSY.try_with(|busy| busy.set(false));
    done
}
