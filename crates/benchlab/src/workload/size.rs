//! Sizes of files and transfers, as distributions.

use amphi_rt::random::Generator;
use serde::{Deserialize, Serialize};

/// A number of bytes, drawn anew each time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Size {
    /// Always so many.
    Bytes(u64),
    /// 1 to so many, each as likely as any other.
    UpTo(UpTo),
    /// Evenly around a mean.
    Around(Around),
    /// Gamma distributed, as filebench's file sizes are.
    Gamma(Gamma),
}

/// See [`Size::UpTo`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpTo {
    /// The most.
    pub up_to: u64,
}

/// See [`Size::Around`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Around {
    /// Mean number of bytes.
    pub around: u64,
    /// How far from it at most, in percent of it; at most 100.
    pub percent: u64,
}

impl Around {
    const fn away(self) -> u64 {
        self.around.saturating_mul(self.percent) / 100
    }

    /// The most bytes.
    pub(super) const fn most(self) -> u64 {
        self.around.saturating_add(self.away())
    }
}

/// See [`Size::Gamma`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gamma {
    /// Mean number of bytes.
    pub mean: u64,
    /// The distribution's shape: 1 is exponential, more is narrower.
    pub gamma: f64,
}

impl Size {
    /// Draws one.
    pub fn draw(&self, chance: &mut Generator) -> u64 {
        match *self {
            Self::Bytes(bytes) => bytes,
            Self::UpTo(UpTo { up_to }) => 1 + chance.below(up_to.max(1)),
            Self::Around(size) => (size.around - size.away() + chance.below(2 * size.away() + 1)).max(1),
            Self::Gamma(Gamma { mean, gamma }) => {
                let scale = mean as f64 / gamma;
                (gamma_variate(gamma, chance) * scale) as u64
            }
        }
    }

    /// The mean.
    #[must_use]
    pub const fn mean(&self) -> u64 {
        match *self {
            Self::Bytes(bytes) => bytes,
            Self::UpTo(UpTo { up_to }) => up_to.div_ceil(2),
            Self::Around(Around { around, .. }) => around,
            Self::Gamma(Gamma { mean, .. }) => mean,
        }
    }

    /// The most that can be drawn from a size that has a most; the mean of others.
    pub(super) const fn longest(&self) -> u64 {
        match *self {
            Self::Bytes(bytes) => bytes,
            Self::UpTo(UpTo { up_to }) => up_to,
            Self::Around(size) => size.most(),
            Self::Gamma(Gamma { mean, .. }) => mean,
        }
    }

    /// The same shape with its mean multiplied by `by`, 1 at least.
    #[must_use]
    pub fn scaled(&self, by: f64) -> Self {
        let scaled = |bytes: u64| ((bytes as f64 * by).round() as u64).max(1);
        match *self {
            Self::Bytes(bytes) => Self::Bytes(scaled(bytes)),
            Self::UpTo(UpTo { up_to }) => Self::UpTo(UpTo { up_to: scaled(up_to) }),
            Self::Around(Around { around, percent }) => {
                Self::Around(Around { around: scaled(around), percent })
            }
            Self::Gamma(Gamma { mean, gamma }) => Self::Gamma(Gamma { mean: scaled(mean), gamma }),
        }
    }

    /// Whether it can be drawn from.
    pub(super) fn is_valid(&self) -> bool {
        match *self {
            Self::Bytes(bytes) => bytes <= 1 << 40,
            Self::UpTo(UpTo { up_to }) => (1..=1 << 40).contains(&up_to),
            Self::Around(Around { around, percent }) => (1..=1 << 39).contains(&around) && percent <= 100,
            // Below a shape of 1 the method in use has no answer.
            Self::Gamma(Gamma { mean, gamma }) => mean <= 1 << 40 && (1.0..=1000.0).contains(&gamma),
        }
    }
}

/// A number in [0, 1).
pub(super) fn unit(chance: &mut Generator) -> f64 {
    (chance.next() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A gamma variate of mean `shape` and scale 1, by Marsaglia and Tsang's rejection from a normal variate;
/// `shape` is 1 or more.
fn gamma_variate(shape: f64, chance: &mut Generator) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal_variate(chance);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 {
            let u = 1.0 - unit(chance);
            if u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }
}

/// A standard normal variate, by Marsaglia's polar method.
fn normal_variate(chance: &mut Generator) -> f64 {
    loop {
        let (x, y) = (2.0 * unit(chance) - 1.0, 2.0 * unit(chance) - 1.0);
        let r = x * x + y * y;
        if r > 0.0 && r < 1.0 {
            return x * (-2.0 * r.ln() / r).sqrt();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_sizes_have_the_mean_and_the_spread_that_they_say() {
        let size = Size::Gamma(Gamma { mean: 16_384, gamma: 1.5 });
        let mut chance = Generator::new(7);
        let drawn: Vec<f64> = (0..200_000).map(|_| size.draw(&mut chance) as f64).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        assert!((mean / 16_384.0 - 1.0).abs() < 0.01, "{mean}");
        // A gamma distribution of shape k has a variance of mean² / k.
        assert!((variance / (16_384.0_f64.powi(2) / 1.5) - 1.0).abs() < 0.03, "{variance}");
    }

    #[test]
    fn sizes_around_a_mean_reach_as_far_to_either_side() {
        let mut chance = Generator::new(1);
        for (percent, least, most) in [(10, 90, 110), (100, 1, 200), (0, 100, 100)] {
            let size = Size::Around(Around { around: 100, percent });
            let drawn: Vec<u64> = (0..10_000).map(|_| size.draw(&mut chance)).collect();
            assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&least), Some(&most)));
            let mean = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
            assert!((mean - 100.0).abs() < 2.0, "{percent}: {mean}");
            assert_eq!(size.longest(), if percent == 100 { 200 } else { most });
        }
        assert!(!Size::Around(Around { around: 100, percent: 101 }).is_valid());
    }

    #[test]
    fn uniform_sizes_reach_from_one_to_the_most() {
        let size = Size::UpTo(UpTo { up_to: 4 });
        let mut chance = Generator::new(1);
        let drawn: std::collections::BTreeSet<u64> = (0..1000).map(|_| size.draw(&mut chance)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}
