//! What keeps stray stores of a program out of a range between calls (AugeFS's MPP, §IV-B).
//!
//! With protection keys, the range has a key of its own, and a thread's access to it is opened by one
//! instruction for the time of a call. Without, either the process's page protections change around each
//! call, which is slow and opens the range to all of the process's threads while one is inside, or nothing
//! protects it.
#![allow(unsafe_code)]

use std::arch::asm;

use amphi_rt::sync::Mutex;

use crate::map::Map;
use crate::planted::{self, Bug};
use crate::signals;

/// How a range is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// By a protection key: a processor without keys does not get in.
    Keys,
    /// By page protections that change around each call.
    Pages,
    /// Not at all.
    Nothing,
}

impl Protection {
    /// All, in the order of their numbers.
    const ALL: [Self; 3] = [Self::Keys, Self::Pages, Self::Nothing];

    /// Its number in a welcome.
    pub(crate) fn number(self) -> u64 {
        Self::ALL.iter().position(|one| *one == self).unwrap_or(0) as u64
    }

    /// The one of a number.
    pub(crate) fn of(number: u64) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Pages => "pages",
            Self::Nothing => "unprotected",
        }
    }

    /// The one of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// Whether the processor and the kernel have protection keys.
#[must_use]
pub fn keys_are_here() -> bool {
    Key::new().is_some()
}

/// A protection key of this process.
#[derive(Debug)]
struct Key(u32);

impl Key {
    fn new() -> Option<Self> {
        // SAFETY: it changes nothing but which keys are taken, and this thread's rights to a key that nobody
        // uses.
        let key = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0, PKEY_DISABLE_ACCESS) };
        let key = u32::try_from(key).ok().map(Self)?;
        signals::guard_key(key.bits());
        Some(key)
    }

    /// The two bits of PKRU that deny this key's pages.
    const fn bits(&self) -> u32 {
        0b11 << (2 * self.0)
    }

    fn set(&self, denied: bool) {
        let mut rights: u32;
        // SAFETY: the key was given, so the processor has the instruction; it reads a register.
        unsafe { asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _, options(nomem, nostack)) };
        rights = if denied { rights | self.bits() } else { rights & !self.bits() };
        // SAFETY: as above. It changes this thread's rights to the range's pages alone. No access to them may
        // move across it, so the compiler is not told that it leaves memory alone.
        unsafe { asm!("wrpkru", in("eax") rights, in("ecx") 0, in("edx") 0, options(nostack)) };
    }
}

const PKEY_DISABLE_ACCESS: u32 = 1;

impl Drop for Key {
    fn drop(&mut self) {
        signals::forget_key(self.bits());
        // SAFETY: nobody uses it any more: what it protected is given other protections first, or the process
        // ends.
        unsafe { libc::syscall(libc::SYS_pkey_free, self.0) };
    }
}

/// The protection of one range in this process.
#[derive(Debug)]
pub(crate) enum Shield {
    Keys(KeyOfRange),
    /// How many threads are inside.
    Pages(Mutex<u32>),
    Nothing,
}

/// A key, kept from other rooms.
#[derive(Debug)]
pub(crate) struct KeyOfRange {
    key: Key,
    /// The kernel delivers signals to threads whose stack it protects.
    lets_signals_in: bool,
}

impl Shield {
    /// Closes the range. None: this process has no protection keys.
    pub(crate) fn raise(protection: Protection, map: &Map) -> Option<Self> {
        Some(match protection {
            Protection::Keys => {
                let key = Key::new()?;
                map.give_key(key.0).ok()?;
                Self::Keys(KeyOfRange { key, lets_signals_in: signals::frames_reach_closed_stacks() })
            }
            Protection::Pages => {
                map.set_closed(true).ok()?;
                Self::Pages(Mutex::new(0))
            }
            Protection::Nothing => Self::Nothing,
        })
    }

    /// Whether a signal may come to a thread that runs on a stack in the range.
    #[inline]
    pub(crate) const fn lets_signals_in(&self) -> bool {
        match self {
            Self::Keys(key) => key.lets_signals_in,
            Self::Pages(_) | Self::Nothing => true,
        }
    }

    /// Opens the range for this thread.
    #[inline]
    pub(crate) fn open(&self, map: &Map) -> bool {
        match self {
            Self::Keys(key) => {
                key.key.set(false);
                true
            }
            Self::Pages(inside) => {
                let mut inside = inside.lock();
                if *inside == 0 && map.set_closed(false).is_err() {
                    return false;
                }
                *inside += 1;
                true
            }
            Self::Nothing => true,
        }
    }

    /// Closes what [`open`](Self::open) has opened.
    #[inline]
    pub(crate) fn close(&self, map: &Map) {
        if planted::has(Bug::StaysOpen) {
            return;
        }
        match self {
            Self::Keys(key) => key.key.set(true),
            Self::Pages(inside) => {
                let mut inside = inside.lock();
                *inside -= 1;
                if *inside == 0 {
                    // Pages that were opened can be closed: it takes no memory that opening did not.
                    let closed = map.set_closed(true);
                    debug_assert!(closed.is_ok(), "{closed:?}");
                }
            }
            Self::Nothing => {}
        }
    }
}
