//! The names of workloads and of crashes: short texts that say everything needed to do it again.
//!
//! `bytefs/seq2-41233@7:m3f+12` is: ByteFS; the 41,233rd sequence of two operations; its 7th crash point; of
//! the units on their way those of mask 3f arrived; and the power failed again at the 12th firmware step of
//! recovery. In `bytefs/seq1-17!5@0:none` the device failed the 5th of the commands that may fail, from 0.

use std::fmt;
use std::str::FromStr;

use crate::rig::Fault;
use crate::state::State;

/// A kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The published sequences of one operation.
    Seq1,
    /// The published sequences of two operations.
    Seq2,
    /// Sequences of one operation with what the published ones lack.
    Extra1,
    /// Sequences of two operations that the published ones lack.
    Extra2,
    /// Sequences of three operations; the number is a seed.
    Seq3,
    /// Two operations at the same time; the number is a seed.
    Pairs,
    /// A long random run on a device whose log and flash are cleaned all the time; the number is a seed.
    Random,
    /// A file of operations.
    Trace,
    /// Sequences of a published operation and one that is lacking there. Last, because a kind's place is part
    /// of the seeds of those that draw.
    Mixed2,
}

/// Their names.
pub const KINDS: [(&str, Kind); 9] = [
    ("seq1", Kind::Seq1),
    ("seq2", Kind::Seq2),
    ("extra1", Kind::Extra1),
    ("extra2", Kind::Extra2),
    ("mixed2", Kind::Mixed2),
    ("seq3", Kind::Seq3),
    ("pairs", Kind::Pairs),
    ("random", Kind::Random),
    ("trace", Kind::Trace),
];

/// One workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkloadId {
    /// Its kind.
    pub kind: Kind,
    /// Which of its kind.
    pub number: u64,
    /// The command that the device fails meanwhile.
    pub fault: Option<Fault>,
}

impl WorkloadId {
    /// A workload on a device that fails nothing.
    #[must_use]
    pub const fn new(kind: Kind, number: u64) -> Self {
        Self { kind, number, fault: None }
    }
}

/// One crash of one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashId {
    /// The file system.
    pub subject: String,
    /// What it was doing.
    pub workload: WorkloadId,
    /// The crash point, counted from 0 over those that are looked at.
    pub point: u64,
    /// What the crash left.
    pub state: State,
    /// The firmware step of recovery at which the power failed again.
    pub again: Option<u32>,
}

/// Not the ID of a crash.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no crash ID; `amphi crash run` prints IDs such as bytefs/seq1-17@3:m5")]
pub struct IdError(String);

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(KINDS.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Kind {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let found = KINDS.iter().find(|(name, _)| *name == text);
        found.map(|(_, kind)| *kind).ok_or_else(|| IdError(text.to_owned()))
    }
}

impl fmt::Display for WorkloadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.kind, self.number)?;
        self.fault.map_or(Ok(()), |fault| fault.fmt(f))
    }
}

impl fmt::Display for CrashId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}@{}:{}", self.subject, self.workload, self.point, self.state)?;
        self.again.map_or(Ok(()), |step| write!(f, "+{step}"))
    }
}

impl FromStr for CrashId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad = || IdError(text.to_owned());
        let (subject, rest) = text.split_once('/').ok_or_else(bad)?;
        let (workload, rest) = rest.split_once('@').ok_or_else(bad)?;
        let (kind, number) = workload.split_once('-').ok_or_else(bad)?;
        let (number, fault) = match number.split_once('!') {
            Some((number, fault)) => (number, Some(fault.parse().map_err(|_| bad())?)),
            None => (number, None),
        };
        let (point, rest) = rest.split_once(':').ok_or_else(bad)?;
        let (state, again) = match rest.split_once('+') {
            Some((state, again)) => (state, Some(again.parse().map_err(|_| bad())?)),
            None => (rest, None),
        };
        Ok(Self {
            subject: subject.to_owned(),
            workload: WorkloadId {
                kind: kind.parse().map_err(|_| bad())?,
                number: number.parse().map_err(|_| bad())?,
                fault,
            },
            point: point.parse().map_err(|_| bad())?,
            state: state.parse().map_err(|()| bad())?,
            again,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_was_written() {
        for text in [
            "bytefs/seq2-41233@7:m3f+12",
            "bytefs/random-1@0:g17",
            "bytefs/pairs-9@3:o1.22",
            "toy/seq1-17!5d@0:none",
            "toy/seq1-17!5l@0:none",
        ] {
            let id: CrashId = text.parse().expect("a valid ID");
            assert_eq!(id.to_string(), text);
        }
        for bad in [
            "",
            "bytefs",
            "bytefs/seq9-1@0:none",
            "bytefs/seq1-1@0:q",
            "bytefs/seq1-1@0:none+x",
            "a/seq1-1!@0:none",
        ] {
            assert!(bad.parse::<CrashId>().is_err(), "{bad:?}");
        }
    }
}
