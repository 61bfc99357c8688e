//! What is made once, and may be asked for in a signal's handler: a handler that comes in the middle of
//! making it would wait for its own thread. So signals wait until it is made.
#![allow(unsafe_code)]

use amphi_rt::sync::OnceCell;
use libc::sigset_t;

/// While this lives, no handler of a signal runs in this thread.
#[derive(Debug)]
pub struct Masked {
    before: sigset_t,
}

impl Masked {
    /// Lets all signals of this thread wait.
    pub fn begin() -> Self {
        // SAFETY: zeros are a set, and both are this function's own.
        unsafe {
            let (mut all, mut before) = std::mem::zeroed::<(sigset_t, sigset_t)>();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self { before }
        }
    }
}

impl Drop for Masked {
    fn drop(&mut self) {
        // SAFETY: the set that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}

/// A value that is made by who asks for it first.
#[derive(Debug)]
pub struct MadeOnce<T>(OnceCell<T>);

impl<T> MadeOnce<T> {
    /// Without a value.
    pub const fn new() -> Self {
        Self(OnceCell::new())
    }

    /// The value, if it has been made.
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// The value, made now if there is none.
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.0.get() {
            return value;
        }
        let _masked = Masked::begin();
        self.0.get_or_init(make)
    }
}
