//! The states in which a crash may leave the device at one crash point.

use std::fmt;
use std::str::FromStr;

use amphi_rt::random::Generator;

/// What had happened when the power went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing on its way arrived.
    Nothing,
    /// All of it did.
    Everything,
    /// Of at most 64 units, those whose bit is set arrived.
    Mask(u64),
    /// These units alone arrived.
    Only(Vec<u16>),
    /// All units but these arrived.
    But(Vec<u16>),
    /// Every unit arrived, or not, or in some of its parts that are never torn, as the seed says.
    Torn(u64),
    /// The command that was next had got so many firmware steps far, and nothing else arrived.
    Midway(u32),
    /// Cleaning in the background had got so many firmware steps far; what was on its way arrived, or nothing
    /// did.
    Cleaning(u32, bool),
    /// Garbage collection in the background had got so many firmware steps far; what was on its way arrived,
    /// or nothing did.
    Collecting(u32, bool),
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |units: &[u16]| units.iter().map(u16::to_string).collect::<Vec<_>>().join(".");
        match self {
            Self::Nothing => f.write_str("none"),
            Self::Everything => f.write_str("all"),
            Self::Mask(mask) => write!(f, "m{mask:x}"),
            Self::Only(units) => write!(f, "o{}", list(units)),
            Self::But(units) => write!(f, "b{}", list(units)),
            Self::Torn(seed) => write!(f, "t{seed}"),
            Self::Midway(steps) => write!(f, "s{steps}"),
            Self::Cleaning(steps, false) => write!(f, "c{steps}"),
            Self::Cleaning(steps, true) => write!(f, "d{steps}"),
            Self::Collecting(steps, false) => write!(f, "g{steps}"),
            Self::Collecting(steps, true) => write!(f, "h{steps}"),
        }
    }
}

impl FromStr for State {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        fn number<T: FromStr>(text: &str) -> Result<T, ()> {
            text.parse().map_err(|_| ())
        }
        let list = |text: &str| text.split('.').map(number).collect::<Result<Vec<u16>, ()>>();
        match text {
            "none" => return Ok(Self::Nothing),
            "all" => return Ok(Self::Everything),
            _ => {}
        }
        let (kind, rest) = text.split_at_checked(1).ok_or(())?;
        Ok(match kind {
            "m" => Self::Mask(u64::from_str_radix(rest, 16).map_err(|_| ())?),
            "o" => Self::Only(list(rest)?),
            "b" => Self::But(list(rest)?),
            "t" => Self::Torn(number(rest)?),
            "s" => Self::Midway(number(rest)?),
            "c" => Self::Cleaning(number(rest)?, false),
            "d" => Self::Cleaning(number(rest)?, true),
            "g" => Self::Collecting(number(rest)?, false),
            "h" => Self::Collecting(number(rest)?, true),
            _ => return Err(()),
        })
    }
}

impl State {
    /// Whether a unit arrived, if the state says so as such.
    #[must_use]
    pub fn keeps(&self, unit: usize) -> Option<bool> {
        match self {
            Self::Nothing | Self::Midway(_) | Self::Cleaning(_, false) | Self::Collecting(_, false) => {
                Some(false)
            }
            Self::Everything | Self::Cleaning(_, true) | Self::Collecting(_, true) => Some(true),
            Self::Mask(mask) => Some(unit < 64 && mask >> unit & 1 == 1),
            Self::Only(kept) => Some(kept.contains(&(unit as u16))),
            Self::But(lost) => Some(!lost.contains(&(unit as u16))),
            Self::Torn(_) => None,
        }
    }
}

/// How many states are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// All subsets of what is on its way, if it is at most so many units.
    pub all_subsets_up_to: usize,
    /// Otherwise all subsets of up to so many units: 1 or 2; and as many complements of single units.
    pub subset_size: usize,
    /// Torn states drawn by the seed at every crash point.
    pub torn: usize,
    /// Firmware steps at which background cleaning is cut, at every crash point, spread over all there are;
    /// and as many of garbage collection, where it is due; 0: none.
    pub cleaning: usize,
    /// Firmware steps at which recovery is cut again, for every distinct state, spread over all there are;
    /// `usize::MAX`: every step.
    pub recovery: usize,
    /// Only one crash point in so many is looked at, by the seed; 1: every one.
    pub one_point_in: u64,
}

