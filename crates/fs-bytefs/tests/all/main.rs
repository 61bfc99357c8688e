//! ByteFS's tests, one program: what is compiled for one of them serves all.

mod addresses;
mod concurrent;
mod conformance;
mod crash;
mod device_errors;
mod diff;
mod fsck_findings;
mod fsck_groups;
#[path = "../fsck_image/mod.rs"]
mod fsck_image;
mod fsck_names;
mod fsck_repair;
mod fsck_use;
mod golden;
mod grouped;
mod journal;
mod layout;
mod memory_limits;
mod options;
mod orphan_table;
mod reads;
mod reservations;
mod setattr_cut;
mod traffic;
mod tune;
mod unnamed;
