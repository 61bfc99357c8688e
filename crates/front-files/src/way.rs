//! The way to a file system.

use std::io;

use amphi_queue::format::Completion;

use crate::errno::error;
use crate::fork;
use crate::image::Image;
use crate::mounted::Mounted;
use crate::request::Request;

/// One of the two ways.
pub enum Way {
    /// By the queue of a mount's daemon.
    Mounted(Mounted),
    /// By an instance in this process.
    Image(Image),
}

/// A way to a file system, of the process that opened it.
pub struct Shared {
    /// Taken only at the end.
    way: Option<Way>,
    generation: u32,
    /// Device number of the mount; 0 of an image.
    pub device: u64,
}

impl Shared {
    /// A way that this process has opened.
    pub fn new(way: Way, device: u64) -> Self {
        fork::prepare();
        Self { way: Some(way), generation: fork::generation(), device }
    }

    /// Carries out one command.
    ///
    /// # Errors
    /// What the file system says; the way is another process's (`EBADF`); the daemon has ended (`ENOTCONN`).
    pub fn run(&self, request: Request<'_>) -> io::Result<Completion> {
        if self.is_anothers() {
            return Err(error(libc::EBADF));
        }
        match &self.way {
            Some(Way::Mounted(mounted)) => mounted.run(request),
            Some(Way::Image(image)) => image.run(request),
            None => Err(error(libc::EBADF)),
        }
    }

    fn is_anothers(&self) -> bool {
        self.generation != fork::generation()
    }

    /// Makes everything durable and ends it.
    ///
    /// # Errors
    /// The device fails.
    pub fn end(mut self) -> io::Result<()> {
        self.finish()
    }

    fn finish(&mut self) -> io::Result<()> {
        let way = self.way.take();
        if self.is_anothers() {
            // It is the parent's: not even to be given back.
            std::mem::forget(way);
            return Err(error(libc::EBADF));
        }
        match way {
            Some(Way::Image(image)) => image.finish(),
            Some(Way::Mounted(_)) | None => Ok(()),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Who wants to know calls `end`. What was durable is found by the next opening all the same.
        let _ = self.finish();
    }
}
