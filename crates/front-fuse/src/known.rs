//! What the kernel has been told, as [`Marks`].
//!
//! The marks are this session's own, or lie where another door of the mount finds them, in memory that
//! processes share.

use std::ops::Deref;

use amphi_queue::Marks;

/// The marks of a session.
#[derive(Debug)]
pub(crate) enum Known {
    Own(Box<Marks>),
    Shared(&'static Marks),
}

impl Deref for Known {
    type Target = Marks;

    fn deref(&self) -> &Marks {
        match self {
            Self::Own(marks) => marks,
            Self::Shared(marks) => marks,
        }
    }
}
