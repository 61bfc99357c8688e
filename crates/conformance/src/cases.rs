//! The cases, by what they are about.

use crate::Case;

pub(crate) mod acls;
mod allocation;
mod attributes;
mod data;
mod directories;
mod links;
mod listing;
mod references;
mod rename;
mod tasks;
mod unnamed;
mod xattrs;

/// Lists functions as cases, named after themselves with spaces.
macro_rules! case_list {
    ($($function:ident),* $(,)?) => {
        /// The cases of this file.
        pub(super) fn all() -> Vec<$crate::Case> {
            vec![$($crate::Case { name: stringify!($function), run: $function }),*]
        }
    };
}
use case_list;

pub(crate) fn all() -> Vec<Case> {
    [
        acls::all(),
        allocation::all(),
        attributes::all(),
        data::all(),
        directories::all(),
        links::all(),
        listing::all(),
        references::all(),
        rename::all(),
        tasks::all(),
        unnamed::all(),
        xattrs::all(),
    ]
    .concat()
}
