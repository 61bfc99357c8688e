//! Who asks: user, groups, capabilities, and the mode bits that new files shall not have.

/// What a caller may do beyond what owners, groups and modes allow: the part of `capabilities(7)` that
/// concerns files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u16);

impl Capabilities {
    /// Nothing beyond.
    pub const NONE: Self = Self(0);
    /// `CAP_CHOWN`: give files away.
    pub const CHOWN: Self = Self(1);
    /// `CAP_DAC_OVERRIDE`: read, write and (where anybody may) execute everything.
    pub const DAC_OVERRIDE: Self = Self(1 << 1);
    /// `CAP_DAC_READ_SEARCH`: read every file and search every directory.
    pub const DAC_READ_SEARCH: Self = Self(1 << 2);
    /// `CAP_FOWNER`: do what only a file's owner may.
    pub const FOWNER: Self = Self(1 << 3);
    /// `CAP_FSETID`: keep set-id bits when writing; set a set-group-id bit for any group.
    pub const FSETID: Self = Self(1 << 4);
    /// `CAP_MKNOD`: make device nodes.
    pub const MKNOD: Self = Self(1 << 5);
    /// `CAP_SETFCAP`: give files capabilities.
    pub const SETFCAP: Self = Self(1 << 6);
    /// `CAP_SYS_ADMIN`: `trusted.` and `security.` attributes.
    pub const SYS_ADMIN: Self = Self(1 << 7);
    /// All of them: the superuser's.
    pub const ALL: Self = Self(0xFF);

    /// Those of a set as Linux counts them, a bit for each (`CapEff` in `/proc/PID/status`), that concern
    /// files.
    #[must_use]
    pub fn of_linux(set: u64) -> Self {
        const BITS: [(u32, Capabilities); 8] = [
            (0, Capabilities::CHOWN),
            (1, Capabilities::DAC_OVERRIDE),
            (2, Capabilities::DAC_READ_SEARCH),
            (3, Capabilities::FOWNER),
            (4, Capabilities::FSETID),
            (21, Capabilities::SYS_ADMIN),
            (27, Capabilities::MKNOD),
            (31, Capabilities::SETFCAP),
        ];
        let held = BITS.iter().filter(|(bit, _)| set >> bit & 1 == 1);
        held.fold(Self::NONE, |all, (_, one)| all.with(*one))
    }

    /// Whether all of `wanted` are among these.
    #[must_use]
    pub const fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// These and `others`.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These without `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }
}

/// The credentials of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Capabilities. A user number of zero alone permits nothing special.
    pub capabilities: Capabilities,
    /// Permission bits that what the caller creates shall not have, unless the directory has a default ACL:
    /// `0o777`.
    pub umask: u16,
}

impl Cred {
    /// The superuser.
    pub const ROOT: Self = Self::user(0, 0);

    /// A user with one group and no umask; number 0 has all capabilities, others none.
    #[must_use]
    pub const fn user(uid: u32, gid: u32) -> Self {
        let capabilities = if uid == 0 { Capabilities::ALL } else { Capabilities::NONE };
        Self { uid, gid, groups: Vec::new(), capabilities, umask: 0 }
    }

    /// The same caller without any capability.
    #[must_use]
    pub fn without_capabilities(self) -> Self {
        Self { capabilities: Capabilities::NONE, ..self }
    }

    /// Whether the caller has all of `wanted`.
    #[must_use]
    pub const fn has(&self, wanted: Capabilities) -> bool {
        self.capabilities.has(wanted)
    }

    /// Whether the caller belongs to `group`.
    #[must_use]
    pub fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_a_set() {
        let two = Capabilities::CHOWN.with(Capabilities::FOWNER);
        assert!(two.has(Capabilities::CHOWN) && two.has(two) && !two.has(Capabilities::FSETID));
        assert!(!two.without(Capabilities::CHOWN).has(Capabilities::CHOWN));
        assert!(Cred::ROOT.has(Capabilities::ALL) && !Cred::user(7, 0).has(Capabilities::CHOWN));
    }

    #[test]
    fn groups_are_the_effective_and_the_supplementary() {
        let cred = Cred { groups: vec![5], ..Cred::user(1, 2) };
        assert!(cred.is_in(2) && cred.is_in(5) && !cred.is_in(1));
    }
}
