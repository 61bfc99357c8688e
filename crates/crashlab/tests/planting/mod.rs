//! Bugs that are planted in a file system, each of which the laboratory finds in a script of operations.

use std::fmt::Debug;

use amphi_crashlab::workload::Operation;
use amphi_crashlab::{Bound, Kind, Looking, Session, WorkloadId};

/// A bug, the script in which it is found, and what the report has to say.
pub type Planted<B> = (B, String, &'static str);

/// How a crate's bugs are planted, and a session in which they are.
pub struct Planting<B> {
    pub session: fn() -> Session,
    pub bound: fn(operations: usize) -> Bound,
    pub plant: fn(Option<B>),
}

impl<B: Copy + Debug + PartialEq> Planting<B> {
    /// The first thing that is wrong in a script, in which the bug is planted once there is a file system.
    fn find(&self, script: &str, bug: Option<B>) -> Option<String> {
        let operations: Vec<Operation> =
            script.lines().map(|line| line.parse().expect("an operation")).collect();
        let bound = (self.bound)(operations.len());
        let session = (self.session)().with_trace(operations).expect("it is short");
        let looking = Looking { bound, only: None, most_violations: 1, record: false };
        (self.plant)(bug);
        let outcome = session.run(WorkloadId::new(Kind::Trace, 0), &looking);
        (self.plant)(None);
        let violation = outcome.violations.into_iter().next()?;
        Some(format!("{}: {}", violation.operation, violation.what))
    }

    /// Every bug is found where it is planted, and nothing where none is.
    pub fn each_is_found(&self, bugs: &[B], planted: Vec<Planted<B>>) {
        let listed: Vec<_> = planted.iter().map(|(bug, ..)| *bug).collect();
        assert_eq!(listed, bugs, "every bug is looked for");
        let mut scripts: Vec<_> = planted.iter().map(|(_, script, _)| script).collect();
        scripts.sort();
        scripts.dedup();
        for script in scripts {
            assert_eq!(self.find(script, None), None, "nothing is planted in {script}");
        }
        let mut wrong = Vec::new();
        for (bug, script, says) in planted {
            match self.find(&script, Some(bug)) {
                Some(report) if report.contains(says) => println!("{bug:?}: {report}"),
                Some(report) => wrong.push(format!("{bug:?} is reported as '{report}', without '{says}'")),
                None => wrong.push(format!("{bug:?} is not found")),
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
