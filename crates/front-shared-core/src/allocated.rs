//! Memory for whoever in the C library asks for some: the allocator of the program, whose memory is in the
//! range, and not the library's own, which would take it from the process that happens to run.
//!
//! The linker puts these in the place of the library's functions (`build.rs`).

use std::ffi::{c_int, c_void};

use libmimalloc_sys as mimalloc;

#[unsafe(no_mangle)]
extern "C" fn __wrap_malloc(bytes: usize) -> *mut c_void {
    // SAFETY: it has no conditions.
    unsafe { mimalloc::mi_malloc(bytes) }
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_calloc(count: usize, bytes: usize) -> *mut c_void {
    let Some(all) = count.checked_mul(bytes) else { return std::ptr::null_mut() };
    // SAFETY: it has no conditions.
    unsafe { mimalloc::mi_zalloc(all) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the caller's promise is the same.
    unsafe { mimalloc::mi_realloc(memory, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_free(memory: *mut c_void) {
    // SAFETY: as above.
    unsafe { mimalloc::mi_free(memory) }
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_memalign(alignment: usize, bytes: usize) -> *mut c_void {
    // SAFETY: it has no conditions.
    unsafe { mimalloc::mi_malloc_aligned(bytes, alignment) }
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    __wrap_memalign(alignment, bytes)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_posix_memalign(
    memory: *mut *mut c_void,
    alignment: usize,
    bytes: usize,
) -> c_int {
    let taken = __wrap_memalign(alignment, bytes);
    if taken.is_null() {
        return libc::ENOMEM;
    }
    // SAFETY: the caller passes a place for the address.
    unsafe { *memory = taken };
    0
}
