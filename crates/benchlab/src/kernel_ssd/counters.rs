//! What an SSD has counted, taken from the JSON of its statistics, and the difference of two looks.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

/// Counters that only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes the host wrote, on both paths.
    pub written: u64,
    /// Bytes the host read, on both paths.
    pub read: u64,
    /// Bytes written as blocks.
    pub block_written: u64,
    /// Block write commands.
    pub block_writes: u64,
    /// Block read commands.
    pub block_reads: u64,
    /// Flush commands; those of a device without delays are not counted.
    pub flushes: u64,
    /// Bytes programmed to flash.
    pub flash_written: u64,
    /// Bytes read from flash.
    pub flash_read: u64,
    /// Bytes written by structure, on both paths.
    pub structures: BTreeMap<String, u64>,
}

impl Counters {
    /// Reads them out of the object `device` of `amphi stats --json`.
    ///
    /// # Errors
    /// A counter is missing.
    pub fn of(stats: &Value) -> Result<Self> {
        let number =
            |name: &str| stats[name].as_u64().with_context(|| format!("the SSD does not count {name}"));
        let mut structures = BTreeMap::new();
        let mut path = |name: &str| -> Result<[u64; 2]> {
            let mut sums = [0; 2];
            let list = stats[name]["structures"].as_array();
            for each in list.with_context(|| format!("the SSD does not count {name}"))? {
                let count = |field: &str| each[field].as_u64().unwrap_or(0);
                sums[0] += count("commands");
                sums[1] += count("bytes");
                if name.ends_with("write") {
                    let structure = each["structure"].as_str().unwrap_or("other");
                    *structures.entry(structure.to_owned()).or_default() += count("bytes");
                }
            }
            Ok(sums)
        };
        path("byte_write")?;
        let [block_writes, block_written] = path("block_write")?;
        let [block_reads, _] = path("block_read")?;
        let flushes = stats["latencies"].as_array().into_iter().flatten();
        let flushes = flushes.filter(|latency| latency["command"] == "flush");
        Ok(Self {
            written: number("host_bytes_written")?,
            read: number("host_bytes_read")?,
            block_written,
            block_writes,
            block_reads,
            flushes: flushes.map(|latency| latency["device"]["count"].as_u64().unwrap_or(0)).sum(),
            flash_written: number("flash_bytes_written")?,
            flash_read: number("flash_bytes_read")?,
            structures,
        })
    }

    /// What was counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let structures = self
            .structures
            .iter()
            .map(|(name, bytes)| (name.clone(), bytes - before.structures.get(name).copied().unwrap_or(0)))
            .collect();
        Self {
            written: self.written - before.written,
            read: self.read - before.read,
            block_written: self.block_written - before.block_written,
            block_writes: self.block_writes - before.block_writes,
            block_reads: self.block_reads - before.block_reads,
            flushes: self.flushes - before.flushes,
            flash_written: self.flash_written - before.flash_written,
            flash_read: self.flash_read - before.flash_read,
            structures,
        }
    }
}

#[cfg(test)]
mod tests {
    use amphi_device::{BlockPort, BytePortExt, Lpa, Structure};
    use amphi_ssd::{Profile, Ssd};

    use super::*;

    /// The names in the JSON are the device's; here they are held to it.
    #[test]
    fn what_a_device_counted_is_found_in_its_statistics() {
        let ssd = Ssd::in_memory(&Profile::named("mssd-pcie3").unwrap(), 64 << 20);
        let look = || Counters::of(&serde_json::to_value(ssd.stats()).unwrap()).unwrap();
        let before = look();
        ssd.write(Lpa(3), &[7; 8192], Structure::Journal).unwrap();
        ssd.flush().unwrap();
        // Counted is what has arrived, which only a write-verify read makes certain.
        ssd.persist(40_960, &[1; 64], None, Structure::Inode).unwrap();
        let mut page = [0; 4096];
        ssd.read(Lpa(3), &mut page, Structure::Other).unwrap();
        let counted = look().since(&before);
        assert_eq!((counted.block_writes, counted.block_written, counted.flushes), (1, 8192, 1));
        assert_eq!((counted.block_reads, counted.read), (1, 4096));
        assert_eq!(counted.written, 8192 + 64);
        assert_eq!((counted.structures["journal"], counted.structures["inode"]), (8192, 64));
    }
}
