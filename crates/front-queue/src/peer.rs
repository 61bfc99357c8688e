//! Who a client is, as far as the kernel tells.

use std::os::fd::AsFd;

use amphi_vfs::{Capabilities, Cred};

/// The credentials of whoever connected.
///
/// User and group are the kernel's word on the connection. Groups and capabilities are read from `/proc`, of
/// the process that has the number now; they count only if that is one of the same user. Capabilities count
/// for the superuser alone, and only in this process's user namespace, since in one of its own everybody has
/// all. Whoever has more than is known here is refused, and asks the kernel.
///
/// # Errors
/// The socket is not a connected one.
pub fn credentials(socket: impl AsFd) -> rustix::io::Result<Cred> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    let (uid, gid) = (peer.uid.as_raw(), peer.gid.as_raw());
    let of_peer = |what| std::fs::read_to_string(format!("/proc/{}/{what}", peer.pid.as_raw_pid())).ok();
    let known = of_peer("status").and_then(|status| parse(&status));
    let known = known.filter(|known| known.uid == uid && known.gid == gid);
    let is_here = || {
        of_peer("uid_map").is_some_and(|map| std::fs::read_to_string("/proc/self/uid_map").ok() == Some(map))
    };
    let (groups, capabilities) = match known {
        Some(known) if uid == 0 && is_here() => (known.groups, known.capabilities),
        Some(known) => (known.groups, Capabilities::NONE),
        None => (Vec::new(), Capabilities::NONE),
    };
    Ok(Cred { uid, gid, groups, capabilities, umask: 0 })
}

struct Known {
    /// The ones that decide about files.
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    capabilities: Capabilities,
}

/// What the text of `/proc/PID/status` says.
fn parse(status: &str) -> Option<Known> {
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    // Real, effective, saved, file system.
    let of_files = |name| field(name)?.split_ascii_whitespace().nth(3)?.parse().ok();
    let groups = field("Groups:")?.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect();
    let effective = u64::from_str_radix(field("CapEff:")?, 16).ok()?;
    let capabilities = Capabilities::of_linux(effective);
    Some(Known { uid: of_files("Uid:")?, gid: of_files("Gid:")?, groups, capabilities })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_that_count_for_files_are_found() {
        let status =
            "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t4 24 1000 \nCapEff:\t0000000008000010\n";
        let known = parse(status).unwrap();
        assert_eq!((known.uid, known.gid, known.groups), (4, 8, vec![4, 24, 1000]));
        assert_eq!(known.capabilities, Capabilities::FSETID.with(Capabilities::MKNOD));
        assert!(parse("nothing").is_none());
    }
}
