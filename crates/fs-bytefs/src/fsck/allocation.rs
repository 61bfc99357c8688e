//! Bitmaps, the data journal's slots and the orphan table: loads them before the first pass and compares the
//! bitmaps with what the passes found at the end.

use amphi_device::{BlockPort, Structure};
use amphi_volume::{Bits, CHUNK_BITS};

use super::FsckError;
use super::finding::FindingKind;
use super::read::{Reader, Run};
use super::state::State;
use crate::format::{AG_PAGES, INODES_PER_PAGE, JournalSlot, LINE, Layout, ORPHAN_PAGES, PAGE, ROOT_INO};

/// Loads both bitmaps and the orphan table.
pub(super) fn load<D: BlockPort>(state: &mut State, reader: &mut Reader<'_, D>) -> Result<(), FsckError> {
    let layout = state.layout;
    let State { inode_bits, block_bits, findings, .. } = state;
    let mut bitmap = |runs: &[Run], bits: &mut Bits, ag_bits: u64, what| {
        reader.read(runs, Structure::Bitmap, &mut |ag, page, bytes| match bytes {
            Ok(bytes) => {
                let skipped = u64::from(page - runs[ag].first) * CHUNK_BITS;
                let (first, count) = (ag as u64 * ag_bits + skipped, (ag_bits - skipped).min(CHUNK_BITS));
                bits.load(first, count, bytes);
            }
            Err(error) => {
                findings.add_unreadable(page, what, &error);
            }
        })
    };
    let run = |first: u64, pages: u64| Run { first: first as u32, pages: pages as u32 };
    let of_inodes: Vec<Run> =
        (0..layout.ags()).map(|ag| run(layout.inode_bitmap(ag), layout.inode_bitmap_pages())).collect();
    bitmap(&of_inodes, inode_bits, u64::from(layout.ag_inodes), "the inode bitmap")?;
    let of_blocks: Vec<Run> = (0..layout.ags()).map(|ag| run(layout.block_bitmap(ag), 1)).collect();
    bitmap(&of_blocks, block_bits, AG_PAGES, "the block bitmap")?;
    if !state.inode_bits.get(0) {
        state.findings.add(FindingKind::InodeZeroFree);
    }
    journal(state, reader)?;
    orphans(state, reader)
}

/// Every record that made sense has been replayed: what is left makes none.
fn journal<D: BlockPort>(state: &mut State, reader: &mut Reader<'_, D>) -> Result<(), FsckError> {
    let Layout { journal, journal_pages, .. } = state.layout;
    if journal_pages == 0 {
        return Ok(());
    }
    match reader.page(journal, Structure::Journal)? {
        Ok(page) => {
            for (slot, line) in (0..).zip(page.as_chunks::<LINE>().0) {
                let reason = match JournalSlot::decode(line, journal_pages) {
                    Ok(None) => continue,
                    Ok(Some(_)) => "its record makes no sense".to_owned(),
                    Err(error) => error.to_string(),
                };
                state.findings.add(FindingKind::JournalSlotBad { slot, reason });
            }
        }
        Err(error) => state.findings.add_unreadable(journal, "the data journal", &error),
    }
    Ok(())
}

fn orphans<D: BlockPort>(state: &mut State, reader: &mut Reader<'_, D>) -> Result<(), FsckError> {
    let first = state.layout.orphans;
    let run = Run { first, pages: ORPHAN_PAGES };
    reader.read(&[run], Structure::Inode, &mut |_, page, bytes| match bytes {
        Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => {}
        Ok(bytes) => {
            let slots = (page - first) * (PAGE / 4) as u32..;
            for (slot, ino) in
                slots.zip(bytes.as_chunks::<4>().0).map(|(slot, raw)| (slot, u32::from_le_bytes(*raw)))
            {
                if ino != 0 {
                    orphan(state, slot, ino);
                }
            }
        }
        Err(error) => state.findings.add_unreadable(page, "the orphan table", &error),
    })
}

fn orphan(state: &mut State, slot: u32, ino: u32) {
    let State { inodes, findings, inode_bits, .. } = state;
    if ino == ROOT_INO || !inode_bits.get(u64::from(ino)) {
        findings.add(FindingKind::OrphanSlotInvalid { slot, ino });
        return;
    }
    let Some(known) = inodes.get_mut(ino) else { return };
    if known.orphan() {
        findings.add(FindingKind::OrphanSlotDuplicate { slot, ino });
        return;
    }
    known.set_orphan();
    state.findings.report.orphans += 1;
}

/// Compares the block bitmap with what was claimed.
pub(super) fn compare(state: &mut State) {
    let State { claims, block_bits, findings, .. } = state;
    claims.bits.without(block_bits, |first, len| {
        findings.add(FindingKind::BlocksMarkedFree { page: first as u32, pages: len as u32 });
    });
    block_bits.without(&claims.bits, |first, len| {
        findings.add(FindingKind::BlocksLeaked { page: first as u32, pages: len as u32 });
    });
}

const _: () = assert!(INODES_PER_PAGE == 32, "the first pass looks at the inode bitmap 32 bits at a time");
