//! What a call hands over: one structure on the caller's stack, which the range's code reads and answers in.
//!
//! Buffers are the caller's own memory, which the code in the range reaches as any function does. The layout
//! is C's, since the two sides are compiled apart.

use std::borrow::Cow;

use amphi_vfs::{Capabilities, Cred, Error, Failure, Ino};

/// Most bytes of an error's text.
pub const TEXT_BYTES: usize = 160;

/// Bytes that the callee reads.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Bytes {
    /// Their address.
    pub at: *const u8,
    /// How many.
    pub len: usize,
}

/// Room that the callee writes to.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Room {
    /// Its address.
    pub at: *mut u8,
    /// Its bytes.
    pub len: usize,
    /// How many the answer has; more than `len`: it was not written, ask again with more room.
    pub used: usize,
}

/// For whom.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bits by Linux's numbers of capabilities.
    pub capabilities: u32,
    /// Permission bits that new files shall not have.
    pub umask: u32,
    /// Supplementary groups.
    pub groups: *const u32,
    /// How many groups.
    pub groups_len: usize,
}

/// A call.
#[derive(Debug)]
#[repr(C)]
pub struct Call {
    /// An [`Operation`](crate::Operation).
    pub operation: u32,
    /// A [`status`].
    pub status: u32,
    /// The number that the client was given.
    pub client: u32,
    /// Bytes of `text`.
    pub text_len: u32,
    /// For whom.
    pub caller: Caller,
    /// Arguments, by operation.
    pub numbers: [u64; 8],
    /// A name, or data.
    pub first: Bytes,
    /// A second name, a target, or a value.
    pub second: Bytes,
    /// Room for what has no fixed size.
    pub room: Room,
    /// The answer's numbers, by operation.
    pub answer: [u64; 16],
    /// What an error says.
    pub text: [u8; TEXT_BYTES],
}

/// What becomes of a call. Other numbers are errors of the file system.
pub mod status {
    /// It has been done.
    pub const DONE: u32 = 0;
    /// The range died before it ended; it may have had effects.
    pub const ENDED: u32 = u32::MAX;
    /// The operation does not exist: the two sides are of different versions.
    pub const UNKNOWN: u32 = u32::MAX - 1;
}

const NOTHING: Bytes = Bytes { at: std::ptr::null(), len: 0 };

impl Bytes {
    /// These bytes.
    #[must_use]
    pub const fn of(bytes: &[u8]) -> Self {
        Self { at: bytes.as_ptr(), len: bytes.len() }
    }
}

impl Room {
    /// This room.
    #[must_use]
    pub const fn of(bytes: &mut [u8]) -> Self {
        Self { at: bytes.as_mut_ptr(), len: bytes.len(), used: 0 }
    }
}

impl Call {
    /// A call that has not been made.
    #[must_use]
    pub const fn new(operation: u32, numbers: [u64; 8]) -> Self {
        Self {
            operation,
            status: status::ENDED,
            client: 0,
            text_len: 0,
            caller: Caller {
                uid: 0,
                gid: 0,
                capabilities: 0,
                umask: 0,
                groups: std::ptr::null(),
                groups_len: 0,
            },
            numbers,
            first: NOTHING,
            second: NOTHING,
            room: Room { at: std::ptr::null_mut(), len: 0, used: 0 },
            answer: [0; 16],
            text: [0; TEXT_BYTES],
        }
    }

    /// The call, for `cred`.
    #[must_use]
    pub fn by(mut self, cred: &Cred) -> Self {
        let held = ORDER.iter().enumerate().filter(|(_, one)| cred.has(**one));
        self.caller = Caller {
            uid: cred.uid,
            gid: cred.gid,
            capabilities: held.fold(0, |all, (bit, _)| all | 1 << bit),
            umask: u32::from(cred.umask),
            groups: cred.groups.as_ptr(),
            groups_len: cred.groups.len(),
        };
        self
    }

    /// The capabilities of the caller.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        let held = ORDER.iter().enumerate().filter(|(bit, _)| self.caller.capabilities >> bit & 1 == 1);
        held.fold(Capabilities::NONE, |all, (_, one)| all.with(*one))
    }

    /// Answers with an error.
    pub fn fail(&mut self, error: &Error) {
        let (numbers, text) = match error {
            Error::Stale(ino) => ([ino.0, 0], Cow::Borrowed("")),
            Error::Invalid(text) | Error::Unsupported(text) | Error::Busy(text) => {
                ([0; 2], Cow::Borrowed(*text))
            }
            Error::Corrupt(damage) => {
                let numbers = [u64::from(damage.at.is_some()), damage.at.unwrap_or(0)];
                (numbers, Cow::Owned(format!("{}\n{}", damage.structure, damage.what)))
            }
            Error::Io(Failure::Media { page }) => ([*page, 0], Cow::Borrowed("")),
            Error::Io(Failure::Stuck(text)) => ([0; 2], Cow::Borrowed(*text)),
            Error::Io(
                Failure::Full(text) | Failure::Image(text) | Failure::Refused(text) | Failure::Earlier(text),
            ) => ([0; 2], Cow::Borrowed(text.as_str())),
            _ => ([0; 2], Cow::Borrowed("")),
        };
        self.status = code(error);
        self.answer[..2].copy_from_slice(&numbers);
        let mut len = text.len().min(TEXT_BYTES);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        self.text[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.text_len = len as u32;
    }

    /// What the answer says.
    ///
    /// # Errors
    /// Those of the operation; [`Error::Io`] if the range died.
    pub fn result(&self) -> Result<(), Error> {
        let text =
            || String::from_utf8_lossy(&self.text[..(self.text_len as usize).min(TEXT_BYTES)]).into_owned();
        let failure = match self.status {
            status::DONE => return Ok(()),
            status::ENDED => Failure::Stuck(ENDED),
            2 => return Err(Error::Stale(Ino(self.answer[0]))),
            10 => return Err(Error::Invalid(known(text()))),
            18 => return Err(Error::Unsupported(known(text()))),
            22 => return Err(Error::Busy(known(text()))),
            23 => {
                let text = text();
                let (structure, what) = text.split_once('\n').unwrap_or(("", &text));
                let at = (self.answer[0] != 0).then_some(self.answer[1]);
                return Err(Error::corrupt(known(structure.to_owned()), at, what.to_owned()));
            }
            24 => Failure::Media { page: self.answer[0] },
            26 => Failure::PowerLost,
            27 => Failure::Full(text()),
            28 => Failure::Image(text()),
            29 => Failure::Refused(text()),
            30 => Failure::Stuck(known(text())),
            31 => Failure::Earlier(text()),
            code => {
                let plain = PLAIN.iter().find(|(its, _)| *its == code).map(|(_, error)| error.clone());
                return Err(plain.unwrap_or(Error::Unsupported("an operation that this range does not know")));
            }
        };
        Err(Error::Io(failure))
    }
}

