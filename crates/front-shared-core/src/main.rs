//! The program of a shared range: `amphi-shared-core IMAGE PLACE PROTECTION SPEED [WORD]...`, with the
//! clients' socket as its standard input and a socket to who keeps it as its standard output.
//! `amphi_front_shared::Manager` starts it; people do not.
//!
//! The kernel starts it somewhere, where it only loads itself into the range; there it starts once more, and
//! is the manager.
#![no_main]
#![allow(unsafe_code)]

mod allocated;
mod load;
mod replaced;

use std::ffi::c_int;
use std::io::Write as _;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use amphi_front_shared_core::{door, range};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Where the C library starts the program, in both its lives.
#[unsafe(no_mangle)]
extern "C" fn main(_count: c_int, _words: *const *const u8) -> c_int {
    if range::BASE.load(Ordering::Relaxed) == 0 {
        let why = load::into_range();
        // SAFETY: who keeps the range gave it, and nobody has it yet.
        say(unsafe { OwnedFd::from_raw_fd(1) }.into(), &format!("{why:#}"));
        return 1;
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
        // SAFETY: no handler: who keeps the range says when it ends, and a terminal's signals are for all its
        // programs at once.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // The first thread's thread-locals are not in the range, so it must not do anything that others see.
    replaced::start_ordered_threads();
    amphi_rt::task::spawn("manager", || {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        // SAFETY: the two descriptors are what this program is given, and nobody else has them.
        let (listener, control) = unsafe { (OwnedFd::from_raw_fd(0), OwnedFd::from_raw_fd(1)) };
        let control = UnixStream::from(control);
        let told = control.try_clone();
        let served = std::panic::catch_unwind(|| door::serve_range(&arguments, listener.into(), control));
        let status = match served {
            Ok(Ok(())) => 0,
            Ok(Err(why)) => {
                if let Ok(told) = told {
                    say(told, &format!("{why:#}"));
                }
                1
            }
            Err(_) => door::die("an error in its program"),
        };
        // SAFETY: it ends the process. Threads that sleep for ever are not waited for.
        unsafe { libc::_exit(status) }
    });
    loop {
        // SAFETY: it waits for a signal.
        unsafe { libc::pause() };
    }
}

/// Says to who keeps the range why there is none.
fn say(mut to: UnixStream, what: &str) {
    // Whoever reads it may be gone.
    let _ = writeln!(to, "why: {what}");
}
