//! What flash does besides keeping data: planes, wear and failures, as a profile's `[media]` section gives
//! them, and who fails when.
//!
//! Every failure follows from the section's seed and from what it strikes: a block fails to erase at a
//! certain erase, a page to program after a certain erase, a stored copy of a page to be read. So a run
//! repeats, and a copy that ECC cannot read stays unreadable.

use serde::{Deserialize, Serialize};

use crate::dice::mix;
use crate::error::ProfileError;
use crate::format::Oob;

/// How garbage collection chooses the block to empty, as profiles spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GcPolicy {
    /// The block with the fewest live pages.
    Greedy,
    /// The block with the greatest age × free share / (2 × live share): one whose pages will not die soon is
    /// emptied while it still has many.
    CostBenefit,
}

/// What flash does besides keeping data. Every key has a default: one plane, greedy collection, no failures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MediaProfile {
    /// Planes of a die, 1 to 8: as many pages, one of each, are programmed in the time of one.
    pub planes: u64,
    /// How garbage collection chooses.
    pub gc: GcPolicy,
    /// Decides which blocks, pages and copies fail.
    pub seed: u64,
    /// Blocks that are bad from the factory, in a million, at most 50,000.
    pub factory_bad_ppm: u64,
    /// Programs that fail, in 10^9. The block is retired and its pages move.
    pub program_failure_ppb: u64,
    /// Erases that fail, in 10^9. The block is retired.
    pub erase_failure_ppb: u64,
    /// Page copies whose every read ECC corrects only after a retry, in a million.
    pub read_retry_ppm: u64,
    /// Time of such a retry on its die, in ns.
    pub read_retry_ns: u64,
    /// Page copies that ECC cannot correct, in 10^9.
    pub uncorrectable_ppb: u64,
}

impl Default for MediaProfile {
    fn default() -> Self {
        Self {
            planes: 1,
            gc: GcPolicy::Greedy,
            seed: 0,
            factory_bad_ppm: 0,
            program_failure_ppb: 0,
            erase_failure_ppb: 0,
            read_retry_ppm: 0,
            read_retry_ns: 0,
            uncorrectable_ppb: 0,
        }
    }
}

const MILLION: u64 = 1_000_000;
const BILLION: u64 = 1_000_000_000;

/// What kind of failure is drawn.
#[derive(Clone, Copy)]
enum Draw {
    Factory = 1,
    Program = 2,
    Erase = 3,
    Retry = 4,
    Uncorrectable = 5,
}

impl MediaProfile {
    /// Checks every value's range.
    ///
    /// # Errors
    /// [`ProfileError::Value`] naming the first key that is out of range.
    pub(crate) fn check(&self) -> Result<(), ProfileError> {
        let rules: [(&'static str, u64, u64, u64, &'static str); 7] = [
            ("media.planes", self.planes, 1, 8, "1 to 8"),
            ("media.factory_bad_ppm", self.factory_bad_ppm, 0, 50_000, "at most 50000"),
            ("media.program_failure_ppb", self.program_failure_ppb, 0, BILLION / 10, "at most 100000000"),
            ("media.erase_failure_ppb", self.erase_failure_ppb, 0, BILLION / 10, "at most 100000000"),
            ("media.read_retry_ppm", self.read_retry_ppm, 0, MILLION, "at most 1000000"),
            ("media.read_retry_ns", self.read_retry_ns, 0, BILLION, "at most 1000000000 ns"),
            ("media.uncorrectable_ppb", self.uncorrectable_ppb, 0, BILLION, "at most 1000000000"),
        ];
        match rules.into_iter().find(|(_, value, least, most, _)| value < least || value > most) {
            Some((key, value, _, _, expected)) => Err(ProfileError::Value { key, value, expected }),
            None => Ok(()),
        }
    }

    fn strikes(&self, draw: Draw, rate: u64, of: u64, what: u64, when: u64) -> bool {
        rate > 0
            && mix(self.seed ^ mix(what.wrapping_mul(8) + draw as u64) ^ mix(when).rotate_left(17)) % of
                < rate
    }

    /// Whether a block is bad from the factory.
    pub(crate) fn is_bad_from_factory(&self, block: u64) -> bool {
        self.strikes(Draw::Factory, self.factory_bad_ppm, MILLION, block, 0)
    }

    /// Whether the program of a page in a block that was erased so often fails.
    pub(crate) fn fails_to_program(&self, page: u64, erases: u32) -> bool {
        self.strikes(Draw::Program, self.program_failure_ppb, BILLION, page, u64::from(erases))
    }

    /// Whether the erase of a block that was erased so often fails.
    pub(crate) fn fails_to_erase(&self, block: u64, erases: u32) -> bool {
        self.strikes(Draw::Erase, self.erase_failure_ppb, BILLION, block, u64::from(erases))
    }

    /// Whether reading the copy that lies in this flash page takes a retry.
    pub(crate) fn needs_retry(&self, page: u64, oob: &Oob) -> bool {
        self.strikes(Draw::Retry, self.read_retry_ppm, MILLION, page, oob.order().0)
    }

    /// Whether ECC cannot read the copy that lies in this flash page.
    pub(crate) fn is_uncorrectable(&self, page: u64, oob: &Oob) -> bool {
        self.strikes(Draw::Uncorrectable, self.uncorrectable_ppb, BILLION, page, oob.order().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_as_frequent_as_asked_and_repeat() {
        let media = MediaProfile {
            seed: 7,
            factory_bad_ppm: 20_000,
            program_failure_ppb: 1_000_000,
            ..MediaProfile::default()
        };
        let bad = (0..100_000).filter(|&block| media.is_bad_from_factory(block)).count();
        assert!((1800..2200).contains(&bad), "{bad}");
        let failed: Vec<u64> = (0..100_000).filter(|&page| media.fails_to_program(page, 3)).collect();
        assert!((60..140).contains(&failed.len()), "{}", failed.len());
        let later: Vec<u64> = (0..100_000).filter(|&page| media.fails_to_program(page, 4)).collect();
        assert_ne!(failed, later, "another erase, other failures");
        assert_eq!(failed, (0..100_000).filter(|&page| media.fails_to_program(page, 3)).collect::<Vec<_>>());
        assert!((0..100_000).all(|block| !media.fails_to_erase(block, 0)), "none was asked for");
    }

    #[test]
    fn refusals_name_the_key() {
        let refused = MediaProfile { planes: 9, ..MediaProfile::default() }.check().expect_err("too many");
        assert_eq!(refused.to_string(), "the profile's media.planes is 9; it must be 1 to 8");
    }
}
