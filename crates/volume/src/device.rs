//! What every file system asks of its device in the same way: an error as an operation on files reports it,
//! and many reads that are on their way together.

use amphi_device::{BlockPort, Completion, Lpa, PAGE_BYTES, Structure};
use amphi_vfs::{Error, Failure, Result};

/// A device's error as the operation's that met it.
#[must_use]
pub fn io_error(error: amphi_device::Error) -> Error {
    use amphi_device::Error as Device;
    Error::Io(match error {
        Device::Media(page) => Failure::Media { page: page.0 },
        Device::PowerLost => Failure::PowerLost,
        Device::NoSpace(what) => Failure::Full(what),
        Device::Image(what) => Failure::Image(what),
        refused @ (Device::OutOfRange { .. }
        | Device::Misaligned { .. }
        | Device::Unsupported(_)
        | Device::AlreadyCommitted(_)
        | Device::Pin(_)) => Failure::Refused(refused.to_string()),
    })
}

/// Reads runs of so many pages of file data, all on their way together; what is nowhere reads as zeros.
/// Returns the bytes of each.
///
/// # Errors
/// [`Error::Io`].
pub fn read_runs<D: BlockPort>(
    device: &D,
    runs: impl Iterator<Item = (Option<Lpa>, usize)> + Clone,
) -> Result<Vec<Box<[u8]>>> {
    let mut read: Vec<_> =
        runs.clone().map(|(_, pages)| vec![0; pages * PAGE_BYTES].into_boxed_slice()).collect();
    let mut tickets = Vec::with_capacity(read.len());
    for ((place, _), into) in runs.zip(&mut read) {
        if let Some(at) = place {
            tickets.push(device.submit_read(at, into, Structure::Data).map_err(io_error)?);
        }
    }
    tickets.into_iter().try_for_each(Completion::wait).map_err(io_error)?;
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_error_keeps_its_cause() {
        let media = io_error(amphi_device::Error::Media(Lpa(7)));
        assert_eq!(media, Error::Io(Failure::Media { page: 7 }));
        assert_eq!(media.to_string(), "device error: page 7 cannot be read: uncorrectable media error");
        let full = io_error(amphi_device::Error::NoSpace("no free flash block".to_owned()));
        assert!(matches!(full, Error::Io(Failure::Full(_))));
        assert_eq!(io_error(amphi_device::Error::PowerLost), Error::Io(Failure::PowerLost));
    }
}
