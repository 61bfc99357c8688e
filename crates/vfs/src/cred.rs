//! Who asks.

/// The credentials of a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Cred {
    /// The superuser.
    pub const ROOT: Self = Self { uid: 0, gid: 0, groups: Vec::new() };
}
