//! What is agreed with the kernel when a mount starts: what it may remember and do by itself, and how large requests get.

use fuser::{InitFlags, KernelConfig};

/// Largest write request, in bytes.
const WRITE_BYTES_MAX: u32 = 1 << 20;

/// What we want of the kernel where it can.
///
/// Not its write-back cache (`FUSE_WRITEBACK_CACHE`): completed writes that it still holds are lost when this process is killed, and the kernel then
/// sends times it kept as requests of their own: SQLite's DELETE journal took 1.3 to 2.2 times as long in one noisy comparison.
///
/// Not its memory of listings, which comes with `FUSE_NO_OPENDIR_SUPPORT`: it puts together what several programs read, before and after a name was
/// removed, and gives that to a program that opened the directory after the removal.
const WANTED: [InitFlags; 14] = [
    InitFlags::FUSE_EXPORT_SUPPORT,
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_MAX_PAGES,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_NO_OPEN_SUPPORT,
    // Cached pages stay until a change goes through the kernel itself: there is no other way to change them.
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    // Set-id bits are cleared by the file system (`FileSystem::write`, `setattr`), so that a write needs no questions before it.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    // ACLs: the kernel decides by them, the file system keeps them, passes them on, and has them and the mode follow each other.
    InitFlags::FUSE_POSIX_ACL,
    // A directory's default ACL counts in place of the umask, so the umask is left to the file system.
    InitFlags::FUSE_DONT_MASK,
];

/// Asks for all that is wanted.
///
/// # Errors
/// A kernel without what this front end is built on.
pub(crate) fn negotiate(config: &mut KernelConfig) -> std::io::Result<()> {
    for flag in WANTED {
        if config.add_capabilities(flag).is_err() {
            tracing::debug!("the kernel's FUSE driver lacks {flag:?}");
        }
    }
    if !config.capabilities().contains(InitFlags::FUSE_NO_OPEN_SUPPORT) {
        return Err(std::io::Error::other("it is too old: Linux 5.1 or newer is needed"));
    }
    if let Err(largest) = config.set_max_write(WRITE_BYTES_MAX) {
        tracing::debug!("write requests are limited to {largest} bytes");
    }
    Ok(())
}
