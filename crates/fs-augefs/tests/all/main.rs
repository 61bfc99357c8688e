//! AugeFS's tests, one program: what is compiled for one of them serves all.

mod conformance;
mod cuts;
mod hostile;
mod repair;
mod room;
mod rows;
mod small;
