//! Which record is asked for: YCSB's distributions. Zipf's law by the method of Gray et al., "Quickly
//! generating billion-record synthetic databases" (SIGMOD 1994), which YCSB uses with the exponent 0.99.

use amphi_rt::random::Generator;

use super::workload::Distribution;

/// YCSB's exponent.
const THETA: f64 = 0.99;

/// The scrambled distribution draws among so many items, whatever the number of records: its popular items
/// are the same at each size.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;

/// Ranks 0 (the most popular) to `items - 1`.
#[derive(Clone, Copy, Debug)]
struct Zipfian {
    items: f64,
    zeta: f64,
    zeta_of_two: f64,
    eta: f64,
}

impl Zipfian {
    fn new(items: u64, sums: &Zeta) -> Self {
        let (n, zeta, zeta_of_two) = (items as f64, sums.of(items), 1.0 + 0.5_f64.powf(THETA));
        let eta = (1.0 - (2.0 / n).powf(1.0 - THETA)) / (1.0 - zeta_of_two / zeta);
        Self { items: n, zeta, zeta_of_two, eta }
    }

    fn draw(&self, chance: &mut Generator) -> u64 {
        let u = unit(chance);
        let mass = u * self.zeta;
        if mass < 1.0 {
            return 0;
        }
        if mass < self.zeta_of_two {
            return 1;
        }
        let rank = self.items * (self.eta * u - self.eta + 1.0).powf(1.0 / (1.0 - THETA));
        (rank as u64).min(self.items as u64 - 1)
    }
}

/// Sums of `i^-THETA`.
struct Zeta {
    /// That of the terms that are added one by one: among the latest records it is needed again after each
    /// new one.
    first: f64,
}

impl Zeta {
    /// So many terms are added one by one.
    const FIRST: u64 = 1000;

    fn new() -> Self {
        Self { first: Self::sum(Self::FIRST) }
    }

    fn sum(n: u64) -> f64 {
        (1..=n).map(|i| (i as f64).powf(-THETA)).sum()
    }

    /// The sum for `i` from 1 to `n`: its first terms one by one, the others by the formula of Euler and
    /// Maclaurin, whose error is below 1e-12 from there on.
    fn of(&self, n: u64) -> f64 {
        if n <= Self::FIRST {
            return Self::sum(n);
        }
        let (a, b) = (Self::FIRST as f64, n as f64);
        let integral = (b.powf(1.0 - THETA) - a.powf(1.0 - THETA)) / (1.0 - THETA);
        let ends = (b.powf(-THETA) - a.powf(-THETA)) / 2.0;
        let slope = -THETA * (b.powf(-THETA - 1.0) - a.powf(-THETA - 1.0)) / 12.0;
        self.first + integral + ends + slope
    }
}

/// From 0 to below 1.
fn unit(chance: &mut Generator) -> f64 {
    (chance.next() >> 11) as f64 / (1_u64 << 53) as f64
}

/// The hash of a number that YCSB spreads keys with: FNV-1a over its bytes.
pub(super) fn spread(number: u64) -> u64 {
    number.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Chooses records.
pub(super) struct Chooser {
    distribution: Distribution,
    sums: Zeta,
    zipfian: Zipfian,
    /// Scrambled ranks fall among so many records: those that there will be at most.
    upper: u64,
    /// The number of records that `zipfian` is of, for the latest ones.
    of: u64,
}

impl Chooser {
    /// A chooser for a run that begins with `records` and inserts `inserts` or so.
    pub(super) fn new(distribution: Distribution, records: u64, inserts: u64) -> Self {
        let items = if distribution == Distribution::Latest { records } else { SCRAMBLED_ITEMS };
        let sums = Zeta::new();
        let zipfian = Zipfian::new(items, &sums);
        Self { distribution, sums, zipfian, upper: records + 2 * inserts, of: records }
    }

    /// One of the first `count` records.
    pub(super) fn draw(&mut self, count: u64, chance: &mut Generator) -> u64 {
        match self.distribution {
            Distribution::Uniform => chance.below(count),
            Distribution::Zipfian => loop {
                let record = spread(self.zipfian.draw(chance)) % self.upper;
                if record < count {
                    return record;
                }
            },
            Distribution::Latest => {
                if self.of != count {
                    (self.zipfian, self.of) = (Zipfian::new(count, &self.sums), count);
                }
                count - 1 - self.zipfian.draw(chance)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of 100,000 draws among 1000 records fall on each.
    fn drawn(distribution: Distribution) -> Vec<u64> {
        let mut chance = Generator::new(7);
        let mut chooser = Chooser::new(distribution, 1000, 0);
        let mut counts = vec![0; 1000];
        for _ in 0..100_000 {
            counts[chooser.draw(1000, &mut chance) as usize] += 1;
        }
        counts
    }

    #[test]
    fn zeta_is_the_sum_it_stands_for() {
        let zeta = Zeta::new();
        let (found, sum) = (zeta.of(1_000_000), Zeta::sum(1_000_000));
        assert!((found - sum).abs() < 1e-9, "{found} {sum}");
        // The constant in YCSB's source.
        let found = zeta.of(SCRAMBLED_ITEMS);
        assert!((found - 26.469_028_201_783_02).abs() < 1e-6, "{found}");
    }

    #[test]
    fn popular_records_are_as_popular_as_zipf_says() {
        let latest = drawn(Distribution::Latest);
        // The share of the most popular rank is 1 / zeta, of the second 2^-theta of that.
        let first = 100_000.0 / Zeta::sum(1000);
        assert!((latest[999] as f64 / first - 1.0).abs() < 0.05, "{}", latest[999]);
        assert!((latest[998] as f64 / (first / 2_f64.powf(THETA)) - 1.0).abs() < 0.05, "{}", latest[998]);
        let mut zipfian = drawn(Distribution::Zipfian);
        zipfian.sort_unstable();
        // Among ten billion the first rank has 1 / 26.47; others that hash to the same record add to it.
        assert!((3600..5000).contains(&zipfian[999]), "{}", zipfian[999]);
        let uniform = drawn(Distribution::Uniform);
        assert!(uniform.iter().all(|count| (50..160).contains(count)));
    }

    #[test]
    fn what_is_not_there_yet_is_not_drawn() {
        let mut chance = Generator::new(1);
        for distribution in [Distribution::Latest, Distribution::Zipfian, Distribution::Uniform] {
            let mut chooser = Chooser::new(distribution, 100, 50);
            assert!((100..150).all(|count| chooser.draw(count, &mut chance) < count));
        }
    }
}
