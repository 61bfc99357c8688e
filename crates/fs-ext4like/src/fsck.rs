//! The file system check: rebuilds from the device alone what bitmaps, link counts and directories must be,
//! and compares. It changes nothing: it reads the device as it would be with the journal replayed, with the
//! same code that a mount reads with, which trusts no number it reads.
//!
//! There is no repair of damage: mounting replays the journal and deletes orphans, and nothing else goes
//! wrong by crashes.

mod finding;
mod overlay;

use std::collections::BTreeSet;
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_vfs::{Error, FileType, Ino};
use amphi_volume::{Bits, Checked, Claims};
pub use amphi_volume::{Found, Severity};
pub use finding::Finding;

use crate::core::Core;
use crate::format::{DiskInode, FIRST_INO, GROUP_BLOCKS, INODE_BYTES, Layout, ROOT_INO, Superblock};
use crate::index::extent::Run;
use crate::index::{dir, inode};
use crate::journal::buffers::Kind;
use crate::journal::{Journal, replay};
use crate::mount::{MountError, read_descriptors, read_super};
use crate::options::MountOptions;
use crate::space::bits;
use crate::space::groups::Groups;
use overlay::Overlay;

/// The outcome of a check; its pages are blocks.
pub type Report = Checked<Finding>;

/// Checks the file system on `device`, which nobody else uses meanwhile, and changes nothing.
///
/// # Errors
/// [`MountError`] if there is none or the device fails. Damage is not an error but a finding.
pub fn check<D: BlockPort>(device: &Arc<D>) -> Result<Report, MountError> {
    let mut report = Report::default();
    let sb = match read_super(&**device) {
        Ok(sb) => sb,
        Err(error @ MountError::Device(_)) => return Err(error),
        Err(error @ (MountError::NotThis { .. } | MountError::Version { .. })) => return Err(error),
        Err(error) => {
            report.add(Finding::SuperblockDamaged { reason: error.to_string() });
            return Ok(report);
        }
    };
    let layout = Layout::of(&sb);
    let log = match replay::read(&**device, &layout, sb.journal_seed()) {
        Ok(log) => log,
        Err(error @ MountError::Device(_)) => return Err(error),
        Err(error) => {
            report.add(Finding::JournalDamaged { reason: error.to_string() });
            return Ok(report);
        }
    };
    if sb.clean.get() != 1 || log.transactions > 0 {
        report.add(Finding::NotCleanlyUnmounted { transactions: log.transactions });
    }
    report.cleanly_unmounted = sb.clean.get() == 1;
    let overlay = Arc::new(Overlay::new(Arc::clone(device), layout, log));
    let opened =
        read_super(&*overlay).and_then(|sb| Ok((sb, read_descriptors(&*overlay, &Layout::of(&sb))?)));
    let (sb, descriptors) = match opened {
        Ok((sb, descriptors)) if Layout::of(&sb) == layout => (sb, descriptors),
        Ok(_) => {
            report.add(Finding::SuperblockDamaged { reason: "the journal's has another size".to_owned() });
            return Ok(report);
        }
        Err(error @ MountError::Device(_)) => return Err(error),
        Err(error) => {
            report.add(Finding::SuperblockDamaged { reason: error.to_string() });
            return Ok(report);
        }
    };
    report.label = sb.label_text();
    let options = MountOptions { read_only: true, buffer_blocks: 16_384, ..MountOptions::default() };
    let groups = Groups::new(layout, descriptors);
    let core = Core::new(overlay, sb, options, groups, Journal::new(&layout, sb.journal_seed(), 1));
    let mut check = Check::new(&core, report);
    check.inodes()?;
    check.orphans(&sb)?;
    check.tree()?;
    check.links();
    check.bitmaps();
    Ok(check.report)
}

/// What is known of an inode.
#[derive(Clone, Copy, Default)]
struct Seen {
    file_type: Option<FileType>,
    nlink: u32,
    /// Names found; for a directory, its subdirectories.
    names: u32,
    subdirectories: u32,
    reached: bool,
    orphan: bool,
}

struct Check<'a, D: BlockPort> {
    core: &'a Core<D>,
    report: Report,
    seen: Vec<Seen>,
    /// Blocks that belong to something.
    claims: Claims,
}

