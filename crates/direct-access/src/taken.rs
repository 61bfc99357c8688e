//! What a change takes: pages that it was promised, the number of an inode that it makes, pages and a number
//! that are free once it counts. A change that is dropped gives back what it took.

use amphi_names::Health;
use amphi_vfs::{Error, Ino, Result};

use crate::ground::{DirectAccess, Ground};
use crate::space::{Numbers, Space};

/// What a change takes.
pub struct Taken<'a> {
    space: &'a Space,
    numbers: &'a Numbers,
    health: &'a Health,
    /// The change's own number.
    pub number: u64,
    /// Pages that are promised and not taken.
    promised: u64,
    /// First page and length of runs that are free once the change counts.
    pub freed: Vec<(u64, u64)>,
    made: Option<Ino>,
    gone: Option<Ino>,
}

impl<'a> Taken<'a> {
    /// For a change that takes at most `pages` pages, and leaves `left`.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn new<F: DirectAccess>(ground: &'a Ground<F>, pages: u64, left: u64) -> Result<Self> {
        if !ground.space.reserve(pages, left) {
            return Err(Error::NoSpace);
        }
        Ok(Self::promised(ground, pages))
    }

    /// For a change that takes at most `pages` pages, which were promised.
    pub fn promised<F: DirectAccess>(ground: &'a Ground<F>, pages: u64) -> Self {
        Self {
            space: &ground.space,
            numbers: &ground.numbers,
            health: &ground.names.health,
            number: ground.next_change(),
            promised: pages,
            freed: Vec::new(),
            made: None,
            gone: None,
        }
    }

    /// Leaves what was promised to changes that follow.
    pub const fn hand_over(&mut self) {
        self.promised = 0;
    }

    /// Has one page promised, if none is any more.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn promise_one(&mut self) -> Result<()> {
        if self.promised == 0 {
            if !self.space.reserve(1, 0) {
                return Err(Error::NoSpace);
            }
            self.promised = 1;
        }
        Ok(())
    }

    /// Takes a run of at most `most` promised pages: its first page, and how many they are.
    pub fn take(&mut self, most: u64) -> (u64, u64) {
        debug_assert!(most <= self.promised, "pages are promised before they are taken");
        let run = self.space.take(most);
        self.promised -= run.1;
        run
    }

    /// Frees a run of pages once the change counts.
    pub fn free(&mut self, page: u64, count: u64) {
        self.freed.push((page, count));
    }

    /// The change makes the inode of this number, which is nobody's.
    pub const fn make(&mut self, ino: Ino) {
        self.made = Some(ino);
    }

    /// The number of the inode that the change makes.
    pub const fn made(&self) -> Option<Ino> {
        self.made
    }

    /// The change deletes this inode.
    pub const fn delete(&mut self, ino: Ino) {
        self.gone = Some(ino);
    }

    /// Whether the change may reach the device: not behind one that has failed half way, some of which it may
    /// have seen.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn sound(&self) -> Result<()> {
        self.health.sound()
    }

    /// The change has reached the device, or it has not: then the file system turns read-only, and nobody
    /// gets what it took.
    ///
    /// # Errors
    /// What `reached` says.
    pub fn settle(&mut self, reached: Result<()>) -> Result<()> {
        self.made = None;
        reached.inspect_err(|error| self.health.fail(error))?;
        for (page, count) in std::mem::take(&mut self.freed) {
            self.space.give(page, count);
        }
        if let Some(ino) = self.gone {
            self.numbers.give(ino);
        }
        Ok(())
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.space.unreserve(self.promised);
        if let Some(ino) = self.made {
            self.numbers.give(ino);
        }
    }
}
