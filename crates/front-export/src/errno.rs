//! The one table from device errors to errno. What a block device of the kernel would answer is answered
//! here.

use amphi_device::Error;
use fuser::Errno;

/// The errno a program sees. What an administrator must know is logged as well.
pub(crate) fn errno(error: &Error) -> Errno {
    match error {
        Error::OutOfRange { .. } | Error::Misaligned { .. } => Errno::EINVAL,
        Error::NoSpace(_) => {
            tracing::error!("{error}");
            Errno::ENOSPC
        }
        Error::Unsupported(_) => Errno::EOPNOTSUPP,
        Error::Pin(_) => Errno::EBUSY,
        Error::Media(_) | Error::PowerLost | Error::AlreadyCommitted(_) | Error::Image(_) => {
            tracing::error!("{error}");
            Errno::EIO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amphi_device::Lpa;

    #[test]
    fn a_bad_page_is_not_mistaken_for_a_bad_request() {
        assert_eq!(errno(&Error::Media(Lpa(3))).code(), Errno::EIO.code());
        let value = Error::Misaligned { what: "write", value: 1, expected: "a multiple of 4096" };
        assert_eq!(errno(&value).code(), Errno::EINVAL.code());
    }
}
