//! Who asks, as far as a request tells, and what the kernel knows besides.
//!
//! A request carries user, group and thread. The kernel has checked permissions with all that it knows, so
//! little else is needed: where a rule depends on supplementary groups or capabilities (set-id bits that a
//! change takes away, names of `trusted.` attributes), they are looked up in `/proc`.

use amphi_vfs::{Capabilities, Cred};
use fuser::Request;

/// What a request says of its caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Thread number; 0 for one that this process cannot see.
    pub(crate) thread: u32,
}

impl From<&Request> for Caller {
    fn from(request: &Request) -> Self {
        Self { uid: request.uid(), gid: request.gid(), thread: request.pid() }
    }
}

impl Caller {
    /// The caller of a request that the kernel has permitted. `umask` are the permission bits that what it
    /// makes shall not have.
    pub(crate) fn permitted(self, umask: u32) -> Cred {
        let capabilities = if self.uid == 0 { Capabilities::ALL } else { Capabilities::NONE };
        let umask = (umask & 0o777) as u16;
        Cred { uid: self.uid, gid: self.gid, groups: Vec::new(), capabilities, umask }
    }

    /// The caller with its supplementary groups and capabilities; none if this process cannot see the thread.
    pub(crate) fn in_full(self) -> Option<Cred> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.thread)).ok()?;
        let (groups, capabilities) = parse(&status);
        Some(Cred { uid: self.uid, gid: self.gid, groups, capabilities, umask: 0 })
    }

    /// As [`in_full`](Self::in_full), without any group or capability if they cannot be known.
    pub(crate) fn at_least(self) -> Cred {
        self.in_full().unwrap_or_else(|| self.permitted(0).without_capabilities())
    }
}

/// Groups and effective capabilities in the text of `/proc/PID/status`.
fn parse(status: &str) -> (Vec<u32>, Capabilities) {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
    let groups = field("Groups:").split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect();
    let effective = u64::from_str_radix(field("CapEff:"), 16).unwrap_or(0);
    (groups, Capabilities::of_linux(effective))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_capabilities_are_found() {
        let status = "Name:\tx\nGroups:\t4 24 1000 \nCapEff:\t0000000008000010\nSeccomp:\t0\n";
        let (groups, capabilities) = parse(status);
        assert_eq!(groups, [4, 24, 1000]);
        assert_eq!(capabilities, Capabilities::FSETID.with(Capabilities::MKNOD));
        assert_eq!(parse("nothing"), (Vec::new(), Capabilities::NONE));
    }
}
