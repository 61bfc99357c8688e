//! A store as it arrives at the firmware.

use amphi_device::Structure;

use crate::format::PAGE;

/// A store as it reaches the device. It lies within one page of its address space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Store<'a> {
    /// Byte of the window.
    pub(crate) at: u64,
    pub(crate) data: &'a [u8],
    /// Transaction, or 0.
    pub(crate) tx: u32,
    pub(crate) tag: Structure,
}

impl Store<'_> {
    /// The page that the window shows there, on firmware whose window shows pages.
    pub(crate) const fn lpa(&self) -> u64 {
        self.at / PAGE
    }

    /// The first byte within that page.
    pub(crate) const fn offset(&self) -> usize {
        (self.at % PAGE) as usize
    }
}
