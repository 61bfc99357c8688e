//! What a host is in virtual time: how many processors it has, and what work costs on them.

use serde::Deserialize;
use thiserror::Error;

/// The host: its processors and what work costs on them, in virtual time. Times are ns unless the name says
/// otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostProfile {
    /// Number of processors, at least 1.
    pub cores: usize,
    /// From waking a blocked task until it runs.
    pub wake_ns: u64,
    /// Longest time for which a task keeps a processor while others wait for one.
    pub slice_ns: u64,
    /// A system call that does nothing.
    pub syscall_ns: u64,
    /// Copying a byte that is not in the cache, in picoseconds.
    pub copy_ps_per_byte: u64,
    /// Writing a cache line back to memory.
    pub flush_line_ns: u64,
    /// Waiting until stores and write-backs have reached memory.
    pub fence_ns: u64,
}

impl Default for HostProfile {
    /// Eight processors on which nothing costs anything but what [`charge_ns`](crate::cpu::charge_ns)
    /// charges.
    fn default() -> Self {
        Self {
            cores: 8,
            wake_ns: 0,
            slice_ns: 1_000_000,
            syscall_ns: 0,
            copy_ps_per_byte: 0,
            flush_line_ns: 0,
            fence_ns: 0,
        }
    }
}

/// Why a host profile was not taken.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// It is not TOML, or has a field that is not a host profile's.
    #[error("the host profile cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A value that no machine has.
    #[error("the host profile has no processors: set `cores` to at least 1")]
    NoCores,
}

impl HostProfile {
    /// Reads a profile such as `profiles/host-dev.toml`. What it does not name costs nothing.
    ///
    /// # Errors
    /// If it is not TOML, names a field that does not exist, or has no processors.
    pub fn from_toml(text: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text)?;
        if profile.cores == 0 {
            return Err(ProfileError::NoCores);
        }
        Ok(profile)
    }

    /// The two-core machine that Amphi is developed on, as measured there.
    ///
    /// # Panics
    /// Never: the profile is part of the program and tested.
    #[must_use]
    pub fn dev() -> Self {
        Self::from_toml(include_str!("../../../profiles/host-dev.toml"))
            .expect("the built-in profile is well-formed")
    }

    /// What `work` costs in ns.
    #[must_use]
    pub fn cost_ns(&self, work: Work) -> u64 {
        match work {
            Work::Syscall => self.syscall_ns,
            Work::Copy { bytes } => bytes.saturating_mul(self.copy_ps_per_byte) / 1000,
            Work::FlushLines { lines } => lines.saturating_mul(self.flush_line_ns),
            Work::Fence => self.fence_ns,
        }
    }
}

/// Work that a host profile has a price for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Entering and leaving the kernel.
    Syscall,
    /// Copying so many bytes.
    Copy {
        /// Number of bytes.
        bytes: u64,
    },
    /// Writing so many cache lines back.
    FlushLines {
        /// Number of 64-byte lines.
        lines: u64,
    },
    /// A store fence.
    Fence,
}
