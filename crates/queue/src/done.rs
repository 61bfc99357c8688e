//! What comes of a command.

use amphi_vfs::Attr;

/// What a command came to.
#[derive(Default)]
pub(crate) struct Done {
    /// Both as the operation says.
    pub(crate) value: u64,
    pub(crate) other: u64,
    /// Bytes of the answer.
    pub(crate) len: u32,
    /// Of the file, where the operation tells them.
    pub(crate) attr: Option<Attr>,
}

impl Done {
    /// A number.
    pub(crate) fn value(value: u64) -> Self {
        Self { value, ..Self::default() }
    }

    /// So many bytes, as many of them in the answer.
    pub(crate) fn bytes(len: usize) -> Self {
        Self { value: len as u64, len: len as u32, ..Self::default() }
    }

    /// A file's attributes.
    pub(crate) fn attr(attr: Attr) -> Self {
        Self { attr: Some(attr), ..Self::default() }
    }
}
