//! Pointers that no program can have: where the kernel answers `EFAULT`, this library would end the program.
//! A pointer into memory that a program may have is believed, as libc's own functions believe it.

/// Addresses below belong to nobody: the kernel maps nothing there.
const FIRST: usize = 4096;

/// Whether `len` bytes from `at` may be a program's.
pub fn may_be<T>(at: *const T, len: usize) -> bool {
    let at = at as usize;
    at >= FIRST && at.checked_add(len).is_some_and(|end| end <= isize::MAX as usize)
}
