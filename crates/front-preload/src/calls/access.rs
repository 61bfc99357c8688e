//! `access` and its relatives: only that something may be done is believed; a refusal is asked again of the
//! kernel, which knows all that a process may.
#![allow(unsafe_code)]

use amphi_queue::format::{Submission, flag, op};
use libc::{AT_FDCWD, c_char, c_int};

use super::{bytes, next_on, told, with_place_to_ask};
use crate::command;
use crate::next::next;
use crate::report::Call;

fn is_same_user() -> bool {
    use rustix::process::{getegid, geteuid, getgid, getuid};
    getuid() == geteuid() && getgid() == getegid()
}

fn permitted(dir: c_int, path: Option<&[u8]>, mode: c_int, flags: c_int) -> Option<c_int> {
    // Whether a mount lets programs be executed is the kernel's to say.
    let is_plain = mode & !(libc::R_OK | libc::W_OK) == 0;
    if !is_plain || flags & !(libc::AT_EACCESS | libc::AT_SYMLINK_NOFOLLOW) != 0 {
        return None;
    }
    let answer = with_place_to_ask(dir, path?, |place| {
        // Without `AT_EACCESS` the real user counts, and the daemon knows the effective one.
        if flags & libc::AT_EACCESS == 0 && !is_same_user() {
            return None;
        }
        let ask = Submission {
            operation: op::ACCESS.into(),
            flags: if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { 0 } else { flag::NO_FOLLOW }.into(),
            handle: place.handle.into(),
            argument: (mode as u64).into(),
            ..Submission::default()
        };
        Some(command::plain(place.mount, place.path, b"", ask))
    });
    told(Call::Access, answer)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: as the program says; so in all of these.
    permitted(AT_FDCWD, unsafe { bytes(path) }, mode, 0)
        .unwrap_or_else(|| next!(access(path: *const c_char, mode: c_int) -> c_int))
}

macro_rules! effective {
    ($($name:ident)*) => {$(
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, mode: c_int) -> c_int {
            // SAFETY: see `access`.
            permitted(AT_FDCWD, unsafe { bytes(path) }, mode, libc::AT_EACCESS)
                .unwrap_or_else(|| next!($name(path: *const c_char, mode: c_int) -> c_int))
        }
    )*};
}

effective! { euidaccess eaccess }

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int {
    // SAFETY: see `access`.
    permitted(dir, unsafe { bytes(path) }, mode, flags).unwrap_or_else(
        || next_on!(dir, faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int),
    )
}
