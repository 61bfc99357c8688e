//! SQLite's C interface to its files, in front of [`Storage`]. The only file of this program with `unsafe`:
//! it turns SQLite's pointers into references and back, and nothing else.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use amphi_vfs::Error;
use anyhow::{Result, ensure};
use rusqlite::ffi::{
    self, SQLITE_CANTOPEN, SQLITE_FULL, SQLITE_IOERR, SQLITE_IOERR_DELETE_NOENT, SQLITE_IOERR_SHORT_READ,
    SQLITE_NOTFOUND, SQLITE_OK, SQLITE_OPEN_CREATE, SQLITE_OPEN_DELETEONCLOSE, SQLITE_OPEN_EXCLUSIVE,
    SQLITE_SYNC_DATAONLY, sqlite3_file, sqlite3_io_methods, sqlite3_vfs,
};

use crate::storage::{OpenFile, Storage, Wanted};

/// The name under which SQLite finds the storage.
pub const NAME: &CStr = c"amphi";

/// What SQLite passes back with every call on the file system.
struct Context {
    storage: &'static Storage,
    /// SQLite's own interface, for clocks and randomness.
    system: *mut sqlite3_vfs,
}

/// What SQLite allocates for an open file; it knows the first field only.
#[repr(C)]
struct File {
    base: sqlite3_file,
    /// From `Box::into_raw`; null before `open` and after `close`.
    open: *mut OpenFile,
}

/// Makes `storage` known to SQLite as [`NAME`], for the rest of the process.
///
/// # Errors
/// If SQLite refuses.
pub fn register(storage: &'static Storage) -> Result<()> {
    // SAFETY: a null name asks for the default; SQLite's own entry lives as long as the process.
    let system = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
    ensure!(!system.is_null(), "SQLite has no file system of its own");
    let context = Box::leak(Box::new(Context { storage, system }));
    let vfs = Box::leak(Box::new(sqlite3_vfs {
        iVersion: 1,
        szOsFile: size_of::<File>() as c_int,
        mxPathname: 512,
        pNext: ptr::null_mut(),
        zName: NAME.as_ptr(),
        pAppData: ptr::from_mut(context).cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: None,
        xCurrentTimeInt64: None,
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }));
    // SAFETY: the structure is complete and leaked, so it outlives every use.
    let code = unsafe { ffi::sqlite3_vfs_register(vfs, 0) };
    ensure!(code == SQLITE_OK, "SQLite refused the file system (code {code})");
    Ok(())
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// The context of a call.
///
/// # Safety
/// `vfs` is the structure that [`register`] made: SQLite passes no other.
unsafe fn context<'a>(vfs: *mut sqlite3_vfs) -> &'a Context {
    // SAFETY: as the caller promises; the context is leaked and never changed.
    unsafe { &*(*vfs).pAppData.cast::<Context>() }
}

/// The open file of a call.
///
/// # Safety
/// `file` has been through a successful [`open`] and not through [`close`].
unsafe fn opened<'a>(file: *mut sqlite3_file) -> &'a OpenFile {
    // SAFETY: as the caller promises; `open` stored a pointer from a box.
    unsafe { &*(*file.cast::<File>()).open }
}

/// SQLite's text.
///
/// # Safety
/// `text` is null or a C string that lives through the call.
unsafe fn text<'a>(text: *const c_char) -> Option<&'a str> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_str().ok()
}

/// SQLite's word for an outcome.
fn code(outcome: Result<(), Error>) -> c_int {
    match outcome {
        Ok(()) => SQLITE_OK,
        Err(Error::NoSpace | Error::NoInodes) => SQLITE_FULL,
        Err(_) => SQLITE_IOERR,
    }
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let file = file.cast::<File>();
    // SAFETY: SQLite passes room for a `File`, as `szOsFile` says; null methods mean that there is nothing to
    // close.
    unsafe { file.write(File { base: sqlite3_file { pMethods: ptr::null() }, open: ptr::null_mut() }) };
    let wanted = Wanted {
        create: flags & SQLITE_OPEN_CREATE != 0,
        exclusive: flags & SQLITE_OPEN_EXCLUSIVE != 0,
        delete_on_close: flags & SQLITE_OPEN_DELETEONCLOSE != 0,
    };
    // SAFETY: SQLite passes the structure it was given, and a C string or null.
    let (context, name) = unsafe { (context(vfs), text(name)) };
    let Ok(open) = context.storage.open(name, wanted) else { return SQLITE_CANTOPEN };
    // SAFETY: `file` is valid as above; `out_flags` is null or valid.
    unsafe {
        file.write(File {
            base: sqlite3_file { pMethods: &raw const METHODS },
            open: Box::into_raw(Box::new(open)),
        });
        if let Some(out_flags) = out_flags.as_mut() {
            *out_flags = flags;
        }
    }
    SQLITE_OK
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    let file = file.cast::<File>();
    // SAFETY: SQLite closes an open file once; the pointer came from a box.
    unsafe {
        drop(Box::from_raw((*file).open));
        (*file).open = ptr::null_mut();
    }
    SQLITE_OK
}

