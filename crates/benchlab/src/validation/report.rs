//! The comparison, step by step.

use std::collections::BTreeMap;

use serde::Serialize;

use super::record::Traffic;

/// Version of the JSON: another number if a field goes away or changes its meaning.
pub const SCHEMA: u32 = 3;

/// How far a baseline may be from the kernel's file system.
pub const TOLERANCE: f64 = 0.15;

/// A whole comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The kernel's name for what was compared.
    pub file_system: &'static str,
    /// Which kernel it was in, on what, where that was a virtual machine.
    pub machine: Option<String>,
    /// Whether file data went through the journal.
    pub journal_data: bool,
    /// How often all of it was done.
    pub rounds: usize,
    /// Whether somebody ended the run early.
    pub interrupted: bool,
    /// One entry for each step.
    pub rows: Vec<Row>,
}

/// One step on both: the means of all rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What was done.
    pub step: String,
    /// How many operations.
    pub operations: u64,
    /// Blocks of 4 KiB that the kernel's file system wrote.
    pub kernel_blocks: f64,
    /// Blocks of 4 KiB that the baseline wrote.
    pub baseline_blocks: f64,
    /// Flushes of the kernel's.
    pub kernel_flushes: f64,
    /// Flushes of the baseline.
    pub baseline_flushes: f64,
    /// Flushes of the kernel's in the round with the fewest.
    pub kernel_flushes_least: u64,
    /// And in that with the most.
    pub kernel_flushes_most: u64,
    /// Write requests of the kernel's.
    pub kernel_writes: f64,
    /// Write requests of the baseline.
    pub baseline_writes: f64,
    /// Bytes that the kernel's SSD programmed into its flash.
    pub kernel_flash_bytes: f64,
    /// Bytes that the baseline's did.
    pub baseline_flash_bytes: f64,
    /// Whether blocks are within [`TOLERANCE`].
    pub blocks_agree: bool,
    /// Whether flushes are.
    pub flushes_agree: bool,
    /// Whether what was programmed into flash is.
    pub flash_agrees: bool,
    /// Blocks by structure.
    pub structures: Vec<Share>,
}

/// One structure's part of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// The structure. Data and directories are one: the kernel's do not say which they are.
    pub structure: String,
    /// Blocks that the kernel's file system wrote.
    pub kernel: u64,
    /// Blocks that the baseline wrote.
    pub baseline: u64,
}

/// Whether two counts are near enough: within the tolerance of the kernel's.
fn agree(kernel: f64, baseline: f64) -> bool {
    // No sum of counts is so large that a division could blur what is a hundredth beyond.
    (kernel - baseline).abs() <= TOLERANCE * kernel + 1e-9
}

/// The mean of one number over some rounds; 0 of none.
fn mean(rounds: &[Traffic], number: impl Fn(&Traffic) -> u64) -> f64 {
    rounds.iter().map(number).sum::<u64>() as f64 / rounds.len().max(1) as f64
}

impl Row {
    /// None if there are no rounds of both.
    pub(super) fn of(step: &str, operations: u64, kernel: &[Traffic], baseline: &[Traffic]) -> Option<Self> {
        let of_each = || kernel.iter().map(|traffic| traffic.flushes);
        let (least, most) = (of_each().min()?, of_each().max()?);
        baseline.first()?;
        let mut structures: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
        for (side, rounds) in [kernel, baseline].into_iter().enumerate() {
            for (structure, blocks) in rounds.iter().flat_map(|traffic| &traffic.structures) {
                let name = match structure.as_str() {
                    "dentry" | "data" => "data and directories",
                    // The kernel's layout tells group descriptors apart; the tags do not.
                    "group descriptor" | "superblock" => "superblock and descriptors",
                    other => other,
                };
                structures.entry(name).or_default()[side] += blocks;
            }
        }
        let a_round =
            |blocks: u64, rounds: &[Traffic]| (blocks + rounds.len() as u64 / 2) / rounds.len() as u64;
        let blocks = [kernel, baseline].map(|rounds| mean(rounds, |traffic| traffic.blocks_written));
        let flushes = [kernel, baseline].map(|rounds| mean(rounds, |traffic| traffic.flushes));
        let writes = [kernel, baseline].map(|rounds| mean(rounds, |traffic| traffic.writes));
        let flash = [kernel, baseline].map(|rounds| mean(rounds, |traffic| traffic.flash_bytes));
        Some(Self {
            step: step.to_owned(),
            operations,
            kernel_blocks: blocks[0],
            baseline_blocks: blocks[1],
            kernel_flushes: flushes[0],
            baseline_flushes: flushes[1],
            kernel_flushes_least: least,
            kernel_flushes_most: most,
            kernel_writes: writes[0],
            baseline_writes: writes[1],
            kernel_flash_bytes: flash[0],
            baseline_flash_bytes: flash[1],
            blocks_agree: agree(blocks[0], blocks[1]),
            flushes_agree: agree(flushes[0], flushes[1]),
            flash_agrees: agree(flash[0], flash[1]),
            structures: structures
                .into_iter()
                .map(|(structure, [theirs, ours])| Share {
                    structure: structure.to_owned(),
                    kernel: a_round(theirs, kernel),
                    baseline: a_round(ours, baseline),
                })
                .collect(),
        })
    }

