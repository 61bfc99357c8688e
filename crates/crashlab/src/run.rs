//! A workload being run: one operation after the other in virtual time, with the model beside.

use std::sync::Arc;

use amphi_vfs::FileSystem;

use crate::lab::Lab;
use crate::oracle::{Legal, Oracle};
use crate::rig::Rig;
use crate::subject::Subject;
use crate::workload::Operation;

/// Virtual time between two operations, so that each has a time stamp of its own.
const BETWEEN_NS: u64 = 1000;

/// A workload being run.
pub(crate) struct Run<'a> {
    pub(crate) subject: &'static Subject,
    pub(crate) lab: &'a Arc<Lab>,
    pub(crate) rig: &'a Arc<Rig>,
    pub(crate) fs: Box<dyn FileSystem>,
    pub(crate) oracle: Oracle,
    pub(crate) script: Vec<Operation>,
    /// Of the next step: decides when it is done, and what it writes.
    pub(crate) next_number: u64,
}

impl Run<'_> {
    /// Lets the time of the next operation come: the number that decides what it writes, and its place.
    pub(crate) fn turn(&mut self) -> (u64, usize) {
        let number = self.next_number;
        self.next_number += 1;
        let now = amphi_rt::time::now_ns();
        amphi_rt::time::sleep_until_ns(((number + 1) * BETWEEN_NS).max(now + BETWEEN_NS));
        (number, self.script.len())
    }

    /// Does an operation, and has crashes looked at if it is `watched`.
    pub(crate) fn step(&mut self, operation: &Operation, watched: bool) {
        if self.lab.is_done() {
            return;
        }
        let (number, place) = self.turn();
        let operation = operation.resolved(&self.oracle.model);
        let mut after = self.oracle.clone();
        let due = after.apply(&operation, number);
        let text = format!("operation {place}: {operation}");
        let legal = match (&due, watched) {
            (_, false) => Legal::default(),
            (Ok(()), true) => self.oracle.legal_until(&after, &operation),
            (Err(_), true) => self.oracle.legal(),
        };
        self.lab.moment(&text, legal, watched);
        self.rig.begin(place);
        let answer = operation.apply(&*self.fs, number);
        self.script.push(operation);
        if answer.is_ok() != due.is_ok() {
            self.lab.wrong_without_crash(format!("{text} answers {answer:?}, and the model {due:?}"));
        }
        self.oracle = after;
        let legal = if watched { self.oracle.legal() } else { Legal::default() };
        self.lab.moment(&text, legal, watched);
        self.rig.end(place);
    }
}
