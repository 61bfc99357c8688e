//! The link between host and device, and the queues commands travel through.

use serde::{Deserialize, Serialize};

use super::{Rule, TIME};

/// A link, as profiles spell it. Its raw bandwidth and the overhead of its packets follow from the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// No limit of its own: only `read_mb_s` and `write_mb_s` bound it.
    #[default]
    Unlimited,
    /// PCIe 3.0, four lanes of 8 GT/s.
    Pcie3X4,
    /// PCIe 4.0, four lanes of 16 GT/s.
    Pcie4X4,
    /// PCIe 5.0, four lanes of 32 GT/s.
    Pcie5X4,
    /// PCIe 5.0, eight lanes.
    Pcie5X8,
    /// CXL.mem in 68 B flits over PCIe 5.0, four lanes.
    CxlX4,
    /// CXL.mem in 68 B flits over PCIe 5.0, eight lanes.
    CxlX8,
}

/// What a link makes of bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Wire {
    /// Bytes a second in one direction, in units of 10^6, after line coding.
    pub(crate) raw_mb_s: f64,
    /// Most data bytes of a packet.
    pub(crate) payload: u64,
    /// Bytes a packet adds to its data.
    pub(crate) overhead: u64,
}

impl LinkKind {
    /// The link's raw bandwidth and packets, unless it has no limit.
    ///
    /// Line coding is 128b/130b from PCIe 3.0 on (PCIe base specification). Packets: 256 B of payload at
    /// most, the usual setting, and 24 B around it: 4 B of framing and sequence number, 16 B of header with a
    /// 64-bit address, 4 B of LCRC. A CXL flit of 68 B has four slots of 16 B; 64 B of data take four, and
    /// one more for the message's header, which is 21 B beside the data.
    pub(crate) fn wire(self) -> Option<Wire> {
        let pcie = |gigatransfers: f64, lanes: f64| gigatransfers * lanes * 1000.0 / 8.0 * 128.0 / 130.0;
        let (raw_mb_s, payload, overhead) = match self {
            Self::Unlimited => return None,
            Self::Pcie3X4 => (pcie(8.0, 4.0), 256, 24),
            Self::Pcie4X4 => (pcie(16.0, 4.0), 256, 24),
            Self::Pcie5X4 => (pcie(32.0, 4.0), 256, 24),
            Self::Pcie5X8 => (pcie(32.0, 8.0), 256, 24),
            Self::CxlX4 => (pcie(32.0, 4.0), 64, 21),
            Self::CxlX8 => (pcie(32.0, 8.0), 64, 21),
        };
        Some(Wire { raw_mb_s, payload, overhead })
    }
}

impl Wire {
    /// Bytes on the wire for `bytes` of data in pieces of at most `piece` bytes.
    pub(crate) fn bytes(self, bytes: u64, piece: u64) -> u64 {
        bytes + bytes.div_ceil(piece.min(self.payload).max(1)) * self.overhead
    }
}

/// The link between host and device. Byte and block traffic share it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkProfile {
    /// Which link it is.
    #[serde(default)]
    pub kind: LinkKind,
    /// What the device's block engine can send, in MB/s (10^6 bytes); 0 is as much as the link carries.
    pub read_mb_s: u64,
    /// What the device's block engine can take, in MB/s; 0 is as much as the link carries.
    pub write_mb_s: u64,
    /// Latency of a load of one 64 B line, in ns.
    pub line_read_ns: u64,
    /// Latency of making one posted line durable, in ns.
    pub line_write_ns: u64,
    /// Fixed part of a block or vendor command, in ns.
    pub command_ns: u64,
    /// Bytes of one load: 64 (cacheable, CXL.mem) or 8 (uncacheable PCIe window: a line is eight loads, each
    /// an eighth of `line_read_ns`).
    #[serde(default = "LinkProfile::default_load_bytes")]
    pub load_bytes: u64,
    /// What each further load of one access takes, in ps, where loads overlap; 0: each waits for the one
    /// before.
    #[serde(default)]
    pub load_gap_ps: u64,
    /// What posting the first line of a fence takes the host, in ns.
    #[serde(default)]
    pub post_ns: u64,
    /// What posting each further line takes the host, in ps.
    #[serde(default)]
    pub post_gap_ps: u64,
    /// What each further line of a write-verify read (or CXL fence) takes, in ps; at least the link's time is
    /// taken.
    #[serde(default)]
    pub store_gap_ps: u64,
    /// Bytes of one access from which on its further lines take `stream_store_gap_ps` instead; 0: never.
    #[serde(default)]
    pub stream_bytes: u64,
    /// See [`stream_bytes`](Self::stream_bytes).
    #[serde(default)]
    pub stream_store_gap_ps: u64,
    /// Set-up and completion of a read by the device's DMA engine, in ns; 0: it has none.
    #[serde(default)]
    pub dma_read_ns: u64,
}

