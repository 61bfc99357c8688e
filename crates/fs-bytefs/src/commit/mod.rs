//! How changes count: transactions and their numbers, the data journal, and what the host does where the
//! firmware has no log (BY-7, BY-16, BY-17).

pub mod group;
pub mod journal;
pub mod pending;
pub mod record;
pub mod redo;
pub mod replay;
pub mod tx;
pub mod txtable;