/// What every call says in a range that has died.
const ENDED: &str = "the shared range has ended; connect again";

/// Capabilities, each at the bit that stands for it.
const ORDER: [Capabilities; 8] = [
    Capabilities::CHOWN,
    Capabilities::DAC_OVERRIDE,
    Capabilities::DAC_READ_SEARCH,
    Capabilities::FOWNER,
    Capabilities::FSETID,
    Capabilities::MKNOD,
    Capabilities::SETFCAP,
    Capabilities::SYS_ADMIN,
];

/// Errors that say nothing more, with their numbers.
const PLAIN: [(u32, Error); 18] = [
    (1, Error::NotFound),
    (3, Error::Exists),
    (4, Error::NotDirectory),
    (5, Error::IsDirectory),
    (6, Error::NotEmpty),
    (7, Error::NameTooLong),
    (8, Error::InvalidName),
    (11, Error::IntoItself),
    (12, Error::NoSpace),
    (13, Error::NoInodes),
    (14, Error::TooLarge),
    (15, Error::TooManyLinks),
    (16, Error::PermissionDenied),
    (17, Error::NotPermitted),
    (19, Error::ReadOnly),
    (20, Error::NoData),
    (21, Error::BufferTooSmall),
    (25, Error::XattrTooLarge),
];

fn code(error: &Error) -> u32 {
    match error {
        Error::Stale(_) => 2,
        Error::Invalid(_) => 10,
        Error::Unsupported(_) => 18,
        Error::Busy(_) => 22,
        Error::Corrupt(_) => 23,
        Error::Io(Failure::Media { .. }) => 24,
        Error::Io(Failure::PowerLost) => 26,
        Error::Io(Failure::Full(_)) => 27,
        Error::Io(Failure::Image(_)) => 28,
        Error::Io(Failure::Refused(_)) => 29,
        Error::Io(Failure::Stuck(_)) => 30,
        Error::Io(Failure::Earlier(_)) => 31,
        plain => PLAIN.iter().find(|(_, its)| its == plain).map_or(status::UNKNOWN, |(code, _)| *code),
    }
}

/// A text for the program's life. The range has a few dozen of them, each of which is kept once.
fn known(text: String) -> &'static str {
    static KNOWN: amphi_rt::sync::Mutex<Vec<&'static str>> = amphi_rt::sync::Mutex::new(Vec::new());
    let mut known = KNOWN.lock();
    if let Some(found) = known.iter().find(|known| **known == text) {
        return found;
    }
    let kept: &'static str = Box::leak(text.into_boxed_str());
    known.push(kept);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_comes_out_as_it_went_in() {
        let mut errors: Vec<Error> = PLAIN.iter().map(|(_, error)| error.clone()).collect();
        errors.extend([
            Error::Stale(Ino(77)),
            Error::Invalid("length"),
            Error::Unsupported("x"),
            Error::Busy("pinned"),
            Error::corrupt("inode", 7, "ä".repeat(70)),
            Error::corrupt("superblock", None, "of no version"),
            Error::Io(Failure::Media { page: 9 }),
            Error::Io(Failure::PowerLost),
            Error::Io(Failure::Full("gone".to_owned())),
            Error::Io(Failure::Image("gone".to_owned())),
            Error::Io(Failure::Refused("gone".to_owned())),
            Error::Io(Failure::Stuck("gone")),
            Error::Io(Failure::Earlier("gone".to_owned())),
        ]);
        for error in errors {
            let mut call = Call::new(0, [0; 8]);
            assert!(matches!(call.result(), Err(Error::Io(_))), "a call that nobody answered");
            call.fail(&error);
            assert_eq!(call.result(), Err(error));
        }
        let mut call = Call::new(0, [0; 8]);
        call.fail(&Error::Io(Failure::Refused("ö".repeat(200))));
        assert_eq!(call.result(), Err(Error::Io(Failure::Refused("ö".repeat(80)))), "cut at a letter's end");
    }

    #[test]
    fn capabilities_come_out_as_they_went_in() {
        for cred in [Cred::ROOT, Cred::user(5, 6)] {
            assert_eq!(Call::new(0, [0; 8]).by(&cred).capabilities(), cred.capabilities);
        }
        let one =
            Cred { capabilities: Capabilities::FSETID.with(Capabilities::SYS_ADMIN), ..Cred::user(1, 1) };
        assert_eq!(Call::new(0, [0; 8]).by(&one).capabilities(), one.capabilities);
    }
}
