//! Recovery: finding the transactions that the journal holds complete, and writing their blocks in place.
//!
//! Three passes, as jbd2: find the end, collect revocations, write. Anything impossible before the end is
//! found is the end; a copy whose checksum is wrong although its transaction has a commit record is damage.
//! Interrupted at any point, it can be done again.

use std::collections::BTreeMap;

use amphi_device::{BlockPort, Lpa, Structure};
use amphi_vfs::Error;
use amphi_volume::Error as MountError;
use zerocopy::FromBytes;

use crate::format::{
    BLOCK, COMMIT, DESCRIPTOR, JOURNAL_MAGIC, JournalHeader, JournalSuper, JournalTag, Layout, REVOKE, SUPER,
    TAG_ESCAPED, journal_block_crc,
};
use crate::journal::buffers::Block;

/// What a journal holds.
#[derive(Default)]
pub struct Log {
    /// Transactions that are complete.
    pub transactions: u32,
    /// The number of the first one that is not.
    pub next: u32,
    /// Where the newest copy of each block stands: a block of the journal, and whether it is escaped.
    pub copies: BTreeMap<u64, (u32, bool)>,
}

/// A reader of the log.
struct Reader<'a, D: BlockPort> {
    device: &'a D,
    layout: &'a Layout,
    seed: u32,
}

/// One transaction.
#[derive(Default)]
struct Found {
    copies: Vec<(u64, u32, bool)>,
    revoked: Vec<u64>,
    blocks: u32,
}

impl<D: BlockPort> Reader<'_, D> {
    fn block(&self, at: u32) -> Result<Box<Block>, MountError> {
        let mut block = Box::new([0; BLOCK]);
        let lba = Lpa(u64::from(self.layout.journal) + u64::from(at));
        self.device.read(lba, &mut block[..], Structure::Journal)?;
        Ok(block)
    }

    /// The block of the journal `blocks` behind `at`.
    fn behind(&self, at: u32, blocks: u32) -> u32 {
        (at - 1 + blocks) % (self.layout.journal_blocks - 1) + 1
    }

    /// Reads transaction `sequence`, which may start at `start`; none if it is not complete.
    fn transaction(&self, start: u32, sequence: u32) -> Result<Option<Found>, MountError> {
        let mut found = Found::default();
        let mut sound = true;
        while found.blocks < self.layout.journal_blocks - 1 {
            let block = self.block(self.behind(start, found.blocks))?;
            let Some((header, body)) = JournalHeader::read(&block, self.seed) else { return Ok(None) };
            if header.sequence.get() != sequence {
                return Ok(None);
            }
            found.blocks += 1;
            let count = header.count.get() as usize;
            match header.kind.get() {
                DESCRIPTOR => {
                    for chunk in body.chunks_exact(size_of::<JournalTag>()).take(count) {
                        let Ok(tag) = JournalTag::read_from_bytes(chunk) else { return Ok(None) };
                        let at = self.behind(start, found.blocks);
                        let crc = journal_block_crc(self.seed, sequence, &*self.block(at)?);
                        sound &= crc == tag.crc.get() && self.layout.is_journaled(tag.lba.get());
                        found.copies.push((tag.lba.get(), at, tag.flags.get() & TAG_ESCAPED != 0));
                        found.blocks += 1;
                    }
                }
                REVOKE => {
                    let revoked = body.as_chunks::<8>().0.iter().take(count);
                    found.revoked.extend(revoked.map(|lba| u64::from_le_bytes(*lba)));
                }
                COMMIT if count as u32 != found.blocks => return Ok(None),
                COMMIT if sound => return Ok(Some(found)),
                COMMIT => {
                    let damage = "a block of it in the journal is damaged";
                    return Err(MountError::Damaged(Error::corrupt(
                        "transaction",
                        u64::from(sequence),
                        damage,
                    )));
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// Reads the journal; what it holds that is not in place.
///
/// # Errors
/// [`MountError::Damaged`], [`MountError::Device`].
pub fn read<D: BlockPort>(device: &D, layout: &Layout, seed: u32) -> Result<Log, MountError> {
    let reader = Reader { device, layout, seed };
    let block = reader.block(0)?;
    let damaged = || MountError::Damaged(Error::corrupt("journal", None, "its superblock is damaged"));
    let (header, body) = JournalHeader::read(&block, seed)
        .filter(|(header, _)| header.kind.get() == SUPER)
        .ok_or_else(damaged)?;
    let (sb, _) = JournalSuper::read_from_prefix(body).map_err(|_| damaged())?;
    let mut log = Log { next: header.sequence.get().max(1), ..Log::default() };
    let mut at = sb.start.get();
    if at >= layout.journal_blocks {
        return Err(damaged());
    }
    // Newest copies, with the transaction they are of; a revocation hides those up to its own.
    let mut copies: BTreeMap<u64, (u32, u32, bool)> = BTreeMap::new();
    let mut revoked: BTreeMap<u64, u32> = BTreeMap::new();
    let mut used = 0;
    while at != 0 && log.next < u32::MAX {
        let Some(found) = reader.transaction(at, log.next)? else { break };
        used += found.blocks;
        if used > layout.journal_blocks {
            break;
        }
        copies.extend(found.copies.iter().map(|(lba, at, escaped)| (*lba, (log.next, *at, *escaped))));
        revoked.extend(found.revoked.iter().map(|lba| (*lba, log.next)));
        at = reader.behind(at, found.blocks);
        log.next += 1;
        log.transactions += 1;
    }
    copies.retain(|lba, (sequence, ..)| revoked.get(lba).is_none_or(|by| *by < *sequence));
    log.copies = copies.into_iter().map(|(lba, (_, at, escaped))| (lba, (at, escaped))).collect();
    Ok(log)
}

/// The contents of a copy in the journal.
///
/// # Errors
/// [`MountError::Device`].
pub fn copy<D: BlockPort>(
    device: &D,
    layout: &Layout,
    at: u32,
    escaped: bool,
) -> Result<Box<Block>, MountError> {
    let mut block = Reader { device, layout, seed: 0 }.block(at)?;
    if escaped {
        block[..4].copy_from_slice(&JOURNAL_MAGIC.to_le_bytes());
    }
    Ok(block)
}

/// Writes what the journal holds in place, durably.
///
/// # Errors
/// [`MountError::Device`].
pub fn apply<D: BlockPort>(device: &D, layout: &Layout, log: &Log) -> Result<(), MountError> {
    for (lba, (at, escaped)) in &log.copies {
        device.write(Lpa(*lba), &copy(device, layout, *at, *escaped)?[..], Structure::Journal)?;
    }
    device.flush()?;
    Ok(())
}

/// Marks the journal empty; the next transaction is number `next`.
///
/// # Errors
/// [`MountError::Device`].
pub fn clear<D: BlockPort>(device: &D, layout: &Layout, seed: u32, next: u32) -> Result<(), MountError> {
    let block = JournalHeader::block(SUPER, next, 0, &[0; 4], seed);
    device.write(Lpa(u64::from(layout.journal)), &block, Structure::Journal)?;
    device.flush()?;
    Ok(())
}
