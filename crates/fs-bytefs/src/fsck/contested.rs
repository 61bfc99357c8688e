//! Pages claimed twice: the first pass notices the second claim only. When there is one, this walks the inodes again, to say who came first.

use amphi_device::BlockPort;

use super::finding::{Finding, FindingKind};
use super::read::Reader;
use super::state::State;
use super::{FsckError, allocation, inodes};
use crate::format::Layout;

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
    fn of(findings: &[Finding]) -> Self {
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

    /// Takes note of a claim.
    pub fn note(&mut self, ino: u32, page: u32, pages: u32) {
        let from = self.0.partition_point(|run| run.end <= page);
        for run in self.0[from..].iter_mut().take_while(|run| run.first < page + pages) {
            run.owner.get_or_insert(ino);
        }
    }

    fn owner(&self, page: u32) -> Option<u32> {
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

/// Adds the first claimants to the findings of pages claimed twice. Inodes are met in the order of the first pass.
pub(super) fn name_owners<D: BlockPort>(
    findings: &mut [Finding],
    layout: Layout,
    reader: &mut Reader<'_, D>,
) -> Result<(), FsckError> {
    let contested = Contested::of(findings);
    if contested.0.is_empty() {
        return Ok(());
    }
    let mut again = State::new(layout);
    again.contested = contested;
    allocation::load(&mut again, reader)?;
    inodes::check_table(&mut again, reader, &mut |_| ())?;
    for finding in findings {
        if let FindingKind::BlocksClaimedTwice { page, owner, .. } = &mut finding.kind {
            *owner = again.contested.owner(*page);
        }
    }
    Ok(())
}
