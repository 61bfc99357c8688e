//! The axis of a chart: which values it spans, and where on it a value is.

/// Width of an axis in the units of its SVG, which stretches to whatever width there is.
pub(super) const WIDTH: f64 = 1000.0;

/// A logarithmic axis spans no more decades than that: what is less than its left end is drawn there.
const DECADES_MAX: i32 = 12;

/// An axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    /// Where bars begin.
    base: f64,
    logarithmic: bool,
}

impl Axis {
    /// An axis for `values`. Bars begin at its left end; those of quotients (`ratios`) on a logarithmic one
    /// at 1, so that less than 1 goes to the left.
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone, logarithmic: bool, ratios: bool) -> Self {
        let positive = values.filter(|value| value.is_finite() && *value > 0.0);
        let high = positive.clone().fold(0.0, f64::max);
        let low = positive.fold(f64::INFINITY, f64::min);
        if high == 0.0 {
            return Self { low: 0.0, high: 1.0, base: 0.0, logarithmic: false };
        }
        if !logarithmic {
            return Self { low: 0.0, high: nice(high), base: 0.0, logarithmic };
        }
        let (mut low, mut high) = (below(low), above(high));
        if ratios {
            (low, high) = (low.min(1.0), high.max(1.0));
        }
        low = low.max(high / 10_f64.powi(DECADES_MAX));
        if low == high {
            high = low * 10.0;
        }
        let base = if ratios { 1.0 } else { low };
        Self { low, high, base, logarithmic }
    }

    /// Where `value` is, from 0 to [`WIDTH`]; beyond the ends, at the end; what is no number is at the left.
    pub(super) fn at(&self, value: f64) -> f64 {
        if value.is_nan() {
            return 0.0;
        }
        let share = if self.logarithmic {
            (value.max(f64::MIN_POSITIVE) / self.low).log10() / (self.high / self.low).log10()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        (share * WIDTH).clamp(0.0, WIDTH)
    }

    /// Left end and width of the bar of `value`.
    pub(super) fn bar(&self, value: f64) -> (f64, f64) {
        let (from, to) = (self.at(self.base), self.at(value));
        (from.min(to), (to - from).abs())
    }

    /// Where bars begin.
    pub(super) const fn base(&self) -> f64 {
        self.base
    }

    /// Values that get a line and a number: powers of ten, or 1, 2 and 5 in each decade where there are few;
    /// quarters of a linear axis.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            return (0..=4).map(|quarter| self.high * f64::from(quarter) / 4.0).collect();
        }
        let decades = (self.high / self.low).log10().round() as i32;
        let within: &[f64] = if decades <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let first = self.low.log10().floor() as i32;
        let all = (first..=first + decades + 1)
            .flat_map(|power| within.iter().map(move |one| one * 10_f64.powi(power)));
        all.filter(|tick| *tick >= self.low * 0.999 && *tick <= self.high * 1.001).collect()
    }
}

/// The number of 1, 2, 4, 5, 6, 8 times a power of ten at or above `value`.
fn nice(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|one| one * power)
        .find(|nice| *nice >= value)
        .unwrap_or(value)
}

/// The number of 1, 2, 5 times a power of ten at or below `value`.
fn below(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0].into_iter().map(|one| one * power).find(|low| *low <= value).unwrap_or(power)
}

/// The number of 1, 2, 5 times a power of ten at or above `value`.
fn above(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|one| one * power).find(|high| *high >= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_grow_from_one_to_both_sides() {
        let axis = Axis::of([0.3, 6.0].into_iter(), true, true);
        let (one, half, six) = (axis.at(1.0), axis.bar(0.5), axis.bar(6.0));
        assert!((half.0 + half.1 - one).abs() < 1e-9 && half.1 > 0.0);
        assert!((six.0 - one).abs() < 1e-9 && six.0 + six.1 < WIDTH);
        assert_eq!(axis.ticks(), [0.2, 0.5, 1.0, 2.0, 5.0, 10.0]);
    }

    #[test]
    fn a_linear_axis_begins_at_nothing() {
        let axis = Axis::of([3.0, 37.0].into_iter(), false, false);
        assert_eq!(axis.ticks(), [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert_eq!(axis.bar(20.0), (0.0, WIDTH / 2.0));
    }

    #[test]
    fn no_values_and_hostile_ones_have_an_axis() {
        for values in [vec![], vec![0.0], vec![f64::NAN], vec![f64::INFINITY, -1.0], vec![1e-300, 1e300]] {
            for logarithmic in [false, true] {
                let axis = Axis::of(values.iter().copied(), logarithmic, true);
                assert!((2..=14).contains(&axis.ticks().len()), "{:?}", axis.ticks());
                for value in &values {
                    let (at, width) = axis.bar(*value);
                    assert!(
                        (0.0..=WIDTH).contains(&at) && (0.0..=WIDTH).contains(&width),
                        "{value} {at} {width}"
                    );
                }
            }
        }
    }
}
