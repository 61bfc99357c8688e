//! A device's error as an operation on files reports it: by cause, in one place for every file system.

use amphi_vfs::{Error, Failure};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_error_keeps_its_cause() {
        let media = io_error(amphi_device::Error::Media(amphi_device::Lpa(7)));
        assert_eq!(media, Error::Io(Failure::Media { page: 7 }));
        assert_eq!(media.to_string(), "device error: page 7 cannot be read: uncorrectable media error");
        let full = io_error(amphi_device::Error::NoSpace("no free flash block".to_owned()));
        assert!(matches!(full, Error::Io(Failure::Full(_))));
        assert_eq!(io_error(amphi_device::Error::PowerLost), Error::Io(Failure::PowerLost));
    }
}
