//! What is agreed with the kernel when a mount starts: what it may remember and do by itself, and how large
//! requests get.

use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{InitFlags, KernelConfig};

/// Largest request with data, in bytes.
pub(crate) const WRITE_BYTES_MAX: u32 = 1 << 20;

/// What we want of the kernel where it can.
///
/// Not its write-back cache (`FUSE_WRITEBACK_CACHE`) unless that is asked for: completed writes that it still
/// holds are lost when this process is killed, and the kernel then sends times it kept as requests of their
/// own: SQLite's DELETE journal took 1.3 to 2.2 times as long in one noisy comparison.
///
/// Not its memory of listings, which comes with `FUSE_NO_OPENDIR_SUPPORT`: it puts together what several
/// programs read, before and after a name was removed, and gives that to a program that opened the directory
/// after the removal.
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
    // Set-id bits are cleared by the file system (`FileSystem::write`, `setattr`), so that a write needs no
    // questions before it.
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    // ACLs: the kernel decides by them, the file system keeps them, passes them on, and has them and the mode
    // follow each other.
    InitFlags::FUSE_POSIX_ACL,
    // A directory's default ACL counts in place of the umask, so the umask is left to the file system.
    InitFlags::FUSE_DONT_MASK,
];

/// What is to be agreed, and whether it was.
#[derive(Debug)]
pub(crate) struct Negotiation {
    /// Whether requests shall come through rings.
    wants_rings: bool,
    /// Whether the kernel can do without them as well.
    insists: bool,
    /// Whether the kernel shall keep what is written for a while.
    write_back: bool,
    has_rings: AtomicBool,
}

impl Negotiation {
    pub(crate) const fn new(wants_rings: bool, insists: bool, write_back: bool) -> Self {
        Self { wants_rings, insists, write_back, has_rings: AtomicBool::new(false) }
    }

    /// Whether the kernel has agreed to use rings. It serves nobody before they are there.
    pub(crate) fn has_rings(&self) -> bool {
        self.has_rings.load(Ordering::Relaxed)
    }

    /// Whether rings were insisted on in vain.
    pub(crate) fn lacks_rings(&self) -> bool {
        self.insists && !self.has_rings()
    }

    /// Asks for all that is wanted.
    ///
    /// # Errors
    /// A kernel without what this front end is built on, or without the rings that are insisted on.
    pub(crate) fn negotiate(&self, config: &mut KernelConfig) -> std::io::Result<()> {
        let write_back = self.write_back.then_some(InitFlags::FUSE_WRITEBACK_CACHE);
        for flag in WANTED.into_iter().chain(write_back) {
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
        if self.wants_rings {
            // The entries of rings have no room for more; where the kernel reads ahead less, there is nothing
            // to limit.
            let _ = config.set_max_readahead(WRITE_BYTES_MAX);
            let agreed = config.add_capabilities(InitFlags::FUSE_OVER_IO_URING).is_ok();
            self.has_rings.store(agreed, Ordering::Relaxed);
            if self.lacks_rings() {
                return Err(std::io::Error::other("it offers no io_uring"));
            }
        }
        Ok(())
    }
}
