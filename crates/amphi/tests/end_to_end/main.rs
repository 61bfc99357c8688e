//! End-to-end tests: the built `amphi` command, driven as a user would, mostly on a real mount.
//!
//! - `command` what needs no mount: arguments, refusals, exit codes
//! - `mounted` mounting, looking, unmounting, dying, coming back
//! - `telemetry` what a mount says of its device: JSON, lines, Prometheus
//! - `bench` a measurement, complete, interrupted, killed
//! - `crash_lab` the crash laboratory's command
//! - `export` the kernel's ext4, XFS and Btrfs on an exported SSD
//! - `programs` SQLite, git, tar and a compiler
//! - `crash_loops` hundreds of crashes under load, with `worker` and `oracle`
//! - `traps` what FUSE file systems are known to get wrong
//! - `external_suites` pjdfstest, fsx, stress-ng and dbench, run by `cargo xtask test --only suites`
//! - `program_crashes` PostgreSQL, RocksDB, Redis, SQLite, git and a build over crashes, run by
//!   `cargo xtask test --only programs`
//! - `mixed_io` direct and buffered I/O, holes and copies in one file, byte by byte
//! - `mapped` memory-mapped files, and what of them travels
//! - `promises` rarer things that programs ask: kept, or refused as docs/posix.md says
//! - `security` what nobody else gets: mounts, images, privileges
//! - `augefs` AugeFS by the command
//! - `devfs` DevFS by the command
//! - `romefs` RomeFS by the command
//! - `rings` a mount whose requests come through io_uring
//! - `accelerated` programs that are run by `amphi run`, beside programs that are not
//! - `orders` programs that call one mount at the same time by all of its doors: their calls have an order
//! - `many_mounts` such a program on twenty mounts
//! - `shared` a mount whose file system lies in a range of addresses that programs share
//! - `signals` signals in the middle of calls into such a range
//! - `linked` programs that link to `libamphifiles`
//! - `beside` a program that is run on a file system of the kernel's and on ours
//! - `descriptors` what their calls answer, beside a file system of the kernel's
//! - `paths` the same of calls by paths, by root and by a user
//! - `placeholders` accelerated programs with descriptors that the kernel does not know
//! - `rig` an image and its mount
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "drives real processes in real time")]

mod accelerated;
mod augefs;
mod bench;
mod beside;
mod command;
mod crash_lab;
mod crash_loops;
mod descriptors;
mod devfs;
mod doors;
mod export;
mod external_suites;
mod linked;
mod listings;
mod many_mounts;
mod mapped;
mod mixed_io;
mod mounted;
mod oracle;
mod orders;
mod paths;
mod pins;
mod placeholders;
mod program_crashes;
mod programs;
mod promises;
mod rig;
mod rings;
mod romefs;
mod security;
mod shared;
mod signals;
mod streams;
mod telemetry;
mod threads;
mod traps;
mod tuning;
mod turns;
mod two_doors;
mod worker;