impl LinkProfile {
    const fn default_load_bytes() -> u64 {
        64
    }

    /// The ranges of its values.
    pub(super) fn rules(&self) -> [Rule; 13] {
        let gap = "at most 1000000000 ps";
        [
            ("link.read_mb_s", self.read_mb_s, self.read_mb_s <= 10_000_000, "at most 10000000 MB/s"),
            ("link.write_mb_s", self.write_mb_s, self.write_mb_s <= 10_000_000, "at most 10000000 MB/s"),
            TIME.rule("link.line_read_ns", self.line_read_ns),
            TIME.rule("link.line_write_ns", self.line_write_ns),
            TIME.rule("link.command_ns", self.command_ns),
            ("link.load_bytes", self.load_bytes, matches!(self.load_bytes, 8 | 64), "8 or 64"),
            ("link.load_gap_ps", self.load_gap_ps, self.load_gap_ps <= TIME.most, gap),
            TIME.rule("link.post_ns", self.post_ns),
            ("link.post_gap_ps", self.post_gap_ps, self.post_gap_ps <= TIME.most, gap),
            ("link.store_gap_ps", self.store_gap_ps, self.store_gap_ps <= TIME.most, gap),
            ("link.stream_bytes", self.stream_bytes, self.stream_bytes <= 1 << 40, "at most 1099511627776"),
            (
                "link.stream_store_gap_ps",
                self.stream_store_gap_ps,
                self.stream_store_gap_ps <= TIME.most,
                gap,
            ),
            TIME.rule("link.dma_read_ns", self.dma_read_ns),
        ]
    }

    /// Whether nothing on it takes time.
    pub(super) fn is_free(&self) -> bool {
        self.kind == LinkKind::Unlimited
            && [self.read_mb_s, self.write_mb_s, self.line_read_ns, self.line_write_ns, self.command_ns]
                .into_iter()
                .chain([
                    self.load_gap_ps,
                    self.post_ns,
                    self.post_gap_ps,
                    self.store_gap_ps,
                    self.dma_read_ns,
                ])
                .all(|value| value == 0)
    }
}

/// How the host learns that a command is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompletionKind {
    /// It looks at the completion queue.
    #[default]
    Polling,
    /// The device interrupts it.
    Interrupt,
}

/// NVMe's submission and completion queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueProfile {
    /// Pairs of queues, 1 to 1024. A host task uses the one of its number.
    pub pairs: u64,
    /// Commands a pair holds, 1 to 65535. One more waits until the one that many before it is done.
    pub depth: u64,
    /// How the host learns of a completion.
    pub completion: CompletionKind,
    /// What an interrupt adds to a command, in ns. Polling adds nothing: what it takes is part of
    /// `link.command_ns`.
    pub interrupt_ns: u64,
}

impl Default for QueueProfile {
    fn default() -> Self {
        Self { pairs: 16, depth: 256, completion: CompletionKind::Polling, interrupt_ns: 0 }
    }
}

impl QueueProfile {
    /// The ranges of its values.
    pub(super) fn rules(&self) -> [Rule; 3] {
        [
            ("queue.pairs", self.pairs, (1..=1024).contains(&self.pairs), "1 to 1024"),
            ("queue.depth", self.depth, (1..=65_535).contains(&self.depth), "1 to 65535"),
            TIME.rule("queue.interrupt_ns", self.interrupt_ns),
        ]
    }

    /// What completion adds to a command, in ns.
    pub(crate) fn completion_ns(&self) -> u64 {
        match self.completion {
            CompletionKind::Polling => 0,
            CompletionKind::Interrupt => self.interrupt_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_carry_what_their_specifications_say() {
        let useful = |kind: LinkKind, piece| {
            let wire = kind.wire().expect("a limit");
            wire.raw_mb_s * piece as f64 / wire.bytes(piece, piece) as f64
        };
        let near = |is: f64, wanted: f64| assert!((is / wanted - 1.0).abs() < 0.01, "{is} is not {wanted}");
        near(LinkKind::Pcie3X4.wire().expect("a limit").raw_mb_s, 3938.0);
        near(LinkKind::Pcie5X8.wire().expect("a limit").raw_mb_s, 31_508.0);
        near(useful(LinkKind::Pcie3X4, 256), 3601.0);
        near(useful(LinkKind::Pcie4X4, 256), 7202.0);
        near(useful(LinkKind::Pcie3X4, 64), 2864.0);
        near(useful(LinkKind::CxlX4, 64), 11_862.0);
        assert!(LinkKind::Unlimited.wire().is_none());
    }
}
