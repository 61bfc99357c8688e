//! One instance of a file system inside of every process that uses it (AugeFS's paper, §IV and §VII): its
//! code, heap, locks, caches and state lie in one range of addresses, the same in each process, and an
//! operation is a function call.
//!
//! - [`layout`] says where what lies in the range, [`Call`] what a call hands over.
//! - A [`Manager`] keeps the process that makes the range, and makes a new one when a range has died.
//! - A [`Client`] maps the range and is a [`FileSystem`](amphi_vfs::FileSystem): each method goes through the
//!   gate (`gate.rs`), which opens the range's protection, changes to a stack and thread-locals inside of the
//!   range, calls, and changes back. [`signals`] wait meanwhile.
//!
//! What runs in the range is the program of the crate `front-shared-core`. Nothing here knows which file
//! system it is.
//!
//! Who is let in is trusted not to mean harm: the protection is against stray stores, as the paper's is. So a
//! range admits its owner's processes alone.
#![deny(unsafe_code)]

mod call;
mod client;
mod commands;
mod gate;
pub mod hello;
pub mod layout;
mod manager;
mod map;
mod operation;
mod planted;
mod protection;
mod proxy;
pub mod signals;

pub use call::{Bytes, Call, Caller, Room, TEXT_BYTES, status};
pub use client::{Client, ConnectError};
pub use gate::{WHY_NO_GATE, is_here as gate_is_here};
pub use manager::{CORE, Manager, ManagerOptions, core_beside};
pub use operation::{Operation, errand, pack, told, unpack};
pub use protection::{Protection, keys_are_here};