/// A failure of the device ends the check; anything else is damage, in words.
fn damage(error: Error) -> Result<String, MountError> {
    match error {
        failed @ Error::Io(_) => Err(failed.into()),
        Error::Corrupt(damage) => Ok(damage.to_string()),
        other => Ok(other.to_string()),
    }
}

impl<'a, D: BlockPort> Check<'a, D> {
    fn new(core: &'a Core<D>, report: Report) -> Self {
        let layout = &core.layout;
        let mut check = Self {
            core,
            report,
            seen: vec![Seen::default(); layout.inodes() as usize],
            claims: Claims::new(layout.blocks.into()),
        };
        check.report.inodes = u64::from(layout.inodes());
        check.report.pages = u64::from(layout.blocks);
        check.claims.claim(0, layout.data.into(), |_, _| ());
        check
    }

    /// Reads every inode in use and claims its blocks.
    fn inodes(&mut self) -> Result<(), MountError> {
        let layout = self.core.layout;
        for group in 0..layout.groups {
            let bitmap = match self.core.groups.check_bitmaps(self.core, group) {
                Ok((_, inodes)) => inodes,
                Err(error) => {
                    self.report.add(Finding::GroupDamaged { group, reason: damage(error)? });
                    continue;
                }
            };
            let (mut used, mut directories) = (0, 0);
            for bit in 0..layout.inodes_per_group {
                if !bits::is_set(&bitmap, bit) {
                    continue;
                }
                used += 1;
                let ino = group * layout.inodes_per_group + bit;
                if ino == ROOT_INO || ino >= FIRST_INO {
                    self.inode(ino)?;
                }
                directories += u32::from(self.seen[ino as usize].file_type == Some(FileType::Directory));
            }
            let said = self.core.groups.inode_counts(group);
            if said != (layout.inodes_per_group - used, directories) {
                let reason = format!(
                    "it says {} inodes free and {} directories, and has {} and {directories}",
                    said.0,
                    said.1,
                    layout.inodes_per_group - used
                );
                self.report.add(Finding::GroupDamaged { group, reason });
            }
        }
        Ok(())
    }

    fn inode(&mut self, ino: u32) -> Result<(), MountError> {
        let inode = match inode::load(self.core, ino) {
            Ok(inode) => inode,
            Err(error) => {
                self.report.add(Finding::InodeDamaged { ino, reason: damage(error)? });
                return Ok(());
            }
        };
        let state = inode.state.read();
        self.seen[ino as usize] =
            Seen { file_type: Some(inode.file_type), nlink: state.nlink, ..Seen::default() };
        match inode.file_type {
            FileType::Regular => self.report.files += 1,
            FileType::Directory => self.report.directories += 1,
            FileType::Symlink => self.report.symlinks += 1,
            _ => self.report.special += 1,
        }
        let mut due = 0;
        let nodes = state.extents.node_blocks().chain(state.xattrs.block()).map(|block| (block, 1));
        let runs = state.extents.iter().map(|Run { start, len, .. }| (start, len));
        for (start, len) in nodes.chain(runs) {
            due += len;
            self.claims.claim(start.into(), len.into(), |first, count| {
                for block in first..first + count {
                    self.report.add(Finding::BlockClaimedTwice { block: block as u32, ino });
                }
            });
        }
        if due != state.blocks {
            self.report.add(Finding::BlockCount { ino, said: state.blocks, due });
        }
        if let Err(error) = state.xattrs.load(self.core) {
            self.report.add(Finding::InodeDamaged { ino, reason: damage(error)? });
        }
        Ok(())
    }

    fn orphans(&mut self, sb: &Superblock) -> Result<(), MountError> {
        let mut next = sb.last_orphan.get();
        while next != 0 {
            let known =
                self.seen.get(next as usize).is_some_and(|seen| seen.file_type.is_some() && !seen.orphan);
            if !known {
                self.report.add(Finding::OrphansDamaged { ino: next });
                break;
            }
            self.seen[next as usize].orphan = true;
            self.report.orphans += 1;
            let (lba, at) = self.core.layout.inode_place(next);
            let block = match self.core.block(lba, Kind::Inodes) {
                Ok(block) => block,
                Err(error) => {
                    self.report.add(Finding::InodeDamaged { ino: next, reason: damage(error)? });
                    break;
                }
            };
            next = DiskInode::decode(&block[at..at + INODE_BYTES], next)
                .map_or(0, |inode| inode.next_orphan.get());
        }
        Ok(())
    }

