//! What the data journal holds is put in place, when a file system is mounted or checked (§4.7).

use amphi_device::{BlockPort, BytePortExt, Lpa, Structure, WriteLog};

use crate::commit::journal::read_page;
use crate::commit::redo;
use crate::format::{
    FormatError, JournalHeader, JournalSlot, LINE, Layout, PAGE, RECORD_UPDATES, record_descriptors,
};

/// What a replay met.
#[derive(Debug, Default)]
pub struct Replay {
    /// Pages put in place.
    pub pages: u64,
    /// Slots that could not be used, with the reason.
    pub bad: Vec<(u32, String)>,
}

/// Puts the pages of every committed record in place, as the last step of recovery. Nobody uses the file
/// system meanwhile, and the device has recovered. Interrupted at any point, it can be repeated. Slots that
/// make no sense are left as they are.
///
/// # Errors
/// The device's.
pub fn replay<D: BlockPort + WriteLog>(device: &D, layout: &Layout) -> amphi_device::Result<Replay> {
    let mut replay = Replay::default();
    if layout.journal_pages == 0 {
        return Ok(replay);
    }
    let mut slots = Box::new([0; PAGE]);
    if let Err(error) = read_page(device, Lpa(u64::from(layout.journal)), &mut slots)? {
        replay.bad.push((0, error.to_string()));
        return Ok(replay);
    }
    let mut done = Vec::new();
    for (number, line) in slots.as_chunks::<LINE>().0.iter().enumerate() {
        let outcome = match JournalSlot::decode(line, layout.journal_pages) {
            Ok(None) => continue,
            Ok(Some(slot)) if slot.kind.get() == RECORD_UPDATES => redo::replay(device, layout, &slot)?,
            Ok(Some(slot)) => put_in_place(device, layout, &slot)?,
            // Without transactions of the firmware a crash can tear a slot, which then does not count.
            Err(FormatError::Checksum(_)) if !device.contract().transactions => Ok(0),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(pages) => {
                replay.pages += pages;
                done.push(number);
            }
            Err(error) => replay.bad.push((number as u32, error.to_string())),
        }
    }
    if !done.is_empty() {
        device.flush()?;
    }
    for number in done {
        let at = Lpa(u64::from(layout.journal)).byte(number * LINE);
        device.persist(at, &[0; 8], None, Structure::Journal)?;
    }
    Ok(replay)
}

/// Writes one record's pages to their places; the outer error is the device's. Nothing is written unless the
/// record's descriptors make sense.
fn put_in_place<D: BlockPort>(
    device: &D,
    layout: &Layout,
    slot: &JournalSlot,
) -> amphi_device::Result<Result<u64, FormatError>> {
    let blocks = slot.blocks.get() as usize;
    let first = Lpa(u64::from(layout.journal)).plus(u64::from(slot.first.get()));
    let descriptors = record_descriptors(blocks);
    let mut targets = Vec::with_capacity(blocks);
    for index in 0..descriptors {
        let mut page = Box::new([0; PAGE]);
        let read = read_page(device, first.plus(index as u64), &mut page)?;
        match read.and_then(|()| JournalHeader::decode(&page, slot)) {
            Ok(found) => targets.extend(found.iter().map(|target| target.get())),
            Err(error) => return Ok(Err(error)),
        }
    }
    if targets.len() != blocks || !targets.iter().all(|target| layout.holds_data(*target, 1)) {
        return Ok(Err(FormatError::Field("a journal record", "place of a page")));
    }
    let mut page = Box::new([0; PAGE]);
    for (index, target) in targets.iter().enumerate() {
        if let Err(error) = read_page(device, first.plus((descriptors + index) as u64), &mut page)? {
            return Ok(Err(error));
        }
        device.write(Lpa(u64::from(*target)), &page[..], Structure::Journal)?;
    }
    Ok(Ok(blocks as u64))
}