impl Bound {
    /// Everything the laboratory enumerates: all subsets of up to 8 units and of up to two of more, every
    /// step of recovery.
    pub const EXHAUSTIVE: Self = Self {
        all_subsets_up_to: 8,
        subset_size: 2,
        torn: 8,
        cleaning: 24,
        recovery: usize::MAX,
        one_point_in: 1,
    };

    /// The same subsets; fewer torn states, and a few steps of cleaning and recovery for each state instead
    /// of all of them.
    pub const SUBSETS: Self = Self { torn: 2, cleaning: 2, recovery: 2, ..Self::EXHAUSTIVE };

    /// What finds most: all subsets of up to 4 units, single units of more, and a few of everything else.
    pub const BRISK: Self =
        Self { all_subsets_up_to: 4, subset_size: 1, torn: 1, cleaning: 2, recovery: 2, one_point_in: 1 };

    /// The two ends of every crash point, and a few states between.
    pub const LINEAR: Self =
        Self { all_subsets_up_to: 1, subset_size: 0, torn: 2, cleaning: 1, recovery: 1, one_point_in: 1 };
}

/// The states of one crash point that do not depend on how many firmware steps something takes.
#[must_use]
pub fn subsets(units: usize, bound: &Bound, seed: u64) -> Vec<State> {
    let mut states = vec![State::Nothing];
    if units == 0 {
        return states;
    }
    states.push(State::Everything);
    if units <= bound.all_subsets_up_to.min(63) {
        states.extend((1..(1_u64 << units) - 1).map(State::Mask));
    } else {
        for first in 0..units as u16 {
            if bound.subset_size >= 1 {
                states.push(State::Only(vec![first]));
                states.push(State::But(vec![first]));
            }
            if bound.subset_size >= 2 {
                states.extend((first + 1..units as u16).map(|second| State::Only(vec![first, second])));
            }
        }
    }
    let mut dice = Generator::new(seed);
    states.extend((0..bound.torn).map(|_| State::Torn(dice.next() >> 32)));
    states
}

/// So many of the steps `0..all`, spread evenly; which ones, where not all are wanted, is the seed's.
#[must_use]
pub fn spread(all: u32, count: usize, seed: u64) -> Vec<u32> {
    let count = count.min(all as usize) as u64;
    let all = u64::from(all);
    let offset = if all > 0 { (seed >> 11) % all } else { 0 };
    (0..count).map(|i| ((i * all + offset) / count) as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_as_they_were_written() {
        let all = [
            State::Nothing,
            State::Everything,
            State::Mask(0xa5),
            State::Only(vec![3, 17]),
            State::But(vec![0]),
            State::Torn(99),
            State::Midway(2),
            State::Cleaning(7, false),
            State::Cleaning(7, true),
            State::Collecting(7, false),
            State::Collecting(7, true),
        ];
        for state in all {
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        for bad in ["", "x1", "mzz", "o", "t", "nothing"] {
            assert_eq!(bad.parse::<State>(), Err(()), "{bad:?}");
        }
    }

    #[test]
    fn a_bound_is_kept_and_small_sets_are_complete() {
        let bound = Bound { torn: 0, ..Bound::EXHAUSTIVE };
        assert_eq!(subsets(0, &bound, 1).len(), 1);
        assert_eq!(subsets(8, &bound, 1).len(), 256);
        // None, all, 20 alone, 20 complements, 190 pairs.
        assert_eq!(subsets(20, &bound, 1).len(), 2 + 40 + 190);
        assert_eq!(spread(10, 3, 0), [0, 3, 6]);
        for seed in 0..50 {
            assert_eq!(spread(3, usize::MAX, seed << 11), [0, 1, 2]);
            assert!(spread(10, 3, seed << 11).windows(2).all(|pair| pair[0] < pair[1] && pair[1] < 10));
        }
        assert_eq!(spread(0, 5, 1), [0; 0]);
    }
}