unsafe extern "C" fn read(file: *mut sqlite3_file, into: *mut c_void, len: c_int, offset: i64) -> c_int {
    // SAFETY: the file is open, and `into` has room for `len` bytes. They may be uninitialised, so they are
    // cleared first.
    let (file, into) = unsafe {
        into.cast::<u8>().write_bytes(0, len as usize);
        (opened(file), std::slice::from_raw_parts_mut(into.cast::<u8>(), len as usize))
    };
    match file.read(offset as u64, into) {
        Ok(count) if count == into.len() => SQLITE_OK,
        Ok(_) => SQLITE_IOERR_SHORT_READ,
        Err(error) => code(Err(error)),
    }
}

unsafe extern "C" fn write(file: *mut sqlite3_file, data: *const c_void, len: c_int, offset: i64) -> c_int {
    // SAFETY: the file is open, and `data` holds `len` bytes.
    let (file, data) = unsafe { (opened(file), std::slice::from_raw_parts(data.cast::<u8>(), len as usize)) };
    code(file.write(offset as u64, data))
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: i64) -> c_int {
    // SAFETY: the file is open.
    code(unsafe { opened(file) }.truncate(size as u64))
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: the file is open.
    code(unsafe { opened(file) }.sync(flags & SQLITE_SYNC_DATAONLY != 0))
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, size: *mut i64) -> c_int {
    // SAFETY: the file is open, and `size` is valid.
    unsafe {
        match opened(file).size() {
            Ok(bytes) => {
                *size = bytes as i64;
                SQLITE_OK
            }
            Err(error) => code(Err(error)),
        }
    }
}

unsafe extern "C" fn lock(_: *mut sqlite3_file, _: c_int) -> c_int {
    SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_: *mut sqlite3_file, held: *mut c_int) -> c_int {
    // SAFETY: SQLite passes a valid pointer.
    unsafe { *held = 0 };
    SQLITE_OK
}

unsafe extern "C" fn file_control(_: *mut sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut sqlite3_file) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics(_: *mut sqlite3_file) -> c_int {
    0
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, _: c_int) -> c_int {
    // SAFETY: SQLite passes the structure it was given, and a C string.
    let (context, Some(name)) = (unsafe { (context(vfs), text(name)) }) else { return SQLITE_IOERR };
    match context.storage.delete(name) {
        Err(Error::NotFound) => SQLITE_IOERR_DELETE_NOENT,
        outcome => code(outcome),
    }
}

unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    _: c_int,
    found: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes the structure it was given, and a C string.
    let (context, Some(name)) = (unsafe { (context(vfs), text(name)) }) else { return SQLITE_IOERR };
    let exists = match context.storage.exists(name) {
        Ok(exists) => exists,
        Err(error) => return code(Err(error)),
    };
    // SAFETY: SQLite passes a valid pointer.
    unsafe { *found = c_int::from(exists) };
    SQLITE_OK
}

unsafe extern "C" fn full_pathname(
    _: *mut sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: a C string that lives through the call.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
    if bytes.len() > room as usize {
        return SQLITE_CANTOPEN;
    }
    // SAFETY: `out` has `room` bytes, and the two do not overlap.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len()) };
    SQLITE_OK
}

unsafe extern "C" fn randomness(vfs: *mut sqlite3_vfs, len: c_int, out: *mut c_char) -> c_int {
    // SAFETY: SQLite's own interface, called with what SQLite passed.
    unsafe {
        let system = context(vfs).system;
        (*system).xRandomness.map_or(0, |randomness| randomness(system, len, out))
    }
}

unsafe extern "C" fn sleep(vfs: *mut sqlite3_vfs, microseconds: c_int) -> c_int {
    // SAFETY: as for `randomness`.
    unsafe {
        let system = context(vfs).system;
        (*system).xSleep.map_or(0, |sleep| sleep(system, microseconds))
    }
}

unsafe extern "C" fn current_time(vfs: *mut sqlite3_vfs, days: *mut f64) -> c_int {
    // SAFETY: as for `randomness`.
    unsafe {
        let system = context(vfs).system;
        (*system).xCurrentTime.map_or(SQLITE_IOERR, |now| now(system, days))
    }
}
