//! What file operations cost the host's processors in virtual time: entering the kernel, walking paths,
//! copying, the same for every file system; and what the file system computes in memory, by a table that is
//! measured.

use amphi_rt::cpu;
use serde::{Deserialize, Serialize};

/// Host processor time of file operations, charged in virtual time only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCosts {
    /// Entering and leaving the kernel, and finding the open file, ns.
    pub call_ns: u64,
    /// Each name of a path, found in the dentry cache, ns.
    pub name_ns: u64,
    /// Setting up or tearing down an open file, ns.
    pub open_ns: u64,
    /// Making or removing a name and its inode in the kernel's memory, ns. The directory's lock is held
    /// meanwhile.
    pub namespace_ns: u64,
    /// Copying a byte between the caller and the page cache, ps.
    pub copy_ps_per_byte: u64,
    /// Finding each cached page that a read or write touches, ns.
    pub page_ns: u64,
    /// What the file system computes beyond that.
    #[serde(skip)]
    pub computing: Computing,
}

/// What a file system computes in memory for an operation, beyond what [`HostCosts`] charges for the same
/// call, ns. Nothing, unless it is charged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Computing {
    /// Making a file.
    pub create_ns: u64,
    /// Opening one that exists, or asking for its attributes by path.
    pub lookup_ns: u64,
    /// Removing a file.
    pub unlink_ns: u64,
    /// Making a directory.
    pub mkdir_ns: u64,
    /// Removing a directory.
    pub rmdir_ns: u64,
    /// Renaming.
    pub rename_ns: u64,
    /// Each page that is read from the page cache.
    pub read_page_ns: u64,
    /// Each page that is written to the page cache.
    pub write_page_ns: u64,
    /// Each `fsync`, the caller's part.
    pub fsync_ns: u64,
}

impl Computing {
    /// Nothing costs anything.
    pub const FREE: Self = Self {
        create_ns: 0,
        lookup_ns: 0,
        unlink_ns: 0,
        mkdir_ns: 0,
        rmdir_ns: 0,
        rename_ns: 0,
        read_page_ns: 0,
        write_page_ns: 0,
        fsync_ns: 0,
    };
}

impl HostCosts {
    /// Charges a call that walks `path` and does `more_ns` besides.
    pub(crate) fn walk(&self, path: &str, more_ns: u64) {
        let names = 1 + path.bytes().filter(|byte| *byte == b'/').count() as u64;
        charge(self.call_ns + names * self.name_ns + more_ns);
    }

    /// Charges the change of a name, `computing_ns` of it the file system's.
    pub(super) fn namespace(&self, computing_ns: u64) {
        charge(self.namespace_ns + computing_ns);
    }

    /// Charges a call on an open file that moves `bytes`, with `page_ns` of computing for each page.
    pub(super) fn transfer(&self, bytes: usize, page_ns: u64) {
        let bytes = bytes as u64;
        let pages = bytes.div_ceil(4096);
        charge(self.call_ns + pages * (self.page_ns + page_ns) + bytes * self.copy_ps_per_byte / 1000);
    }

    /// Charges a write of `bytes`, `synced` if it is an `fsync` too.
    pub(crate) fn write(&self, bytes: usize, synced: bool) {
        self.transfer(bytes, self.computing.write_page_ns);
        if synced {
            charge(self.computing.fsync_ns);
        }
    }

    /// Charges a call on an open file that moves nothing.
    pub(crate) fn call(&self, more_ns: u64) {
        charge(self.call_ns + more_ns);
    }
}

/// Occupies a processor.
pub(super) fn charge(ns: u64) {
    if ns > 0 {
        cpu::charge_ns(ns);
    }
}
