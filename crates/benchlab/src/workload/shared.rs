//! What the threads of a run share, and the time of it that counts.

use std::sync::atomic::{AtomicBool, AtomicU64};

use amphi_rt::sync::Mutex;

use super::fileset::Prepared;
use super::plan::Plan;
use super::semaphore::Instances;
use crate::files::{Error, Files};

/// What a run shares between its threads.
pub(super) struct Shared<'a> {
    pub(super) files: &'a dyn Files,
    pub(super) prepared: &'a Prepared,
    pub(super) semaphores: Vec<Instances>,
    pub(super) plan: &'a Plan,
    /// What is written: two halves of noise, of which parts are taken at random places.
    pub(super) contents: &'a [u8],
    pub(super) window: Window,
    /// A thread found nothing left to do, or failed.
    pub(super) over: AtomicBool,
    /// Operations left, where their number ends the run.
    pub(super) left: Option<AtomicU64>,
    /// Why the first thread that failed did.
    pub(super) failure: Mutex<Option<Error>>,
}

/// The time that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// When it begins, on the clock of [`now_ns`](amphi_rt::time::now_ns).
    pub begin_ns: u64,
    /// When it ends; `u64::MAX` if something else ends the run.
    pub end_ns: u64,
}
