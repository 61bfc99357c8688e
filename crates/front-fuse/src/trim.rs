//! The request of `fstrim`: `ioctl(FITRIM)` on a directory of the mount, which the kernel's FUSE driver
//! passes on with its argument.

use std::ops::Range;

use amphi_vfs::{Capabilities, Error, FileSystem, Result};

use crate::caller::Caller;

/// `_IOWR('X', 121, struct fstrim_range)`
pub(crate) const FITRIM: u32 = 0xc018_5879;

/// `struct fstrim_range`: start, length and shortest run, in bytes, each a u64 of this machine's byte order.
/// On return the length is what was discarded.
pub(crate) const ARGUMENT_BYTES: usize = 24;

/// Discards what the argument asks for. Answers the argument as the caller gets it back.
///
/// # Errors
/// [`Error::NotPermitted`] unless the caller may administer the system, or serves the mount; as
/// [`FileSystem::discard_free`].
pub(crate) fn trim<F: FileSystem>(fs: &F, caller: Caller, argument: &[u8]) -> Result<[u8; ARGUMENT_BYTES]> {
    let serves = caller.uid == rustix::process::geteuid().as_raw();
    if !serves && !caller.at_least().has(Capabilities::SYS_ADMIN) {
        return Err(Error::NotPermitted);
    }
    let (range, shortest) = asked_for(argument)?;
    let start = range.start;
    Ok(answer(start, fs.discard_free(range, shortest)?, shortest))
}

fn asked_for(argument: &[u8]) -> Result<(Range<u64>, u64)> {
    let argument: [u8; ARGUMENT_BYTES] =
        argument.try_into().map_err(|_| Error::Invalid("an argument that is no range"))?;
    let word = |at: usize| u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| argument[at * 8 + byte]));
    Ok((word(0)..word(0).saturating_add(word(1)), word(2)))
}

fn answer(start: u64, discarded: u64, shortest: u64) -> [u8; ARGUMENT_BYTES] {
    let mut argument = [0; ARGUMENT_BYTES];
    for (field, word) in argument.chunks_exact_mut(8).zip([start, discarded, shortest]) {
        field.copy_from_slice(&word.to_ne_bytes());
    }
    argument
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_argument_is_read_and_written() {
        let everything = answer(4096, u64::MAX, 65_536);
        assert_eq!(asked_for(&everything), Ok((4096..u64::MAX, 65_536)));
        assert!(asked_for(&everything[1..]).is_err());
    }
}
