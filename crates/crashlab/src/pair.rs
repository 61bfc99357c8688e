//! Two operations at the same time, and what a crash in them, or after one, may leave.

use std::sync::Arc;

use amphi_rt::random::Generator;

use crate::oracle::{Legal, Oracle};
use crate::run::Run;
use crate::workload::{Operation, additions, operations, prerequisites};

impl Run<'_> {
    /// Does two operations at the same time, drawn by the seed.
    pub(crate) fn pair(&mut self, seed: u64) {
        let mut dice = Generator::new(seed ^ 0x9a17);
        let all: Vec<Operation> =
            operations().into_iter().chain(additions()).map(|bounded| bounded.operation).collect();
        let mut draw = || all[dice.below(all.len() as u64) as usize].clone();
        let two = [draw(), draw()];
        for operation in &two {
            for needed in prerequisites(operation, &self.oracle.model) {
                self.step(&needed, false);
            }
        }
        let two = two.map(|operation| operation.resolved(&self.oracle.model));
        let overlap = Arc::new(Overlap::new(&self.oracle, &two, self.script.len()));
        self.script.extend(two.iter().cloned());
        let names = format!("{} while {}", two[0], two[1]);
        self.lab.moment(&names, overlap.legal(), true);
        self.rig.interleave(Some(seed));
        amphi_rt::task::scope(|scope| {
            for (who, operation) in two.iter().enumerate() {
                let (overlap, names) = (Arc::clone(&overlap), names.clone());
                let (lab, rig, fs) = (self.lab, self.rig, &*self.fs);
                scope.spawn("operation", move || {
                    rig.begin(overlap.first + who);
                    let answer = operation.apply(fs, (overlap.first + who) as u64);
                    overlap.returned(who, answer.is_ok());
                    lab.moment(&names, overlap.legal(), true);
                    rig.end(overlap.first + who);
                });
            }
        });
        self.rig.interleave(None);
    }
}

/// What two overlapping operations may have done.
struct Overlap {
    first: usize,
    /// Each order in which they, or one of them, or none may have been done: who was done with what answer,
    /// and the oracle after.
    outcomes: Vec<(Vec<(usize, bool)>, Legal)>,
    returned: amphi_rt::sync::Mutex<[Option<bool>; 2]>,
}

impl Overlap {
    fn new(before: &Oracle, two: &[Operation; 2], first: usize) -> Self {
        let mut outcomes = Vec::new();
        for order in [&[][..], &[0], &[1], &[0, 1], &[1, 0]] {
            let mut oracle = before.clone();
            let mut done = Vec::new();
            let mut between = None;
            for who in order {
                between = Some(oracle.clone()).filter(|_| !done.is_empty());
                let answer = oracle.apply(&two[*who], (first + who) as u64);
                done.push((*who, answer.is_ok()));
            }
            // While they run, contents may be anything between.
            let legal = match two.iter().find(|operation| operation.changes_data()) {
                Some(operation) => {
                    let mut legal = before.legal_overlapped(&oracle, operation);
                    between.iter().for_each(|moment| legal.pass(moment));
                    legal
                }
                None => oracle.legal(),
            };
            outcomes.push((done, legal));
        }
        Self { first, outcomes, returned: amphi_rt::sync::Mutex::new([None; 2]) }
    }

    fn returned(&self, who: usize, ok: bool) {
        self.returned.lock()[who] = Some(ok);
    }

    /// What is legal now: any order that has in it, with the answers they gave, the operations that have
    /// returned.
    fn legal(&self) -> Legal {
        let returned = *self.returned.lock();
        let fits = |done: &[(usize, bool)]| {
            returned.iter().enumerate().all(|(who, answer)| answer.is_none_or(|ok| done.contains(&(who, ok))))
        };
        let mut all = Legal::default();
        for (done, legal) in &self.outcomes {
            if fits(done) {
                all.candidates.extend(legal.candidates.iter().cloned());
                all.atomic_writes = legal.atomic_writes;
            }
        }
        all
    }
}
