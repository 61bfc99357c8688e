//! What file operations cost the host's processors in virtual time, the same for every file system: entering the kernel, walking paths, copying.

use amphi_rt::cpu;
use serde::Deserialize;

/// Host processor time of file operations, charged in virtual time only. What a file system does beyond that, it charges itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCosts {
    /// Entering and leaving the kernel, and finding the open file, ns.
    pub call_ns: u64,
    /// Each name of a path, found in the dentry cache, ns.
    pub name_ns: u64,
    /// Setting up or tearing down an open file, ns.
    pub open_ns: u64,
    /// Making or removing a name and its inode in the kernel's memory, ns.
    pub namespace_ns: u64,
    /// Copying a byte between the caller and the page cache, ps.
    pub copy_ps_per_byte: u64,
    /// Finding each cached page that a read or write touches, ns.
    pub page_ns: u64,
}

impl HostCosts {
    /// Charges a call that walks `path` and does `more_ns` besides.
    pub(crate) fn walk(&self, path: &str, more_ns: u64) {
        let names = 1 + path.bytes().filter(|byte| *byte == b'/').count() as u64;
        charge(self.call_ns + names * self.name_ns + more_ns);
    }

    /// Charges a call on an open file that moves `bytes`.
    pub(crate) fn transfer(&self, bytes: usize) {
        let bytes = bytes as u64;
        let pages = bytes.div_ceil(4096);
        charge(self.call_ns + pages * self.page_ns + bytes * self.copy_ps_per_byte / 1000);
    }

    /// Charges a call on an open file that moves nothing.
    pub(crate) fn call(&self, more_ns: u64) {
        charge(self.call_ns + more_ns);
    }
}

fn charge(ns: u64) {
    if ns > 0 {
        cpu::charge_ns(ns);
    }
}
