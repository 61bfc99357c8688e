//! Making a violation small: the fewest operations, and the simplest state, that still show something wrong.

use crate::lab::{Looking, Violation};
use crate::session::Session;
use crate::state::Bound;
use crate::workload::Operation;

/// A violation made small.
#[derive(Clone, Debug)]
pub struct Small {
    /// The operations that are left; crashes are looked at in the last two.
    pub script: Vec<Operation>,
    /// What is wrong after them; its ID holds for the script, not for the workload.
    pub violation: Violation,
    /// Runs it took.
    pub runs: u32,
}

/// Takes operations away from `script`, which a violation of workload `of` is known to end, as long as
/// anything is still wrong, in at most `most_runs` runs. Nothing if the script alone, without the rest of its
/// workload, shows nothing wrong.
#[must_use]
pub fn shrink(session: &Session, of: &Violation, script: &[Operation], most_runs: u32) -> Option<Small> {
    let mut runs = 0;
    let mut attempt = |script: &[Operation]| {
        runs += 1;
        let bound = Bound { one_point_in: 1, ..Bound::SUBSETS };
        let looking = Looking { bound, only: None, most_violations: 1, record: false };
        (session.run_script(of.id.workload, script, &looking).violations.into_iter().next(), runs)
    };
    let (violation, _) = attempt(script);
    let mut small = Small { script: script.to_vec(), violation: violation?, runs: 1 };
    let mut piece = small.script.len() / 2;
    while piece > 0 {
        let mut from = 0;
        while from + 1 < small.script.len() && small.runs < most_runs {
            let mut fewer = small.script.clone();
            // The last operation is the one that the crash is about.
            fewer.drain(from..(from + piece).min(fewer.len() - 1));
            let (violation, runs) = attempt(&fewer);
            small.runs = runs;
            match violation {
                Some(violation) => (small.script, small.violation) = (fewer, violation),
                None => from += piece,
            }
        }
        piece /= 2;
    }
    Some(small)
}
