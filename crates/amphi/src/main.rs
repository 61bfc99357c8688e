//! The `amphi` command.
fn main() {}
