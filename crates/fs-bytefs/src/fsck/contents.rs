//! Pages whose contents the check reads for their own sake: targets of long symbolic links, and extended
//! attributes.

use std::collections::BTreeSet;

use amphi_device::{BlockPort, Structure};

use super::FsckError;
use super::finding::FindingKind;
use super::read::{Page, Reader, Run};
use super::state::State;
use crate::format::XattrHeader;
use amphi_vfs::acl::{self, Acl};

/// Reads the targets of symbolic links that are not in their inodes.
pub(super) fn check_long_targets<D: BlockPort>(
    state: &mut State,
    reader: &mut Reader<'_, D>,
) -> Result<(), FsckError> {
    let mut targets = std::mem::take(&mut state.long_targets);
    targets.sort_unstable_by_key(|target| target.page);
    let runs: Vec<Run> = targets.iter().map(|target| Run { first: target.page, pages: 1 }).collect();
    reader.read(&runs, Structure::Data, &mut |i, page, bytes| match bytes {
        Ok(bytes) => check_target(state, targets[i].ino, &bytes[..usize::from(targets[i].bytes)]),
        Err(error) => state.findings.add_unreadable(page, "a symbolic link's target", &error),
    })
}

/// Checks the bytes of a symbolic link's target.
pub(super) fn check_target(state: &mut State, ino: u32, target: &[u8]) {
    if target.is_empty() {
        state.findings.add(FindingKind::SymlinkTargetBad { ino, reason: "it is empty" });
    } else if target.contains(&0) {
        state.findings.add(FindingKind::SymlinkTargetBad { ino, reason: "it holds a NUL byte" });
    }
}

/// Reads the pages of extended attributes.
pub(super) fn check_attributes<D: BlockPort>(
    state: &mut State,
    reader: &mut Reader<'_, D>,
) -> Result<(), FsckError> {
    let mut pages = std::mem::take(&mut state.attribute_pages);
    pages.sort_unstable();
    let runs: Vec<Run> = pages.iter().map(|&(first, _)| Run { first, pages: 1 }).collect();
    reader.read(&runs, Structure::Inode, &mut |i, page, bytes| {
        let ino = pages[i].1;
        match bytes {
            Ok(bytes) => {
                if let Some(reason) = attributes_problem(bytes, ino) {
                    state.findings.add(FindingKind::AttributesBad { ino, page, reason });
                }
            }
            Err(error) => state.findings.add_unreadable(page, "extended attributes", &error),
        }
    })
}

/// What is wrong with a page of extended attributes.
pub(super) fn attributes_problem(page: &Page, ino: u32) -> Option<String> {
    let attributes = match XattrHeader::decode(page, ino) {
        Ok(attributes) => attributes,
        Err(error) => return Some(error.to_string()),
    };
    if attributes.is_empty() {
        return Some("it holds no attribute".into());
    }
    let mut names = BTreeSet::new();
    if attributes.iter().any(|(name, _)| !names.insert(name)) {
        return Some("a name occurs twice".into());
    }
    let no_list =
        |(name, value): &(Vec<u8>, Vec<u8>)| acl::is_name(name) && !matches!(Acl::decode(value), Ok(Some(_)));
    attributes.iter().any(no_list).then(|| "an access control list is none".into())
}
