//! Bitmaps, the data journal's slots and the orphan table: loads them before the first pass and compares the bitmaps with what the passes found at the end.

use amphi_device::{BlockPort, Structure};

use super::FsckError;
use super::bits::{Bits, CHUNK_BITS};
use super::finding::FindingKind;
use super::read::{Reader, Run};
use super::state::State;
use crate::format::{INODES_PER_PAGE, JournalSlot, LINE, Layout, ORPHAN_PAGES, PAGE, ROOT_INO};

/// Loads both bitmaps and the orphan table.
pub(super) fn load<D: BlockPort>(state: &mut State, reader: &mut Reader<'_, D>) -> Result<(), FsckError> {
    let layout = state.layout;
    let State { inode_bits, block_bits, findings, .. } = state;
    let mut bitmap = |first: u32, bits: &mut Bits, len: u64, what| {
        let run = Run { first, pages: len.div_ceil(CHUNK_BITS) as u32 };
        reader.read(&[run], Structure::Bitmap, &mut |_, page, bytes| match bytes {
            Ok(bytes) => bits.load_page(u64::from(page - first), bytes),
            Err(error) => {
                findings.add(FindingKind::PageUnreadable {
                    page,
                    structure: what,
                    reason: error.to_string(),
                });
            }
        })
    };
    bitmap(layout.inode_bitmap, inode_bits, u64::from(layout.inodes), "the inode bitmap")?;
    bitmap(layout.block_bitmap, block_bits, layout.pages, "the block bitmap")?;
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
        Err(error) => state.findings.add(FindingKind::PageUnreadable {
            page: journal,
            structure: "the data journal",
            reason: error.to_string(),
        }),
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
        Err(error) => state.findings.add(FindingKind::PageUnreadable {
            page,
            structure: "the orphan table",
            reason: error.to_string(),
        }),
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
    state.orphans += 1;
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