    /// Walks the directories from the root on.
    fn tree(&mut self) -> Result<(), MountError> {
        if self.seen[ROOT_INO as usize].file_type != Some(FileType::Directory) {
            self.report.add(Finding::DirectoryDamaged {
                ino: ROOT_INO,
                reason: "it is the root and no directory".to_owned(),
            });
            return Ok(());
        }
        self.seen[ROOT_INO as usize].reached = true;
        let mut waiting = vec![ROOT_INO];
        while let Some(dir) = waiting.pop() {
            if let Err(error) = self.directory(dir, &mut waiting) {
                self.report.add(Finding::DirectoryDamaged { ino: dir, reason: damage(error)? });
            }
        }
        Ok(())
    }

    fn directory(&mut self, dir: u32, waiting: &mut Vec<u32>) -> Result<(), Error> {
        let inode = self.core.inode(Ino(u64::from(dir)))?;
        let state = inode.state.read();
        let mut entries = Vec::new();
        dir::visit_all(self.core, &state, |name, ino, file_type| {
            entries.push((name.to_vec(), ino, file_type))
        })?;
        let mut names = BTreeSet::new();
        for (name, ino, file_type) in entries {
            let is_new = names.insert(name.clone());
            let seen = self.seen.get(ino as usize).copied().unwrap_or_default();
            let is_dir = seen.file_type == Some(FileType::Directory);
            let parent = |ino: u32| Ok::<_, Error>(self.core.inode(Ino(u64::from(ino)))?.parent());
            let reason = match seen.file_type {
                _ if !is_new => "the directory has the name twice",
                None => "it is free or damaged",
                found if found != file_type => "it has another type",
                _ if is_dir && seen.reached => "it is a directory and has a name already",
                _ if is_dir && parent(ino)? != inode.ino => "its parent is another directory",
                _ => {
                    self.seen[ino as usize].names += 1;
                    self.seen[ino as usize].reached = true;
                    if is_dir {
                        self.seen[dir as usize].subdirectories += 1;
                        waiting.push(ino);
                    }
                    continue;
                }
            };
            let name = name.escape_ascii().to_string();
            self.report.add(Finding::EntryWrong { dir, name, ino, reason });
        }
        Ok(())
    }

    fn links(&mut self) {
        for ino in (ROOT_INO..).take(self.seen.len().saturating_sub(1)) {
            let seen = self.seen[ino as usize];
            let Some(file_type) = seen.file_type else { continue };
            let due = match file_type {
                FileType::Directory if seen.reached => 2 + seen.subdirectories,
                _ => seen.names,
            };
            if due == 0 && !seen.orphan {
                self.report.add(Finding::Unreachable { ino });
            } else if seen.nlink != due {
                self.report.add(Finding::LinkCount { ino, said: seen.nlink, due });
            }
        }
    }

    fn bitmaps(&mut self) {
        let layout = self.core.layout;
        let mut marked = Bits::new(layout.blocks.into());
        for group in 0..layout.groups {
            let (first, blocks) = (u64::from(group * GROUP_BLOCKS), u64::from(layout.group_blocks(group)));
            match self.core.groups.check_bitmaps(self.core, group) {
                Ok((bitmap, _)) => marked.load(first, blocks, &bitmap),
                // One that cannot be read was found before.
                Err(_) => {
                    (first..first + blocks).filter(|block| self.claims.bits.get(*block)).for_each(|block| {
                        marked.set(block);
                    })
                }
            }
        }
        let claimed = &self.claims.bits;
        marked.without(claimed, |start, blocks| {
            self.report.add(Finding::BlocksLeaked { start: start as u32, blocks: blocks as u32 });
        });
        claimed.without(&marked, |start, blocks| {
            self.report.add(Finding::BlocksNotMarked { start: start as u32, blocks: blocks as u32 });
        });
        self.report.pages_used = claimed.count();
    }
}
