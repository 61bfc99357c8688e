//! The volatile write cache of devices that promise durability only after a flush.
//!
//! A completed block write is published as always; what makes it volatile is that the page it replaced is
//! remembered, and that a power cut may put it back: the flash page is then taken to have never been
//! programmed properly. The replaced page's block is not erased meanwhile, and no log region is emptied,
//! since either could hold what a reverted write uncovers. A host crash takes nothing: the device keeps its
//! power.

use amphi_rt::sync::Mutex;

use crate::format::Mapping;

/// What became of a completed write that no flush had covered when the power went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It had reached flash.
    Kept,
    /// It had not.
    Lost,
    /// Some of its parts had, as this seed says.
    Torn(u64),
}

/// A write that a power cut may still revert.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unflushed {
    /// Of the sequence clock: no two writes have the same.
    pub number: u64,
    pub lpa: u64,
    pub before: Mapping,
    pub page: u64,
}

/// Completed writes that no flush has covered yet, oldest first.
#[derive(Debug, Default)]
pub(crate) struct VolatileCache(pub(super) Mutex<Vec<Unflushed>>);
