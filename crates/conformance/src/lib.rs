//! One suite for every file system: what the documentation of [`amphi_vfs::FileSystem`] promises, checked.
//!
//! - [`check_all`] runs every [`Case`]: one promise each, errors included, some with several tasks at once.
//! - [`check_read_only`] and [`check_room_for_names`] look at a file system that is mounted read-only, and at
//!   a full one; [`check_unreadable_ahead`] at one whose device cannot read a page.
//! - [`random`] applies random operations to a file system and to [`amphi_model::Model`], compares every
//!   answer and the whole tree, and shrinks what fails to a minimal sequence; with remounts in between, and
//!   with several tasks.
//! - [`sync_each`] makes all durable by `fsync` alone, so that a crash and its recovery are a remount too.
//! - [`damaged`] uses whatever a damaged device holds.
//! - [`one_tree`] has tasks meddle with each other's names in one small tree.
//! - [`random_tests`] and [`one_tree_tests`] are the tests that most file systems make of these.
//!
//! A file system runs it from a test of its own:
//!
//! ```
//! amphi_conformance::check_all(amphi_model::Model::new);
//! amphi_conformance::random::run(amphi_model::Model::new, 1, 500);
//! ```
//!
//! Inside `amphi_rt::Sim` the same calls run in virtual time, and the interleavings follow from its seed.
#![forbid(unsafe_code)]

mod cases;
pub mod damaged;
mod durable;
mod harness;
pub mod one_tree;
pub mod random;
mod states;
mod suite;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use amphi_vfs::FileSystem;
pub use durable::sync_each;
pub use harness::Fs;
pub use states::{check_read_only, check_room_for_names, check_unreadable_ahead};

/// One promise and the code that checks it on an empty file system; it panics where the promise is broken.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The promise, in words.
    pub name: &'static str,
    /// The check.
    pub run: fn(&Fs),
}

/// All cases.
#[must_use]
pub fn cases() -> Vec<Case> {
    cases::all()
}

/// Runs all cases, each on a file system fresh from `make`.
///
/// # Panics
/// After the last case, with the names and messages of those that failed.
pub fn check_all<F: FileSystem + 'static>(make: impl Fn() -> F) {
    check_some(make, |_| true);
}

/// Runs the cases whose name `wanted` accepts, each on a file system fresh from `make`.
///
/// # Panics
/// After the last case, with the names and messages of those that failed.
pub fn check_some<F: FileSystem + 'static>(make: impl Fn() -> F, wanted: impl Fn(&str) -> bool) {
    let mut failed = Vec::new();
    let mut passed = 0;
    for case in cases().into_iter().filter(|case| wanted(case.name)) {
        let fs = Fs::new(Arc::new(make()));
        match catch_unwind(AssertUnwindSafe(|| (case.run)(&fs))) {
            Ok(()) => passed += 1,
            Err(cause) => failed.push(format!("  {}: {}", case.name, harness::message(&*cause))),
        }
    }
    assert!(failed.is_empty(), "{passed} cases passed, {} failed:\n{}", failed.len(), failed.join("\n"));
}
