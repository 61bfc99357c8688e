//! The environment that a program gives to those it starts: what makes them accelerated stays in it.
//!
//! Many programs give their children an environment of their own making (`env -i`, build tools, servers).
//! Under `amphi run` these children are meant too. So what `amphi run` had put into the environment when the
//! program began is put back where it is missing. With `LD_PRELOAD` alone nothing is.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_int};

use crate::{fork, mounts};

/// Words as programs pass them: pointers, and a null at the end.
pub type Words = *const *const c_char;

/// Says that the program was started by `amphi run`.
const MARK: &[u8] = b"AMPHI_RUN=";
/// What begins so is kept.
const KEPT: [&[u8]; 2] = [b"LD_PRELOAD=", b"AMPHI_"];

/// What is kept; null if nothing is.
static AT_START: AtomicPtr<Vec<CString>> = AtomicPtr::new(std::ptr::null_mut());

// The loader calls what is listed here, before the program changes anything.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn(c_int, Words, Words) = look;

extern "C" fn look(_count: c_int, _arguments: Words, environment: Words) {
    // SAFETY: what the loader passes.
    keep(unsafe { strings(environment) });
    // This allocated. An allocator that asks for its options in its first call has done so now.
    mounts::begin(fork::prepare);
}

fn keep(all: Vec<&CStr>) {
    if !all.iter().any(|text| text.to_bytes().starts_with(MARK)) {
        return;
    }
    let is_kept = |text: &&&CStr| KEPT.iter().any(|start| text.to_bytes().starts_with(start));
    let kept: Vec<CString> = all.iter().filter(is_kept).map(|text| (*text).to_owned()).collect();
    AT_START.store(Box::into_raw(Box::new(kept)), Ordering::Release);
}

/// # Safety
/// `words` is null or ends with a null.
unsafe fn strings<'a>(words: Words) -> Vec<&'a CStr> {
    let mut all = Vec::new();
    let mut at = words;
    // SAFETY: the caller's; nothing behind the null is read.
    while let Some(word) = unsafe { at.as_ref() }.filter(|word| !word.is_null()) {
        // SAFETY: as above.
        all.push(unsafe { CStr::from_ptr(*word) });
        // SAFETY: not the null yet.
        at = unsafe { at.add(1) };
    }
    all
}

/// The environment that `given` shall be; empty if it is right as it is.
///
/// # Safety
/// `given` is null or ends with a null.
pub unsafe fn completed(given: Words) -> Vec<*const c_char> {
    // SAFETY: null or given up for good.
    let Some(kept) = (unsafe { AT_START.load(Ordering::Acquire).as_ref() }) else { return Vec::new() };
    // SAFETY: the caller's.
    let given = unsafe { strings(given) };
    let name = |text: &CStr| text.to_bytes().split(|&byte| byte == b'=').next().map(<[u8]>::to_vec);
    let is_missing = |text: &&CString| !given.iter().any(|other| name(other) == name(text));
    let missing: Vec<_> = kept.iter().filter(is_missing).map(|text| text.as_ptr()).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let mut all: Vec<_> = given.iter().map(|text| text.as_ptr()).collect();
    all.extend(missing);
    all.push(std::ptr::null());
    all
}
