//! Listing directories: libc's stream keeps its descriptor, and its names come through the queue.
//!
//! The kernel is not told of them, so that what a program does with each of them next need not make it forget
//! again. Where the queue cannot go on, libc does, from the same place on: both count places as the file
//! system does.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use amphi_queue::format::{Completion, ListedName, Submission, op};
use amphi_queue::{first_listed, type_bits};
use amphi_rt::sync::Mutex;
use libc::{DIR, O_DIRECTORY, c_char, c_int, c_long, dirent64};

use super::{bytes, directory, leads_to_descriptors, next_on, opening};
use crate::command;
use crate::errno::{self, fail};
use crate::mounts;
use crate::next::next;
use crate::report::{self, Call};

/// Bytes of names that one command brings, as libc asks the kernel for.
const ROOM: usize = 32 << 10;
/// The least that a name takes of that.
const NAME_BYTES_MIN: usize = size_of::<ListedName>() + 8;
/// Streams at a time whose names come through the queue; others' come from the kernel.
const STREAMS: usize = 64;

/// Where a stream is.
struct Listing {
    /// Where the next command goes on.
    next: u64,
    /// Where a listing would go on that begins behind the last name handed out.
    position: u64,
    names: Vec<u8>,
    /// The first byte of `names` that was not handed out.
    at: usize,
    /// What was handed out last: the program looks at it until it asks for the next one.
    entry: dirent64,
}

struct Stream {
    /// Libc's stream; null if there is none.
    stream: AtomicPtr<DIR>,
    listing: Mutex<Option<Box<Listing>>>,
}

static LISTED: [Stream; STREAMS] =
    [const { Stream { stream: AtomicPtr::new(ptr::null_mut()), listing: Mutex::new(None) } }; STREAMS];

/// The place that a stream has, if it is free or has it.
fn place(stream: *mut DIR) -> &'static Stream {
    // Allocators hand out multiples of 16, and large pieces far apart.
    let address = stream.addr();
    &LISTED[(address >> 4 ^ address >> 12 ^ address >> 15) % STREAMS]
}

/// The place of a stream whose names come through the queue.
fn listed(stream: *mut DIR) -> Option<&'static Stream> {
    let place = place(stream);
    (!stream.is_null() && place.stream.load(Ordering::Acquire) == stream).then_some(place)
}

impl Listing {
    const fn from(position: u64) -> Self {
        // SAFETY: numbers and bytes.
        let entry = unsafe { std::mem::zeroed() };
        Self { next: position, position, names: Vec::new(), at: 0, entry }
    }

    fn go_to(&mut self, position: u64) {
        (self.next, self.position, self.at) = (position, position, 0);
        self.names.clear();
    }

    /// Fetches names if none are left. None: the queue cannot.
    fn fetch(&mut self, fd: c_int) -> Option<()> {
        if self.at < self.names.len() {
            return Some(());
        }
        let opened = directory(fd)?;
        let list = Submission {
            operation: op::LIST.into(),
            handle: opened.handle.into(),
            offset: self.next.into(),
            ..Submission::default()
        };
        let names = &mut self.names;
        names.clear();
        let empty = |area: &amphi_queue::Payload<'_>, answer: &Completion| {
            let len = (answer.len.get() as usize).min(ROOM);
            if let Some(listed) = area.part(0, len as u32) {
                names.resize(len, 0);
                listed.take(names);
            }
        };
        let taken = command::run(opened.mount, b"", b"", list, ROOM, |_| {}, empty);
        let completion = taken.ok()?;
        (self.next, self.at) = (completion.other.get(), 0);
        if let Some(mount) = mounts::all().get(opened.mount) {
            mount.listed((self.names.len() / NAME_BYTES_MIN) as i32);
        }
        Some(())
    }

    /// The next name; null at the end. None: the queue cannot, or says what makes no sense.
    fn read(&mut self, fd: c_int) -> Option<*mut dirent64> {
        self.fetch(fd)?;
        let rest = self.names.get(self.at..).unwrap_or_default();
        if rest.is_empty() {
            return Some(ptr::null_mut());
        }
        let (head, name, len) = first_listed(rest).filter(|(_, name, _)| name.len() < 256)?;
        for (to, from) in self.entry.d_name.iter_mut().zip(name.iter().chain([&0])) {
            *to = *from as c_char;
        }
        self.entry.d_ino = head.ino.get();
        self.entry.d_off = head.next.get() as i64;
        self.entry.d_reclen =
            (std::mem::offset_of!(dirent64, d_name) + name.len() + 1).next_multiple_of(8) as u16;
        self.entry.d_type = (type_bits(head.kind.get()) >> 12) as u8;
        self.at += len;
        self.position = head.next.get();
        Some(&raw mut self.entry)
    }
}

