//! Pages claimed twice: the first pass notices the second claim only. When there is one, this walks the
//! inodes again, to say who came first.

use amphi_device::BlockPort;

use super::finding::{Finding, FindingKind};
use super::owners::Contested;
use super::read::Reader;
use super::state::State;
use super::{FsckError, allocation, inodes};
use crate::format::Layout;

/// Adds the first claimants to the findings of pages claimed twice. Inodes are met in the order of the first
/// pass.
pub(super) fn name_owners<D: BlockPort>(
    findings: &mut [Finding],
    layout: Layout,
    reader: &mut Reader<'_, D>,
) -> Result<(), FsckError> {
    let contested = Contested::of(findings);
    if contested.is_empty() {
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
