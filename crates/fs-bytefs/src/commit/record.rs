//! Records of pages: what a write-back overwrites, in the data journal first (BY-16).

use amphi_device::{BlockPort, Completion, Lpa, Structure, WriteLog};
use amphi_vfs::{Error, Result};
use zerocopy::little_endian::U32;

use crate::base::{Base, WRITE_RUN_MAX};
use crate::commit::journal::Record;
use crate::commit::tx::Tx;
use crate::format::{JournalHeader, PAGE, RECORD_TARGETS};

/// Writes the record of `blocks`, (device page, contents), of file `ino`, waits until it is durable, and adds
/// its slot to `tx`.
///
/// # Errors
/// [`Error::Io`], [`Error::ReadOnly`]; the file system has then turned read-only.
pub fn write_record<D: BlockPort + WriteLog>(
    base: &Base<D>,
    ino: u32,
    blocks: &[(u64, &[u8])],
    tx: &mut Tx<'_, D>,
) -> Result<Record> {
    let journal = &base.journal;
    let record = journal.take(blocks.len(), || base.writable().is_err()).ok_or(Error::ReadOnly)?;
    let sequence = journal.next_sequence();
    let descriptors: Vec<Box<[u8; PAGE]>> = blocks
        .chunks(RECORD_TARGETS)
        .map(|chunk| {
            let targets: Vec<U32> = chunk.iter().map(|(lba, _)| U32::new(*lba as u32)).collect();
            let mut page = Box::new([0; PAGE]);
            JournalHeader::encode(&mut page, sequence, ino, &targets);
            page
        })
        .collect();
    let heads = descriptors.iter().map(|page| &page[..]);
    let pages: Vec<&[u8]> = heads.chain(blocks.iter().map(|(_, data)| *data)).collect();
    write_pages(base, journal.page(&record), &pages).map_err(|error| base.broken(error))?;
    let (slot, line) = journal.pages_slot(&record, blocks.len() as u32, sequence, ino);
    tx.write(slot, &line, Structure::Journal);
    Ok(record)
}

fn write_pages<D: BlockPort + WriteLog>(
    base: &Base<D>,
    mut at: Lpa,
    pages: &[&[u8]],
) -> amphi_device::Result<()> {
    let mut tickets = Vec::new();
    for command in pages.chunks(WRITE_RUN_MAX) {
        tickets.push(base.device.submit_write(at, command, Structure::Journal)?);
        at = at.plus(command.len() as u64);
    }
    for ticket in tickets {
        ticket.wait()?;
    }
    base.settle_blocks()
}
