//! Entries of the device's table, made and ended for sure. A device that reports a failure may have carried
//! the command out all the same; the table says which it was.

use amphi_device::{BaBuffer, Entry, Result};

/// Whether the table has this very entry.
fn is_there<D: BaBuffer>(device: &D, entry: &Entry) -> bool {
    device.entry_info(entry.id).is_ok_and(|found| found == *entry)
}

/// `BA_PIN`. If it fails, nothing is pinned.
///
/// # Errors
/// The device's.
pub fn pin<D: BaBuffer>(device: &D, entry: &Entry) -> Result<()> {
    let Err(cause) = device.pin(entry.id, entry.offset, entry.at, entry.bytes()) else { return Ok(()) };
    if is_there(device, entry) {
        flush(device, entry)?;
    }
    Err(cause)
}

/// `BA_FLUSH`. If it fails, the entry is there as before.
///
/// # Errors
/// The device's.
pub fn flush<D: BaBuffer>(device: &D, entry: &Entry) -> Result<()> {
    match device.flush_entry(entry.id) {
        Err(cause) if is_there(device, entry) => Err(cause),
        // Its pages are in their place.
        _ => Ok(()),
    }
}
