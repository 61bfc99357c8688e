//! The calls of libc that the library stands in front of.
//!
//! Each has libc's signature, tries the queue if its path or descriptor is on a mount of ours, and else, or if the queue says so, calls libc's own.

mod attributes;
mod closing;
mod data;
mod names;
mod opening;
mod sharing;

use std::borrow::Cow;

use amphi_queue::format::{Submission, op};
use libc::c_int;

use crate::command::Place;
use crate::descriptors::{self, DIRECTORY, Opened};
use crate::{command, mounts};

/// Does something with the place that a path names from a directory's descriptor. None if it is not on a mount of ours as far as names tell.
fn with_place<T>(dir: c_int, path: &[u8], act: impl FnOnce(Place<'_>) -> T) -> Option<T> {
    if path.is_empty() || !mounts::is_on() {
        return None;
    }
    let mut whole = Cow::Borrowed(path);
    if path[0] != b'/' {
        if dir != libc::AT_FDCWD {
            let opened = descriptors::get(dir).filter(|opened| opened.flags & DIRECTORY != 0)?;
            return Some(act(Place { mount: opened.mount, handle: opened.handle, path }));
        }
        if mounts::all().is_empty() {
            return None;
        }
        // Asked each time: a directory that is renamed takes those who work in it along.
        let mut here = rustix::process::getcwd(Vec::new()).ok()?.into_bytes();
        here.push(b'/');
        here.extend_from_slice(path);
        whole = Cow::Owned(here);
    }
    mounts::all()
        .iter()
        .enumerate()
        .find_map(|(mount, known)| {
            let below = whole.strip_prefix(&known.directory[..])?;
            below.first().is_none_or(|&byte| byte == b'/').then_some((mount, below))
        })
        .map(|(mount, below)| {
            let slashes = below.iter().take_while(|&&byte| byte == b'/').count();
            act(Place { mount, handle: 0, path: &below[slashes..] })
        })
}

/// Closes a handle that no descriptor has any more.
fn close_handle(opened: &Opened) {
    let close =
        Submission { operation: op::CLOSE.into(), handle: opened.handle.into(), ..Submission::default() };
    // A daemon that is gone has closed it.
    let _ = command::plain(opened.mount, b"", b"", close);
}

/// Leaves a descriptor to the kernel.
fn let_go(fd: c_int) {
    if let Some(opened) = descriptors::take(fd) {
        close_handle(&opened);
    }
}
