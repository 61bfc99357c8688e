//! RomeFS as tools meet it: what a check finds and a repair mends, what is refused, what `tune` and `resize`
//! change.

mod refused;
mod repair;
