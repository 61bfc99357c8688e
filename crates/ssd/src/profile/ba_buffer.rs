//! The BA-buffer of a profile: its size, the path between it and flash, and the energy that dumping it takes;
//! and how much of other protected memory that energy saves.

use amphi_device::PAGE_BYTES;
use serde::{Deserialize, Serialize};

use super::{Profile, Rule};

/// A BA-buffer, used with `firmware.kind = "ba-buffer"` alone; its capacitors and power are also those of
/// `"file-system"`. The defaults are 2B-SSD's where it publishes a
/// value (table I); what else the energy needs is assumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BaBufferProfile {
    /// Bytes of the window: a multiple of 4096, 64 KiB to 1 GiB. Default 8 MiB.
    pub bytes: u64,
    /// Entries of the mapping table, 1 to 1024. Default 8.
    pub entries: u64,
    /// What the path from flash to the buffer carries, in MB/s, at most 100,000; 0: as much as flash reads.
    pub internal_read_mb_s: u64,
    /// What the path from the buffer to flash carries, in MB/s, at most 100,000; 0: as much as flash takes.
    pub internal_write_mb_s: u64,
    /// Capacitance that is there for the dump, in µF, at most 1,000,000. Default 810.
    pub capacitance_uf: u64,
    /// Voltage of the charged capacitors, in mV, at most 100,000. Default 12,000, an assumption.
    pub charged_mv: u64,
    /// Voltage at which the device stops, in mV, at most `charged_mv`. Default 5,000, an assumption.
    pub cutoff_mv: u64,
    /// Power that the device draws while it dumps, in mW, at most 100,000. Default 10,000, an assumption.
    pub dump_mw: u64,
}

impl Default for BaBufferProfile {
    fn default() -> Self {
        Self {
            bytes: 8 << 20,
            entries: 8,
            internal_read_mb_s: 0,
            internal_write_mb_s: 0,
            capacitance_uf: 3 * 270,
            charged_mv: 12_000,
            cutoff_mv: 5_000,
            dump_mw: 10_000,
        }
    }
}

impl BaBufferProfile {
    /// The ranges of its values.
    pub(super) fn rules(&self) -> [Rule; 8] {
        let path = |key, mb_s| (key, mb_s, mb_s <= 100_000, "at most 100000 MB/s");
        [
            (
                "ba_buffer.bytes",
                self.bytes,
                self.bytes.is_multiple_of(PAGE_BYTES as u64) && (64 << 10..=1 << 30).contains(&self.bytes),
                "a multiple of 4096 from 64 KiB to 1 GiB",
            ),
            ("ba_buffer.entries", self.entries, (1..=1024).contains(&self.entries), "1 to 1024"),
            path("ba_buffer.internal_read_mb_s", self.internal_read_mb_s),
            path("ba_buffer.internal_write_mb_s", self.internal_write_mb_s),
            (
                "ba_buffer.capacitance_uf",
                self.capacitance_uf,
                self.capacitance_uf <= 1_000_000,
                "at most 1000000 uF",
            ),
            ("ba_buffer.charged_mv", self.charged_mv, self.charged_mv <= 100_000, "at most 100000 mV"),
            (
                "ba_buffer.cutoff_mv",
                self.cutoff_mv,
                self.cutoff_mv <= self.charged_mv,
                "at most ba_buffer.charged_mv",
            ),
            ("ba_buffer.dump_mw", self.dump_mw, self.dump_mw <= 100_000, "at most 100000 mW"),
        ]
    }

    /// Whether the internal path takes no time.
    pub(super) const fn is_free(&self) -> bool {
        self.internal_read_mb_s == 0 && self.internal_write_mb_s == 0
    }

    /// What the capacitors give between the two voltages, in µJ.
    #[must_use]
    pub const fn budget_uj(&self) -> u64 {
        let squares = self.charged_mv * self.charged_mv - self.cutoff_mv * self.cutoff_mv;
        // µF times mV squared is pJ.
        self.capacitance_uf * squares / 2 / 1_000_000
    }
}

