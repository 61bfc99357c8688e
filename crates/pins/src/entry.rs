//! Entries of the device's table, made and ended for sure. A device that reports a failure may have carried
//! the command out all the same; the table says which it was.

use amphi_device::{BaBuffer, Entry, Error, PinError, Result};

/// Whether the table has this very entry.
fn is_there<D: BaBuffer>(device: &D, entry: &Entry) -> Result<bool> {
    match device.entry_info(entry.id) {
        Ok(found) => Ok(found == *entry),
        Err(Error::Pin(PinError::NoSuchEntry(_))) => Ok(false),
        // Nobody can tell, as after a loss of power.
        Err(cause) => Err(cause),
    }
}

/// `BA_PIN`. If it fails, nothing is pinned.
///
/// # Errors
/// The device's.
pub fn pin<D: BaBuffer>(device: &D, entry: &Entry) -> Result<()> {
    let Err(cause) = device.pin(entry.id, entry.offset, entry.at, entry.bytes()) else { return Ok(()) };
    flush(device, entry)?;
    Err(cause)
}

/// `BA_FLUSH`. If it fails, the entry is there as before. One that is gone has been flushed: its number may
/// be another's by now, which stays.
///
/// # Errors
/// The device's.
pub fn flush<D: BaBuffer>(device: &D, entry: &Entry) -> Result<()> {
    if !is_there(device, entry)? {
        return Ok(());
    }
    let Err(cause) = device.flush_entry(entry.id) else { return Ok(()) };
    // If it is not there, its pages are in their place.
    if is_there(device, entry)? { Err(cause) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use amphi_device::{EntryId, Lpa};
    use amphi_ssd::{Firmware, Profile, Ssd};

    use super::*;

    fn device() -> Ssd {
        let mut profile = Profile::named("2b-ssd").expect("built in");
        profile.firmware.kind = Firmware::BaBuffer;
        profile.log.region_bytes = 64 << 10;
        profile.log.txlog_bytes = 4096;
        (profile.ba_buffer.bytes, profile.ba_buffer.entries) = (64 << 10, 4);
        Ssd::in_memory(&profile, 64 << 20)
    }

    const fn entry(at: u64) -> Entry {
        Entry { id: EntryId(0), offset: 0, at: Lpa(at), pages: 1 }
    }

    #[test]
    fn a_flush_that_loses_its_power_has_failed() {
        let device = device();
        assert_eq!(pin(&device, &entry(3)), Ok(()));
        device.power_cut(1);
        assert_eq!(flush(&device, &entry(3)), Err(Error::PowerLost));
    }

    #[test]
    fn an_entry_that_is_gone_has_been_flushed() {
        let device = device();
        assert_eq!(flush(&device, &entry(3)), Ok(()));
        assert_eq!(pin(&device, &entry(4)), Ok(()));
        assert!(pin(&device, &entry(3)).is_err(), "its number is another's");
        assert_eq!(flush(&device, &entry(3)), Ok(()));
        assert_eq!(device.entries(), Ok(vec![entry(4)]), "which stays");
    }
}