/// The names of a stream that was just opened come through the queue from now on, if it is one of ours and
/// there is a place.
fn begin(stream: *mut DIR) {
    if stream.is_null() {
        return;
    }
    let before = errno::current();
    // SAFETY: an open stream.
    let fd = unsafe { libc::dirfd(stream) };
    // It may be in the middle already.
    let position = if directory(fd).is_some() { kernels_position(fd) } else { -1 };
    let place = place(stream);
    if position >= 0
        && place.stream.compare_exchange(ptr::null_mut(), stream, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    {
        *place.listing.lock() = Some(Box::new(Listing::from(position as u64)));
    }
    fail(before);
}

/// Where the kernel has a descriptor.
fn kernels_position(fd: c_int) -> i64 {
    let (offset, whence) = (0, libc::SEEK_CUR);
    next!(lseek(fd: c_int, offset: i64, whence: c_int) -> i64)
}

/// Forgets a stream, which libc goes on with or closes. Where it was.
pub(super) fn end(stream: *mut DIR) -> Option<u64> {
    let place = listed(stream)?;
    let listing = place.listing.lock().take();
    place.stream.store(ptr::null_mut(), Ordering::Release);
    listing.map(|listing| listing.position)
}

/// Leaves a stream to libc, where it is.
fn leave(stream: *mut DIR) {
    if let Some(position) = end(stream) {
        let position = position as c_long;
        next!(seekdir(stream: *mut DIR, position: c_long) -> ());
    }
}

/// The next name; none if libc is to say it.
fn read(stream: *mut DIR) -> Option<*mut dirent64> {
    let place = listed(stream)?;
    // SAFETY: an open stream, as the program says.
    let fd = unsafe { libc::dirfd(stream) };
    let before = errno::current();
    let entry = place.listing.lock().as_mut()?.read(fd);
    // The end is no error, and errors are the kernel's to say.
    fail(before);
    report::count(Call::List, entry.is_some());
    if entry.is_none() {
        leave(stream);
    }
    entry
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(path: *const c_char) -> *mut DIR {
    // SAFETY: as the program says.
    let named = unsafe { bytes(path) };
    if let Some(path) = named {
        leads_to_descriptors(path);
    }
    let stream = next!(opendir(path: *const c_char) -> *mut DIR);
    if let Some(path) = named.filter(|_| !stream.is_null()) {
        // SAFETY: it has just been opened.
        let fd = unsafe { libc::dirfd(stream) };
        opening::adopt_new(fd, path, O_DIRECTORY);
        begin(stream);
    }
    stream
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopendir(fd: c_int) -> *mut DIR {
    let stream = next_on!(fd, fdopendir(fd: c_int) -> *mut DIR);
    begin(stream);
    stream
}

macro_rules! reading {
    ($($name:ident, $name_r:ident;)*) => {$(
        /// See the module.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(stream: *mut DIR) -> *mut dirent64 {
            read(stream).unwrap_or_else(|| next!($name(stream: *mut DIR) -> *mut dirent64))
        }

        /// Libc's own puts the name where the program says.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name_r(
            stream: *mut DIR,
            entry: *mut dirent64,
            result: *mut *mut dirent64,
        ) -> c_int {
            leave(stream);
            next!($name_r(stream: *mut DIR, entry: *mut dirent64, result: *mut *mut dirent64) -> c_int)
        }
    )*};
}

reading! {
    readdir, readdir_r;
    readdir64, readdir64_r;
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rewinddir(stream: *mut DIR) {
    // SAFETY: the first place of each.
    unsafe { seekdir(stream, 0) };
    if listed(stream).is_none() {
        next!(rewinddir(stream: *mut DIR) -> ());
    }
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seekdir(stream: *mut DIR, position: c_long) {
    match listed(stream).map(|place| place.listing.lock()).as_deref_mut() {
        Some(Some(listing)) => listing.go_to(position as u64),
        _ => next!(seekdir(stream: *mut DIR, position: c_long) -> ()),
    }
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn telldir(stream: *mut DIR) -> c_long {
    match listed(stream).map(|place| place.listing.lock()).as_deref() {
        Some(Some(listing)) => listing.position as c_long,
        _ => next!(telldir(stream: *mut DIR) -> c_long),
    }
}
