//! The comparison, step by step.

use std::collections::BTreeMap;

use serde::Serialize;

use super::record::Traffic;

/// Version of the JSON: another number if a field goes away or changes its meaning.
pub const SCHEMA: u32 = 1;

/// How far the baseline may be from the kernel's ext4.
pub const TOLERANCE: f64 = 0.15;

/// A whole comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Whether file data went through the journal.
    pub journal_data: bool,
    /// Whether somebody ended the run early.
    pub interrupted: bool,
    /// One entry for each step.
    pub rows: Vec<Row>,
}

/// One step on both.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub step: String,
    /// How many operations.
    pub operations: u64,
    /// Blocks of 4 KiB that the kernel's ext4 wrote.
    pub kernel_blocks: u64,
    /// Blocks of 4 KiB that the baseline wrote.
    pub baseline_blocks: u64,
    /// Flushes of the kernel's ext4.
    pub kernel_flushes: u64,
    /// Flushes of the baseline.
    pub baseline_flushes: u64,
    /// Write requests of the kernel's ext4.
    pub kernel_writes: u64,
    /// Write requests of the baseline.
    pub baseline_writes: u64,
    /// Whether blocks are within [`TOLERANCE`].
    pub blocks_agree: bool,
    /// Whether flushes are.
    pub flushes_agree: bool,
    /// Blocks by structure.
    pub structures: Vec<Share>,
}

/// One structure's part of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The structure. Data and directories are one: the kernel's do not say which they are.
    pub structure: String,
    /// Blocks that the kernel's ext4 wrote.
    pub kernel: u64,
    /// Blocks that the baseline wrote.
    pub baseline: u64,
}

/// Whether two counts are near enough: within the tolerance of the kernel's.
fn agree(kernel: u64, baseline: u64) -> bool {
    kernel.abs_diff(baseline) as f64 <= TOLERANCE * kernel as f64
}

impl Row {
    pub(super) fn of(step: &str, operations: u64, kernel: &Traffic, baseline: &Traffic) -> Self {
        let mut structures: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
        for (side, traffic) in [kernel, baseline].into_iter().enumerate() {
            for (structure, blocks) in &traffic.structures {
                let name = match structure.as_str() {
                    "dentry" | "data" => "data and directories",
                    // The kernel's layout tells group descriptors apart; the tags do not.
                    "group descriptor" | "superblock" => "superblock and descriptors",
                    other => other,
                };
                structures.entry(name).or_default()[side] += blocks;
            }
        }
        Self {
            step: step.to_owned(),
            operations,
            kernel_blocks: kernel.blocks_written,
            baseline_blocks: baseline.blocks_written,
            kernel_flushes: kernel.flushes,
            baseline_flushes: baseline.flushes,
            kernel_writes: kernel.writes,
            baseline_writes: baseline.writes,
            blocks_agree: agree(kernel.blocks_written, baseline.blocks_written),
            flushes_agree: agree(kernel.flushes, baseline.flushes),
            structures: structures
                .into_iter()
                .map(|(structure, [kernel, baseline])| Share {
                    structure: structure.to_owned(),
                    kernel,
                    baseline,
                })
                .collect(),
        }
    }

    /// The head of [`text`](Self::text).
    #[must_use]
    pub const fn head() -> &'static str {
        "                                              blocks written           flushes            write requests\nstep                                           kernel baseline ratio   kernel baseline ratio   kernel baseline"
    }

    /// One line of the table, and where it differs a second one: the blocks of both by structure.
    #[must_use]
    pub fn text(&self) -> String {
        let ratio = |kernel: u64, baseline: u64| match kernel {
            0 if baseline == 0 => "    -".to_owned(),
            _ => format!("{:>5.2}", baseline as f64 / kernel as f64),
        };
        let differs = !(self.blocks_agree && self.flushes_agree);
        let mut text = format!(
            "{:<44} {:>8} {:>8} {} {:>8} {:>8} {} {:>8} {:>8}{}",
            self.step,
            self.kernel_blocks,
            self.baseline_blocks,
            ratio(self.kernel_blocks, self.baseline_blocks),
            self.kernel_flushes,
            self.baseline_flushes,
            ratio(self.kernel_flushes, self.baseline_flushes),
            self.kernel_writes,
            self.baseline_writes,
            if differs { "  DIFFERS" } else { "" }
        );
        if differs {
            let shares: Vec<_> = self
                .structures
                .iter()
                .map(|share| format!("{} {} / {}", share.structure, share.kernel, share.baseline))
                .collect();
            text += &format!("\n    blocks, kernel / baseline: {}", shares.join(", "));
        }
        text
    }
}

impl Report {
    /// How many steps agree, of how many.
    #[must_use]
    pub fn agreeing(&self) -> (usize, usize) {
        let agree = self.rows.iter().filter(|row| row.blocks_agree && row.flushes_agree).count();
        (agree, self.rows.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifteen_percent_are_near_enough_and_no_more() {
        let of = |kernel: u64, baseline: u64| {
            let traffic = |blocks| Traffic {
                blocks_written: blocks,
                flushes: 2,
                structures: BTreeMap::from([("journal".to_owned(), blocks)]),
                ..Traffic::default()
            };
            Row::of("step", 1, &traffic(kernel), &traffic(baseline))
        };
        let verdicts = [(100, 115), (100, 85), (100, 116), (100, 84), (0, 0), (0, 1)]
            .map(|(kernel, baseline)| of(kernel, baseline).blocks_agree);
        assert_eq!(verdicts, [true, true, false, false, true, false]);
        let differs = of(100, 200);
        assert!(differs.text().contains("DIFFERS") && differs.text().contains("journal 100 / 200"));
        assert!(differs.flushes_agree && !of(100, 101).text().contains("DIFFERS"));
    }
}
