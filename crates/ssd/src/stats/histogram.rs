//! A latency histogram that any thread may add to without a lock: fixed log-linear buckets, eight to each
//! doubling, so that a quantile is at most an eighth too high.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::ser::SerializeTuple;
use serde::{Serialize, Serializer};

use crate::image::Image;

/// Buckets to each doubling, as a power of two.
const FINE: u32 = 3;
const PER_DOUBLING: usize = 1 << FINE;
/// The last bucket takes everything from 2^40 ns, eighteen minutes.
const DOUBLINGS: usize = 40 - FINE as usize;

/// Buckets of a histogram.
const BUCKETS: usize = (DOUBLINGS + 1) * PER_DOUBLING + 1;

/// The bucket of a duration.
const fn bucket(ns: u64) -> usize {
    if ns < PER_DOUBLING as u64 {
        return ns as usize;
    }
    let shift = 63 - ns.leading_zeros() - FINE;
    let at = (shift as usize + 1) * PER_DOUBLING + ((ns >> shift) as usize & (PER_DOUBLING - 1));
    if at < BUCKETS { at } else { BUCKETS - 1 }
}

/// The longest duration of a bucket.
const fn longest(bucket: usize) -> u64 {
    if bucket < PER_DOUBLING {
        return bucket as u64;
    }
    if bucket == BUCKETS - 1 {
        return u64::MAX;
    }
    let shift = bucket / PER_DOUBLING - 1;
    let first = ((PER_DOUBLING + bucket % PER_DOUBLING) as u64) << shift;
    first + (1 << shift) - 1
}

/// Memory for histograms, of fresh zero pages: those never used cost none.
#[derive(Debug)]
pub(crate) struct Table(Image);

impl Table {
    /// Room for so many histograms; none if the system has no address space left.
    pub(crate) fn new(histograms: usize) -> Option<Self> {
        Image::in_memory(histograms as u64 * WORDS * 8).ok().map(Self)
    }

    /// The histogram at a position.
    pub(crate) fn at(&self, position: usize) -> Histogram<'_> {
        Histogram { words: &self.0, first: position as u64 * WORDS }
    }
}

/// One histogram of a table. Its words: the sum, then the buckets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Histogram<'a> {
    words: &'a Image,
    first: u64,
}

/// Words of a histogram.
const WORDS: u64 = 1 + BUCKETS as u64;

impl Histogram<'_> {
    fn word(&self, word: u64) -> &AtomicU64 {
        self.words.word((self.first + word) * 8)
    }

    /// Adds a duration.
    pub(crate) fn record(self, ns: u64) {
        self.word(0).fetch_add(ns, Ordering::Relaxed);
        self.word(1 + bucket(ns) as u64).fetch_add(1, Ordering::Relaxed);
    }

    /// What was added so far.
    pub(crate) fn read(self) -> Latency {
        let read = |word| self.word(word).load(Ordering::Relaxed);
        let buckets: Vec<_> = (0..BUCKETS)
            .map(|at| Bucket { up_to_ns: longest(at), count: read(1 + at as u64) })
            .filter(|bucket| bucket.count > 0)
            .collect();
        Latency::new(read(0), buckets)
    }
}

/// Durations that lie in one bucket. In JSON a list of the two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The longest that belongs here, in ns.
    pub up_to_ns: u64,
    /// How many do.
    pub count: u64,
}

impl Serialize for Bucket {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pair = serializer.serialize_tuple(2)?;
        pair.serialize_element(&self.up_to_ns)?;
        pair.serialize_element(&self.count)?;
        pair.end()
    }
}

/// How long something took, over all times it happened since power-up. Quantiles are the ends of buckets, at
/// most an eighth too high.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// How often it happened.
    pub count: u64,
    /// The sum in ns, from which a mean over an interval follows.
    pub sum_ns: u64,
    /// Mean in ns.
    pub mean_ns: f64,
    /// Median in ns.
    pub p50_ns: u64,
    /// 90 of 100 took at most this, in ns.
    pub p90_ns: u64,
    /// 99 of 100 took at most this, in ns.
    pub p99_ns: u64,
    /// 999 of 1000 took at most this, in ns.
    pub p999_ns: u64,
    /// None took longer than this, in ns.
    pub max_ns: u64,
    /// The buckets that hold anything, shortest durations first.
    pub buckets: Vec<Bucket>,
}

impl Latency {
    /// Computes the figures of buckets in ascending order.
    #[must_use]
    pub fn new(sum_ns: u64, buckets: Vec<Bucket>) -> Self {
        let count = buckets.iter().map(|bucket| bucket.count).sum();
        let quantile = |per_mille: u64| {
            let rank = (u128::from(count) * u128::from(per_mille)).div_ceil(1000) as u64;
            let mut seen = 0;
            let found = buckets.iter().find(|bucket| {
                seen += bucket.count;
                seen >= rank
            });
            found.map_or(0, |bucket| bucket.up_to_ns)
        };
        Self {
            count,
            sum_ns,
            mean_ns: if count == 0 { 0.0 } else { sum_ns as f64 / count as f64 },
            p50_ns: quantile(500),
            p90_ns: quantile(900),
            p99_ns: quantile(990),
            p999_ns: quantile(999),
            max_ns: buckets.last().map_or(0, |bucket| bucket.up_to_ns),
            buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_are_an_eighth_wide() {
        let mut previous = None;
        for at in 0..BUCKETS - 1 {
            let end = longest(at);
            assert_eq!(bucket(end), at);
            assert_eq!(bucket(end + 1), at + 1);
            if let Some(previous) = previous {
                assert!(end - previous <= 1 + end / 8, "bucket {at}: {previous}..={end}");
            }
            previous = Some(end);
        }
        assert_eq!((bucket(0), bucket(1 << 41), bucket(u64::MAX)), (0, BUCKETS - 1, BUCKETS - 1));
    }

    #[test]
    fn quantiles_are_those_of_the_samples() {
        let table = Table::new(2).expect("memory");
        let histogram = table.at(1);
        for ns in 1..=1000 {
            histogram.record(ns * 1000);
        }
        let latency = histogram.read();
        assert_eq!((latency.count, latency.sum_ns), (1000, 500_500_000));
        for (found, exact) in [
            (latency.p50_ns, 500_000),
            (latency.p90_ns, 900_000),
            (latency.p99_ns, 990_000),
            (latency.p999_ns, 999_000),
            (latency.max_ns, 1_000_000),
        ] {
            assert!(found >= exact && found <= exact + exact / 8, "{found} for {exact}");
        }
        assert_eq!(table.at(0).read(), Latency::default());
    }
}
