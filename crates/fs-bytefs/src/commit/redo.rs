//! Transactions that the host makes, for firmware that has none: the paper's ablation Dual (BY-18, §5.4), the
//! dual interface on a device that caches pages.
//!
//! The updates of a transaction are stored to the data journal by bytes, as one record; the record's slot
//! makes them count; then they are stored in place and the slot is emptied. Everything travels twice and
//! waits three times, which is what the write log spares. A slot that was torn by a crash has a wrong
//! checksum and does not count.

use amphi_device::{BlockPort, BytePort, BytePortExt, Lpa, Structure, WriteLog};
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;
use zerocopy::{FromBytes, IntoBytes};

use crate::base::Base;
use crate::commit::journal;
use crate::format::{FormatError, JournalSlot, Layout, PAGE, RedoUpdate};

/// One update: byte address, bytes, what they are.
pub type Update<'a> = (u64, &'a [u8], Structure);

/// Makes updates durable together; each stays within one page.
///
/// # Errors
/// [`Error::Io`]; [`Error::ReadOnly`] once the file system has failed; [`Error::NoSpace`] if the journal is
/// too small for them.
pub fn commit<D: BlockPort + WriteLog>(base: &Base<D>, updates: &[Update<'_>]) -> Result<()> {
    let mut record = Vec::new();
    for (at, bytes, _) in updates {
        let head = RedoUpdate { at: (*at).into(), len: (bytes.len() as u32).into(), reserved: 0.into() };
        record.extend_from_slice(head.as_bytes());
        record.extend_from_slice(bytes);
        record.resize(record.len().next_multiple_of(8), 0);
    }
    let pages = record.len().div_ceil(PAGE) as u32;
    if !base.journal.holds(pages) {
        return Err(Error::NoSpace);
    }
    let place = base.journal.take_pages(pages, || base.writable().is_err()).ok_or(Error::ReadOnly)?;
    let device = &*base.device;
    let all = || {
        for (index, part) in record.chunks(PAGE).enumerate() {
            let at = base.journal.page(&place).plus(index as u64).byte(0);
            device.store(at, part, None, Structure::Journal)?;
            device.flush_lines(at, part.len());
        }
        device.fence();
        device.verify_read()?;
        let (slot, line) = base.journal.updates_slot(&place, record.len() as u32);
        device.persist(slot, &line, None, Structure::Journal)?;
        store_all(device, updates)?;
        base.journal.retire(device, &place)
    };
    all().map_err(io_error)
}

fn store_all<D: BytePort>(device: &D, updates: &[Update<'_>]) -> amphi_device::Result<()> {
    for (at, bytes, tag) in updates {
        device.store(*at, bytes, None, *tag)?;
        device.flush_lines(*at, bytes.len());
    }
    device.fence();
    device.verify_read()
}

/// Stores the updates of a record that counts; the outer error is the device's. Returns how many there were.
/// Nothing is stored unless all of them make sense.
///
/// # Errors
/// The device's.
pub fn replay<D: BlockPort + WriteLog>(
    device: &D,
    layout: &Layout,
    slot: &JournalSlot,
) -> amphi_device::Result<std::result::Result<u64, FormatError>> {
    let bytes = slot.blocks.get() as usize;
    let mut record = vec![0; bytes.next_multiple_of(PAGE)];
    let first = Lpa(u64::from(layout.journal)).plus(u64::from(slot.first.get()));
    for (index, page) in record.as_chunks_mut::<PAGE>().0.iter_mut().enumerate() {
        if let Err(error) = journal::read_page(device, first.plus(index as u64), page)? {
            return Ok(Err(error));
        }
    }
    let mut rest = &record[..bytes];
    let mut updates: Vec<Update<'_>> = Vec::new();
    while !rest.is_empty() {
        let wrong = FormatError::Field("a record of updates", "place or length");
        let Ok((head, body)) = RedoUpdate::read_from_prefix(rest) else { return Ok(Err(wrong)) };
        let (at, len) = (head.at.get(), head.len.get() as usize);
        let padded = len.next_multiple_of(8);
        let in_page = (at % PAGE as u64) as usize + len <= PAGE;
        if len == 0 || !in_page || at / PAGE as u64 >= layout.pages || padded > body.len() {
            return Ok(Err(wrong));
        }
        updates.push((at, &body[..len], Structure::Other));
        rest = &body[padded..];
    }
    store_all(device, &updates)?;
    Ok(Ok(updates.len() as u64))
}
