//! Standard output and standard error of a command whose reader may go away: `amphi bench list | head`.
//!
//! Where nobody reads standard output any more, the command ends as a signal would end it, after everything
//! that it holds was let go: mounts, devices, files. The macros here stand for the standard library's, which
//! panic there.

use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

use signal_hook::consts::SIGPIPE;
use signal_hook::low_level::emulate_default_handler;

/// As the standard library's.
macro_rules! print {
    ($($text:tt)*) => { $crate::output::print(::std::format_args!($($text)*)) };
}

/// As the standard library's.
macro_rules! println {
    () => { $crate::output::print(::std::format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::print(::std::format_args!("{}\n", ::std::format_args!($($text)*))) };
}

/// As the standard library's.
macro_rules! eprintln {
    ($($text:tt)*) => { $crate::output::complain(::std::format_args!("{}\n", ::std::format_args!($($text)*))) };
}

/// Standard output does not take what is printed.
struct Unprinted(io::Error);

/// Prints to standard output. If that is not possible, [`guarded`] ends the command.
pub fn print(text: fmt::Arguments<'_>) {
    if let Err(error) = io::stdout().write_fmt(text) {
        resume_unwind(Box::new(Unprinted(error)));
    }
}

/// Prints to standard error, if anybody listens there.
pub fn complain(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Runs a command. A closed pipe as standard output ends the process by its signal; on any other failure to
/// print the command has failed, with the code `unprinted`.
pub fn guarded(unprinted: ExitCode, command: impl FnOnce() -> ExitCode) -> ExitCode {
    match catch_unwind(AssertUnwindSafe(command)).map_err(|cause| cause.downcast::<Unprinted>()) {
        Ok(code) => code,
        Err(Ok(cause)) => {
            if cause.0.kind() == ErrorKind::BrokenPipe {
                // It does not return: the signal's default is to end the process.
                let _ = emulate_default_handler(SIGPIPE);
            }
            eprintln!("amphi: standard output cannot be written: {}", cause.0);
            unprinted
        }
        Err(Err(cause)) => resume_unwind(cause),
    }
}
