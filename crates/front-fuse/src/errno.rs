//! The one table from typed errors to errno.

use amphi_vfs::{Error, Failure};
use fuser::Errno;

/// The kernel's structure-needs-cleaning, which its own file systems answer when their metadata cannot be
/// right.
const EUCLEAN: i32 = 117;

/// The errno a program sees. What an administrator must know is logged as well.
pub(crate) fn errno(error: &Error) -> Errno {
    match error {
        Error::NotFound => Errno::ENOENT,
        Error::Stale(_) => Errno::ESTALE,
        Error::Exists => Errno::EEXIST,
        Error::NotDirectory => Errno::ENOTDIR,
        Error::IsDirectory => Errno::EISDIR,
        Error::NotEmpty => Errno::ENOTEMPTY,
        Error::NameTooLong => Errno::ENAMETOOLONG,
        Error::InvalidName | Error::Invalid(_) | Error::IntoItself => Errno::EINVAL,
        Error::NoSpace | Error::NoInodes => Errno::ENOSPC,
        Error::TooLarge => Errno::EFBIG,
        Error::TooManyLinks => Errno::EMLINK,
        Error::PermissionDenied => Errno::EACCES,
        Error::NotPermitted => Errno::EPERM,
        Error::ReadOnly => Errno::EROFS,
        Error::Unsupported(_) => Errno::EOPNOTSUPP,
        Error::Busy(_) => Errno::EBUSY,
        Error::NoData => Errno::ENODATA,
        Error::BufferTooSmall => Errno::ERANGE,
        Error::XattrTooLarge => Errno::E2BIG,
        Error::Corrupt(_) => {
            tracing::error!("{error}");
            Errno::from_i32(EUCLEAN)
        }
        Error::Io(Failure::Full(_)) => {
            tracing::error!("{error}");
            Errno::ENOSPC
        }
        Error::Io(_) => {
            tracing::error!("{error}");
            Errno::EIO
        }
    }
}

/// As [`errno`], for operations the kernel stops asking for, and does in its own way, once it hears that they
/// are not there.
pub(crate) fn errno_or_absent(error: &Error) -> Errno {
    match error {
        Error::Unsupported(_) => Errno::ENOSYS,
        other => errno(other),
    }
}

/// As [`errno_or_absent`], for `lseek`, where no data means that the offset is beyond it.
pub(crate) fn errno_of_seek(error: &Error) -> Errno {
    match error {
        Error::NoData => Errno::ENXIO,
        other => errno_or_absent(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_not_mistaken_for_a_device_error() {
        assert_eq!(errno(&Error::corrupt("inode", 3, "lost")).code(), EUCLEAN);
        assert_eq!(errno(&Error::Io(Failure::PowerLost)).code(), Errno::EIO.code());
        let full = Error::Io(Failure::Full("the host's disk".to_owned()));
        assert_eq!(errno(&full).code(), Errno::ENOSPC.code(), "as the kernel has it of thin devices");
    }

    #[test]
    fn absent_operations_are_told_from_refused_ones() {
        assert_eq!(errno(&Error::Unsupported("x")).code(), Errno::EOPNOTSUPP.code());
        assert_eq!(errno_or_absent(&Error::Unsupported("x")).code(), Errno::ENOSYS.code());
        assert_eq!(errno_of_seek(&Error::NoData).code(), Errno::ENXIO.code());
        assert_eq!(errno(&Error::NoData).code(), Errno::ENODATA.code());
    }
}
