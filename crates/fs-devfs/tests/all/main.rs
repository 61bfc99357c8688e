//! DevFS's tests, one program: what is compiled for one of them serves all.

mod attacks;
mod conformance;
mod door;
mod hostile;
mod memory;
mod queues;
mod repair;
mod rows;
mod small;
