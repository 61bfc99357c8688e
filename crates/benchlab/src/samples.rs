//! What was measured of one peer, round by round, and how two peers compare.

use serde::Serialize;

/// The samples of one peer, one operation, one number of threads.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// ns per call, of each sample of each round, rounds apart.
    pub rounds: Vec<Vec<u64>>,
    /// Calls a second of all threads together, of each round, from when the first began to when the last
    /// ended.
    pub rates: Vec<f64>,
    /// Why there are none.
    pub failure: Option<String>,
}

/// How many times longer one peer takes than another. Of the trivial file system and our mount that is how
/// many operations per second our mount does for each one of the trivial file system: 1 means that nothing
/// but FUSE costs anything.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// The median of the quotients of the rounds' medians: what slows the machine down for a round or two
    /// does not count.
    pub p50: f64,
    /// The lowest quotient of one round's medians.
    pub min: f64,
    /// The highest.
    pub max: f64,
}

/// The median, and any other quantile in hundredths, of unsorted samples.
pub(crate) fn quantile(samples: &mut [u64], hundredths: usize) -> Option<u64> {
    samples.sort_unstable();
    samples.get(samples.len().checked_sub(1)? * hundredths / 100).copied()
}

/// The median of each round.
pub(crate) fn round_medians(samples: &Samples) -> Vec<u64> {
    samples.rounds.iter().filter_map(|round| quantile(&mut round.clone(), 50)).collect()
}

/// How many times longer `theirs` take than `ours`; none if one of them has no samples.
pub(crate) fn times_longer(theirs: &Samples, ours: &Samples) -> Option<Share> {
    let quotient = |(theirs, ours): (u64, u64)| theirs as f64 / ours.max(1) as f64;
    let mut rounds: Vec<_> =
        round_medians(theirs).into_iter().zip(round_medians(ours)).map(quotient).collect();
    rounds.sort_unstable_by(f64::total_cmp);
    let (min, max) = (*rounds.first()?, *rounds.last()?);
    Some(Share { p50: rounds[(rounds.len() - 1) / 2], min, max })
}
