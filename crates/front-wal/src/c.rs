//! The functions of `amphi_wal.h`: a C program's pointers in, errno out.
//!
//! A function answers what the header says, or a negative errno and keeps the sentence for
//! [`amphi_wal_error`]. A null pointer where the header wants none is `-EINVAL`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

use crate::errno::errno;
use crate::session::{Failure, Mode, Opening, Session};

/// What the header calls `struct amphi_wal`.
pub struct Handle {
    session: Session,
    /// The record that the program looks at.
    shown: Vec<u8>,
}

thread_local!(static LAST: RefCell<CString> = RefCell::default());

/// `AMPHI_WAL_FREE`.
const FREE: c_int = 0x100;

/// Keeps the failure's sentence and answers its errno.
fn failed(failure: &Failure) -> c_int {
    let sentence = CString::new(failure.to_string()).unwrap_or_default();
    LAST.with(|last| *last.borrow_mut() = sentence);
    -errno(failure)
}

fn answer(outcome: Result<(), Failure>) -> c_int {
    outcome.map_or_else(|failure| failed(&failure), |()| 0)
}

const NULL: Failure = Failure::Argument("a pointer is null");

/// The text of a C string.
///
/// # Safety
/// `text` is null or a string that ends.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(NULL);
    }
    // SAFETY: not null, and the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::Argument("a path is not UTF-8"))
}

/// The sentence of the calling thread's last failure. Valid until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn amphi_wal_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// Opens a log, and makes it where there is none.
///
/// # Safety
/// `image` and `file` are null or strings that end, `log` null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_wal_open(
    image: *const c_char,
    file: *const c_char,
    bytes: u64,
    mode: c_int,
    log: *mut *mut Handle,
) -> c_int {
    // SAFETY: the caller's promise.
    let (image, file) = match unsafe { (text(image), text(file)) } {
        (Ok(image), Ok(file)) => (image, file),
        (Err(failure), _) | (_, Err(failure)) => return failed(&failure),
    };
    if log.is_null() {
        return failed(&NULL);
    }
    let commits = match mode & !FREE {
        0 => Mode::Sync,
        1 => Mode::Async,
        2 => Mode::Ba,
        _ => return failed(&Failure::Argument("no such mode")),
    };
    let opening = Opening { mode: commits, bytes, free: mode & FREE != 0 };
    match Session::open(Path::new(image), file, &opening) {
        Ok(session) => {
            let handle = Box::into_raw(Box::new(Handle { session, shown: Vec::new() }));
            // SAFETY: not null, and writable by the caller's promise.
            unsafe { *log = handle };
            0
        }
        Err(failure) => failed(&failure),
    }
}

/// Shows the next record: 1, or 0 after the last one.
///
/// # Safety
/// `log` is null or an open log that no other thread uses meanwhile; the others are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_wal_next(
    log: *mut Handle,
    data: *mut *const c_void,
    len: *mut usize,
    sequence: *mut u64,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(handle) = (unsafe { log.as_mut() }) else { return failed(&NULL) };
    match handle.session.next() {
        Ok(None) => 0,
        Ok(Some(record)) => {
            handle.shown = record.content;
            // SAFETY: each is null or writable by the caller's promise.
            unsafe {
                if let Some(data) = data.as_mut() {
                    *data = handle.shown.as_ptr().cast();
                }
                if let Some(len) = len.as_mut() {
                    *len = handle.shown.len();
                }
                if let Some(sequence) = sequence.as_mut() {
                    *sequence = record.sequence;
                }
            }
            1
        }
        Err(failure) => failed(&failure),
    }
}

/// Appends a record: its number.
///
/// # Safety
/// `log` is null or an open log; `data` points at `len` readable bytes, or `len` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_wal_append(log: *const Handle, data: *const c_void, len: usize) -> i64 {
    // SAFETY: the caller's promise.
    let Some(handle) = (unsafe { log.as_ref() }) else { return failed(&NULL).into() };
    if data.is_null() && len > 0 {
        return failed(&NULL).into();
    }
    let content = match len {
        0 => &[],
        // SAFETY: so many readable bytes by the caller's promise.
        len => unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) },
    };
    match handle.session.append(content) {
        Ok(sequence) => sequence as i64,
        Err(failure) => failed(&failure).into(),
    }
}

/// Commits.
///
/// # Safety
/// `log` is null or an open log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_wal_commit(log: *const Handle) -> c_int {
    // SAFETY: the caller's promise.
    let handle = unsafe { log.as_ref() };
    answer(handle.ok_or(NULL).and_then(|handle| handle.session.commit()))
}

/// Drops all records.
///
/// # Safety
/// `log` is null or an open log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_wal_truncate(log: *const Handle) -> c_int {
    // SAFETY: the caller's promise.
    let handle = unsafe { log.as_ref() };
    answer(handle.ok_or(NULL).and_then(|handle| handle.session.truncate()))
}

/// The number of the last durable record.
///
/// # Safety
/// `log` is null or an open log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_wal_durable(log: *const Handle) -> i64 {
    // SAFETY: the caller's promise.
    let handle = unsafe { log.as_ref() };
    match handle.ok_or(NULL).and_then(|handle| handle.session.durable()) {
        Ok(sequence) => sequence as i64,
        Err(failure) => failed(&failure).into(),
    }
}

/// Commits and closes. The handle is gone, whatever the answer.
///
/// # Safety
/// `log` is null or an open log that nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_wal_close(log: *mut Handle) -> c_int {
    if log.is_null() {
        return failed(&NULL);
    }
    // SAFETY: it came from `amphi_wal_open`, and nobody uses it any more.
    let handle = unsafe { Box::from_raw(log) };
    answer(handle.session.close())
}
