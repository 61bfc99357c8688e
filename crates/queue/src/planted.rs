//! Bugs that tests plant in the server, to prove that they find them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but `cargo xtask test --only rows` enables;
//! without it every question here is answered "no" when the program is compiled. One is planted for the whole
//! process, by its name in `AMPHI_PLANTED`.

/// A bug of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Fields that a command does not use are not looked at (DV-1).
    ReservedNotChecked,
    /// A session that shall ask each time for permission asks when a file is opened, and then no more (DV-8).
    CheckedAtOpenOnly,
    /// A handle that was closed names the file that has its place now (AU-11).
    HandleUsedAgain,
}

amphi_planted::planted!(environment Bug);
