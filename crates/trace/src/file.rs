//! A trace as text: lines of operations, comments, and where what was there before ends.

use std::str::FromStr;

use thiserror::Error;

use crate::operation::Operation;

/// The line of a recorded trace that stands between what was there when the recording began and what was done
/// then. A comment, for readers to whom it is all one.
pub const BEGUN: &str = "# what was there before ends here";

/// A trace that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What makes the files that were there before. Empty where the trace does not say.
    pub before: Vec<Operation>,
    /// What was done then, in order.
    pub operations: Vec<Operation>,
}

/// A line that is no operation.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {number}: '{line}' is {cause}")]
pub struct BadLine {
    /// Its number in the file, from 1 on.
    pub number: usize,
    /// What it says.
    pub line: String,
    /// What is wrong with it.
    pub cause: amphi_vfs::Error,
}

impl Trace {
    /// All operations, as one piece.
    #[must_use]
    pub fn whole(self) -> Vec<Operation> {
        let mut whole = self.before;
        whole.extend(self.operations);
        whole
    }
}

impl FromStr for Trace {
    type Err = BadLine;

    fn from_str(text: &str) -> Result<Self, BadLine> {
        let mut trace = Self::default();
        for (index, line) in text.lines().enumerate() {
            if line.trim_end() == BEGUN {
                trace.before.append(&mut trace.operations);
            }
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let operation =
                line.parse().map_err(|cause| BadLine { number: index + 1, line: line.to_owned(), cause })?;
            trace.operations.push(operation);
        }
        Ok(trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_is_told_from_what_was_done() {
        let trace: Trace = format!("# a comment\nmkdir d\n\nsync\n{BEGUN}\ncreate d/a\n").parse().unwrap();
        assert_eq!((trace.before.len(), trace.operations.len()), (2, 1));
        assert_eq!(trace.operations[0].to_string(), "create d/a");
        assert_eq!(trace.whole().len(), 3);
        let plain: Trace = "create a\nunlink a".parse().unwrap();
        assert_eq!((plain.before.len(), plain.operations.len()), (0, 2));
    }

    #[test]
    fn a_bad_line_is_named() {
        let bad = "create a\n\nwrote a".parse::<Trace>().unwrap_err();
        assert_eq!(bad.number, 3);
        assert!(bad.to_string().starts_with("line 3: 'wrote a' is "), "{bad}");
    }
}
