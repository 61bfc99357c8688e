//! The crash laboratory: pull the plug everywhere.
//!
//! A workload runs in virtual time on an emulated SSD whose every command is recorded ([`rig`]). At each
//! crash point the durability contract says in which states a power failure may leave the device; each is
//! made on a copy-on-write fork ([`state`]), powered on, mounted, compared with what the model and the file
//! system's promise allow ([`oracle`]), checked, and used again ([`judge`]). Everything is decided by the
//! workload's number, so a violation is one short text ([`id`]) that does it again. How it is used is in
//! `docs/crashlab.md`.
#![forbid(unsafe_code)]

mod aged;
pub mod campaign;
mod candidate;
pub mod days;
mod difference;
pub mod explain;
mod failing;
pub mod id;
pub mod judge;
pub mod known;
pub mod lab;
mod make;
pub mod oracle;
mod pair;
mod past;
pub mod rig;
mod run;
pub mod session;
pub mod shrink;
pub mod state;
pub mod subject;
pub mod tree;
mod upkeep;
pub mod workload;

pub use id::{CrashId, Kind, WorkloadId};
pub use known::Known;
pub use lab::{Looking, Tally, Violation};
pub use session::{Outcome, Session};
pub use state::Bound;
