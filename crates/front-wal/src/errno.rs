//! The one table from a log's errors to errno.

use amphi_vfs::Error;

use crate::session::Failure;

/// The errno that a C program gets.
pub fn errno(failure: &Failure) -> i32 {
    match failure {
        Failure::Argument(_) => libc::EINVAL,
        Failure::Image(amphi_ssd::ImageError::InUse { .. }) => libc::EBUSY,
        Failure::Image(_) | Failure::Mount(_) => libc::EIO,
        Failure::Log(error) => of_log(error),
        Failure::File(error) => of_file(error),
        Failure::NotAtEnd => libc::EBADFD,
    }
}

const fn of_log(error: &amphi_wal::Error) -> i32 {
    match error {
        amphi_wal::Error::Device(amphi_device::Error::NoSpace(_)) | amphi_wal::Error::Full { .. } => {
            libc::ENOSPC
        }
        amphi_wal::Error::Device(_) => libc::EIO,
        amphi_wal::Error::Damaged { .. } => libc::EUCLEAN,
        amphi_wal::Error::Place(_) | amphi_wal::Error::Pages { .. } => libc::EINVAL,
        amphi_wal::Error::ForeignEntry(_) => libc::EBUSY,
        amphi_wal::Error::TooLarge { .. } => libc::EMSGSIZE,
        amphi_wal::Error::OpenAgain => libc::EBADFD,
    }
}

const fn of_file(error: &Error) -> i32 {
    match error {
        Error::NotFound => libc::ENOENT,
        Error::NotDirectory => libc::ENOTDIR,
        Error::IsDirectory => libc::EISDIR,
        Error::NameTooLong => libc::ENAMETOOLONG,
        Error::NoSpace | Error::NoInodes => libc::ENOSPC,
        Error::TooLarge => libc::EFBIG,
        Error::PermissionDenied => libc::EACCES,
        Error::NotPermitted => libc::EPERM,
        Error::ReadOnly => libc::EROFS,
        Error::Unsupported(_) => libc::EOPNOTSUPP,
        Error::Busy(_) => libc::EBUSY,
        Error::Corrupt(_) => libc::EUCLEAN,
        Error::Io(_) => libc::EIO,
        _ => libc::EINVAL,
    }
}
