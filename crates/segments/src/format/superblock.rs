//! What superblocks have in common.

use amphi_volume::{label_text, random_uuid};
use zerocopy::little_endian::{I64, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Longest label.
pub const LABEL_BYTES: usize = 32;

/// What a file system and its blocks are known by.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Origin {
    /// What all blocks of this file system have in common.
    pub salt: U64,
    /// Creation time, ns since 1970.
    pub created_ns: I64,
    /// Random name of this file system.
    pub uuid: [u8; 16],
    /// Label, padded with NUL.
    pub label: [u8; LABEL_BYTES],
}

const _: () = assert!(size_of::<Origin>() == 64);

impl Origin {
    /// That of a file system that is made now.
    #[must_use]
    pub fn new(label: [u8; LABEL_BYTES]) -> Self {
        let salt = amphi_rt::random::u64().into();
        let created_ns = amphi_rt::time::wall_ns().into();
        Self { salt, created_ns, uuid: random_uuid(), label }
    }

    /// The label without padding.
    #[must_use]
    pub fn label(&self) -> String {
        label_text(&self.label)
    }
}