impl Profile {
    /// How long it takes to dump the whole buffer and its table, in ns: as long as the slowest of the
    /// internal path, the channels and the dies, and the last program.
    #[must_use]
    pub fn dump_ns(&self) -> u64 {
        let buffer = &self.ba_buffer;
        // One page more for the table and the dump's own record.
        let table = crate::format::dump_head_bytes(buffer.entries).div_ceil(PAGE_BYTES as u64);
        self.pages_to_flash_ns(buffer.bytes / PAGE_BYTES as u64 + table)
    }

    /// How long it takes to bring so many pages of device memory to flash, in ns.
    fn pages_to_flash_ns(&self, pages: u64) -> u64 {
        let (flash, buffer) = (&self.flash, &self.ba_buffer);
        let bytes = pages * PAGE_BYTES as u64;
        let path = (bytes * 1000).checked_div(buffer.internal_write_mb_s).unwrap_or(0);
        let channels = pages.div_ceil(flash.channels) * flash.transfer_ns;
        let dies = pages.div_ceil(flash.channels * flash.ways * self.media.planes) * flash.program_ns;
        path.max(channels).max(dies) + flash.program_ns
    }

    /// The energy that takes, in µJ.
    #[must_use]
    pub fn dump_uj(&self) -> u64 {
        self.energy_uj(self.dump_ns())
    }

    /// The energy that the device draws in `ns` while it dumps, in µJ.
    fn energy_uj(&self, ns: u64) -> u64 {
        // mW times ns is pJ. The product fits: at most 10^5 mW for some 10^13 ns.
        (u128::from(self.ba_buffer.dump_mw) * u128::from(ns) / 1_000_000) as u64
    }

    /// Pages of device memory that the capacitors' energy brings to flash, at most 2^32: all where that takes
    /// no time.
    #[must_use]
    pub fn pages_saved(&self) -> u64 {
        let affordable =
            |pages: u64| self.energy_uj(self.pages_to_flash_ns(pages)) <= self.ba_buffer.budget_uj();
        // The energy grows with the pages: the first count that is too large.
        let (mut enough, mut too_many) = (0, 1 << 32);
        while too_many - enough > 1 {
            let middle = enough + (too_many - enough) / 2;
            if affordable(middle) { enough = middle } else { too_many = middle }
        }
        if affordable(too_many) { too_many } else { enough }
    }

    /// The same in bytes, at most the memory that there is.
    #[must_use]
    pub fn bytes_saved(&self) -> u64 {
        self.pages_saved().saturating_mul(PAGE_BYTES as u64).min(self.firmware.memory_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_energy_follows_from_capacitors_and_from_the_slowest_part() {
        let profile = Profile::named("2b-ssd").expect("built in");
        // 810 uF from 12 V to 5 V.
        assert_eq!(profile.ba_buffer.budget_uj(), 48_195);
        let pages = 2048 + 1;
        let path = pages * 4096 * 1000 / profile.ba_buffer.internal_write_mb_s;
        assert_eq!(profile.dump_ns(), path + profile.flash.program_ns);
        assert!(profile.dump_uj() < profile.ba_buffer.budget_uj());
        let mut slow = profile.clone();
        (slow.flash.channels, slow.flash.ways) = (2, 2);
        assert_eq!(slow.dump_ns(), (513 + 1) * slow.flash.program_ns, "four dies are the slowest");
        let mut larger = profile;
        larger.ba_buffer.bytes *= 2;
        assert!(larger.dump_uj() > larger.ba_buffer.budget_uj(), "16 MiB take more than there is");
    }

    #[test]
    fn the_energy_saves_as_many_pages_as_it_brings_to_flash() {
        let profile = Profile::named("mssd-pcie3").expect("built in");
        let pages = profile.pages_saved();
        let energy = |pages| profile.energy_uj(profile.pages_to_flash_ns(pages));
        assert!(pages > 1000, "{pages}");
        assert!(
            energy(pages) <= profile.ba_buffer.budget_uj()
                && energy(pages + 1) > profile.ba_buffer.budget_uj()
        );
        let mut weak = profile.clone();
        weak.ba_buffer.capacitance_uf /= 2;
        assert!((pages / 2 - pages / 20..=pages / 2).contains(&weak.pages_saved()), "half the energy");
        assert_eq!(
            Profile::named("devfs-dram").expect("built in").pages_saved(),
            1 << 32,
            "no time, no energy"
        );
    }
}
