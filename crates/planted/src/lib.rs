//! Faults that tests plant, to see that they notice them.
//!
//! A crate lists its faults in an enum `Bug` and ends its `planted.rs` with [`planted!`], which makes `plant`
//! and `has`. Both look at the crate's own feature `planted-bugs`: without it `has` is `false` at compile
//! time and nothing is left of a fault. A test plants one for its thread; `AMPHI_PLANTED=Name` plants one for
//! a process, by which `cargo xtask test --only rows` sees the named test of each row of docs/papers.md fail.
#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::sync::LazyLock;

/// The name of the fault that the environment plants.
static OF_ENVIRONMENT: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("AMPHI_PLANTED").ok());

/// Whether the environment plants this one. A name that is none of a crate's plants nothing there.
pub fn by_environment(bug: impl Debug) -> bool {
    OF_ENVIRONMENT.as_ref().is_some_and(|name| *name == format!("{bug:?}"))
}

/// Makes `plant` and `has` for an enum of faults in the calling module; of `environment` ones only `has`.
#[macro_export]
macro_rules! planted {
    ($bug:ty) => {
        #[cfg(feature = "planted-bugs")]
        thread_local!(static PLANTED: std::cell::Cell<Option<$bug>> = const { std::cell::Cell::new(None) });

        /// Plants a bug for the calling thread, or takes it away.
        #[cfg(feature = "planted-bugs")]
        pub fn plant(bug: Option<$bug>) {
            PLANTED.set(bug);
        }

        $crate::planted!(@has $bug, |bug| PLANTED.get() == Some(bug) || $crate::by_environment(bug));
    };
    (environment $bug:ty) => {
        $crate::planted!(@has $bug, |bug| $crate::by_environment(bug));
    };
    (@has $bug:ty, |$name:ident| $planted:expr) => {
        /// Whether the bug is planted.
        #[cfg(feature = "planted-bugs")]
        pub(crate) fn has($name: $bug) -> bool {
            $planted
        }

        /// Whether the bug is planted: never, in this build.
        #[cfg(not(feature = "planted-bugs"))]
        pub(crate) const fn has(_bug: $bug) -> bool {
            false
        }
    };
}
