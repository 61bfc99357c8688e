//! The store's tests, one program: what is compiled for one of them serves all.

mod log;
mod rig;
mod store;
mod store_cuts;
mod store_hostile;
