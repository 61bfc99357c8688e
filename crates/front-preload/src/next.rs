//! The functions behind ours: libc's own, or another preloaded library's.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::c_void;

/// A function that is looked up once.
pub struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    /// The next function of this name.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address.
    pub fn get(&self) -> *mut c_void {
        let found = self.found.load(Ordering::Relaxed);
        if !found.is_null() {
            return found;
        }
        // SAFETY: the name ends with a zero byte.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // A libc without a function that the program calls: there is nothing to go on with.
            std::process::abort();
        }
        self.found.store(found, Ordering::Relaxed);
        found
    }
}

/// Calls the next function of a name: `next!(close(fd: c_int) -> c_int)`.
macro_rules! next {
    ($name:ident($($argument:ident: $type:ty),*) -> $result:ty) => {{
        static NEXT: $crate::next::Next = {
            const NAME: &std::ffi::CStr =
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                };
            $crate::next::Next::new(NAME)
        };
        // SAFETY: libc's function of this name has this type; what the program passed is passed on.
        unsafe {
            let next: unsafe extern "C" fn($($type),*) -> $result = std::mem::transmute(NEXT.get());
            next($($argument),*)
        }
    }};
}
pub(crate) use next;
