//! Who claimed contested pages first.

use super::finding::{Finding, FindingKind};

/// A run of pages and the first inode that claimed any of it, once it was met.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    end: u32,
    owner: Option<u32>,
}

/// Contested pages, in ascending disjoint runs.
#[derive(Debug, Default)]
pub(super) struct Contested(Vec<Run>);

impl Contested {
    /// Those that were found.
    pub fn of(findings: &[Finding]) -> Self {
        let mut runs: Vec<Run> = findings.iter().filter_map(|finding| run_of(&finding.kind)).collect();
        runs.sort_unstable_by_key(|run| run.first);
        let mut end = 0;
        runs.retain_mut(|run| {
            run.first = run.first.max(end);
            end = end.max(run.end);
            run.first < run.end
        });
        Self(runs)
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes note of a claim.
    pub fn note(&mut self, ino: u32, page: u32, pages: u32) {
        let from = self.0.partition_point(|run| run.end <= page);
        for run in self.0[from..].iter_mut().take_while(|run| run.first < page + pages) {
            run.owner.get_or_insert(ino);
        }
    }

    /// Who claimed a page first.
    pub fn owner(&self, page: u32) -> Option<u32> {
        let run = self.0.get(self.0.partition_point(|run| run.end <= page))?;
        run.owner.filter(|_| run.first <= page)
    }
}

const fn run_of(kind: &FindingKind) -> Option<Run> {
    match kind {
        FindingKind::BlocksClaimedTwice { page, pages, .. } => {
            Some(Run { first: *page, end: *page + *pages, owner: None })
        }
        _ => None,
    }
}