    /// Whether blocks, flushes and flash are all within [`TOLERANCE`].
    #[must_use]
    pub const fn agrees(&self) -> bool {
        self.blocks_agree && self.flushes_agree && self.flash_agrees
    }

    /// The head of [`text`](Self::text).
    #[must_use]
    pub const fn head() -> &'static str {
        "                                              blocks written           flushes            write requests      KiB of flash\nstep                                           kernel baseline ratio   kernel baseline ratio   kernel baseline   kernel baseline ratio"
    }

    /// One line of the table, and where it differs a second one: the blocks of both by structure.
    #[must_use]
    pub fn text(&self) -> String {
        let ratio = |kernel: f64, baseline: f64| match kernel + baseline {
            0.0 => "    -".to_owned(),
            _ => format!("{:>5.2}", baseline / kernel),
        };
        // Small numbers with what their rounds differ by.
        let number = |mean: f64| match mean.fract() {
            fraction if fraction > 0.0 && mean < 100.0 => format!("{mean:.1}"),
            _ => format!("{mean:.0}"),
        };
        let differs = !self.agrees();
        let mut text = format!(
            "{:<44} {:>8} {:>8} {} {:>8} {:>8} {} {:>8} {:>8} {:>8.0} {:>8.0} {}{}",
            self.step,
            number(self.kernel_blocks),
            number(self.baseline_blocks),
            ratio(self.kernel_blocks, self.baseline_blocks),
            number(self.kernel_flushes),
            number(self.baseline_flushes),
            ratio(self.kernel_flushes, self.baseline_flushes),
            number(self.kernel_writes),
            number(self.baseline_writes),
            self.kernel_flash_bytes / 1024.0,
            self.baseline_flash_bytes / 1024.0,
            ratio(self.kernel_flash_bytes, self.baseline_flash_bytes),
            if differs { "  DIFFERS" } else { "" }
        );
        if self.kernel_flushes_least != self.kernel_flushes_most {
            let (least, most) = (self.kernel_flushes_least, self.kernel_flushes_most);
            text += &format!("\n    the kernel's flushes: {least} to {most}, by rounds");
        }
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
        let agree = self.rows.iter().filter(|row| row.agrees()).count();
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
            Row::of("step", 1, &[traffic(kernel)], &[traffic(baseline)]).unwrap()
        };
        let verdicts = [(100, 115), (100, 85), (100, 116), (100, 84), (0, 0), (0, 1)]
            .map(|(kernel, baseline)| of(kernel, baseline).blocks_agree);
        assert_eq!(verdicts, [true, true, false, false, true, false]);
        let differs = of(100, 200);
        assert!(differs.text().contains("DIFFERS") && differs.text().contains("journal 100 / 200"));
        assert!(differs.flushes_agree && !of(100, 101).text().contains("DIFFERS"));
    }

    #[test]
    fn of_many_rounds_the_means_are_compared_and_the_kernels_range_is_shown() {
        let round = |blocks, flushes| Traffic {
            blocks_written: blocks,
            flushes,
            structures: BTreeMap::from([("journal".to_owned(), blocks)]),
            ..Traffic::default()
        };
        let kernel = [round(10, 2), round(12, 3), round(11, 2), round(11, 2)];
        let row = Row::of("step", 1, &kernel, &[round(11, 2), round(12, 2)]).unwrap();
        assert_eq!((row.kernel_blocks, row.kernel_flushes, row.baseline_blocks), (11.0, 2.25, 11.5));
        assert_eq!(row.structures, [Share { structure: "journal".to_owned(), kernel: 11, baseline: 12 }]);
        assert!(row.blocks_agree && row.flushes_agree);
        assert!(row.text().contains("flushes: 2 to 3") && row.text().contains(" 2.2 "), "{}", row.text());
        assert!(!row.text().contains("DIFFERS"));
        assert!(Row::of("step", 1, &kernel, &[]).is_none(), "the run was ended before");
    }
}
