//! Where what lies in the shared memory.

use zerocopy::little_endian::U32;

use crate::format::{ENTRIES, Header, LANES_MAX, MAGIC, PAGE, PAYLOAD_BYTES_MAX, VERSION};

/// How the memory is divided. Both sides compute places from it; the server from its own copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    lanes: u32,
    payload_bytes: u32,
}

impl Geometry {
    /// `lanes` lanes with `payload_bytes` bytes of payload each; none if either is out of range or the
    /// payload is no multiple of [`PAGE`].
    #[must_use]
    pub const fn new(lanes: u32, payload_bytes: u32) -> Option<Self> {
        let fits = 1 <= lanes && lanes <= LANES_MAX && payload_bytes <= PAYLOAD_BYTES_MAX;
        if fits && payload_bytes > 0 && payload_bytes.is_multiple_of(PAGE as u32) {
            Some(Self { lanes, payload_bytes })
        } else {
            None
        }
    }

    /// What a header says; none if it is not one of this version.
    #[must_use]
    pub fn of(header: &Header) -> Option<Self> {
        let ours = header.magic == MAGIC && header.version == VERSION && header.entries == ENTRIES;
        if ours { Self::new(header.lanes.get(), header.payload_bytes.get()) } else { None }
    }

    /// The header that says this.
    #[must_use]
    pub const fn header(&self) -> Header {
        Header {
            magic: MAGIC,
            version: U32::new(VERSION),
            lanes: U32::new(self.lanes),
            payload_bytes: U32::new(self.payload_bytes),
            entries: U32::new(ENTRIES),
        }
    }

    /// Number of lanes.
    #[must_use]
    pub const fn lanes(&self) -> u32 {
        self.lanes
    }

    /// Bytes of a lane's payload.
    #[must_use]
    pub const fn payload_bytes(&self) -> u32 {
        self.payload_bytes
    }

    /// Bytes of the whole memory.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        PAGE + self.lanes as usize * self.lane_bytes()
    }

    const fn lane_bytes(&self) -> usize {
        PAGE + self.payload_bytes as usize
    }

    /// First byte of a lane's counters.
    #[must_use]
    pub const fn lane_at(&self, lane: u32) -> usize {
        assert!(lane < self.lanes);
        PAGE + lane as usize * self.lane_bytes()
    }

    /// First byte of a lane's payload.
    #[must_use]
    pub const fn payload_at(&self, lane: u32) -> usize {
        self.lane_at(lane) + PAGE
    }
}
