//! What names mean in a POSIX file system, over whatever keeps them: lookups and references, creation, links,
//! removal, rename, attributes, extended attributes, ACLs, time stamps, inodes in memory.
//!
//! A file system is a [`Store`]: it reads inodes, finds entries, and begins [`Change`]s. What is here decides
//! which locks are taken in which order, what is refused, what is changed together, and when an inode is
//! deleted. Data of files are none of its business: what a file system keeps in an inode ([`Store::Part`]) is
//! not looked at.
//!
//! - Lock order: the rename lock → a directory's inode → its descendants' inodes → whatever a change locks.
//!   Two directories are locked in the order of their paths, what is in them by number, directories before
//!   what is none.
//! - Everything that can run out is asked for before anything changes ([`Store::begin`]).
//! - An inode without names lives on, among the orphans, until nobody refers to it; its deletion may take
//!   several changes.
//! - Whether a caller may is decided under the locks that the operation takes ([`Access`]).
//! - Times never go back while a file system is mounted.
//!
//! Everything is generic over the store and compiled for each: no call here goes through a table.
#![forbid(unsafe_code)]

mod access;
mod atime;
mod attempt;
mod body;
mod cache;
mod clock;
mod forward;
mod health;
mod inode;
mod load;
mod names;
mod namespace;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod references;
mod remove;
mod rename;
mod setattr;
mod store;
mod xattr;

pub use access::{Access, Trusted};
pub use atime::{move_atime, note_read, read_moves_atime, write_all_atimes, write_atimes};
pub use attempt::with_room;
pub use body::Body;
pub use cache::InodeCache;
pub use clock::Clock;
pub use health::Health;
pub use inode::{Inode, Part, State};
pub use load::inode;
pub use names::{Names, Options};
pub use namespace::{create, link, lookup, mkdir, rmdir, symlink, tmpfile, unlink};
pub use references::{forget, getattr, open, parent, readdir, readlink, reference, release};
pub use remove::delete_orphan;
pub use rename::rename;
pub use setattr::{note_write, setattr};
pub use store::{
    Change, Changed, Child, FIRST_COOKIE, Found, FoundInode, Guard, Need, NewInode, Store, regular,
};
pub use xattr::{getxattr, listxattr, removexattr, setxattr, shed_capability};
