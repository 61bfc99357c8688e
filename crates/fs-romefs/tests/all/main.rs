//! RomeFS's tests, one program: what is compiled for one of them serves all.

mod conformance;
mod hostile;
mod room;
mod rows;
mod small;
mod volume;
