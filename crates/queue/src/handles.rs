//! A client's open files: AugeFS's array of open files (§III). A handle is a place in the array and how often
//! the place was used before, so a handle that was closed names nothing.

use std::sync::Arc;

use amphi_rt::sync::RwLock;
use amphi_vfs::{FileSystem, FileType, Ino, OpenFlags, Result};

use crate::planted::{self, Bug};
use crate::status::Refusal;

/// An open file. It stays open while a command uses it, even if another closes the handle meanwhile.
#[derive(Debug)]
pub struct OpenFile<F: FileSystem> {
    fs: Arc<F>,
    /// What is open.
    pub ino: Ino,
    /// Its type.
    pub file_type: FileType,
    /// Opened to read.
    pub read: bool,
    /// Opened to write.
    pub write: bool,
    /// Made by the command that opened it.
    pub made: bool,
}

impl<F: FileSystem> OpenFile<F> {
    /// Takes an open reference.
    ///
    /// # Errors
    /// As [`FileSystem::open`].
    pub fn new(fs: &Arc<F>, ino: Ino, file_type: FileType, read: bool, write: bool) -> Result<Self> {
        fs.open(ino, OpenFlags { write, ..OpenFlags::default() })?;
        Ok(Self { fs: Arc::clone(fs), ino, file_type, read, write, made: false })
    }

    /// The same, made by the command that opens it.
    pub fn made_here(mut self) -> Self {
        self.made = true;
        self
    }
}

impl<F: FileSystem> Drop for OpenFile<F> {
    fn drop(&mut self) {
        self.fs.release(self.ino);
    }
}

#[derive(Debug)]
struct Slot<F: FileSystem> {
    /// How many files the place has held.
    uses: u32,
    open: Option<Arc<OpenFile<F>>>,
}

#[derive(Debug)]
struct Table<F: FileSystem> {
    slots: Vec<Slot<F>>,
    free: Vec<u32>,
}

/// The table.
#[derive(Debug)]
pub struct Handles<F: FileSystem> {
    table: RwLock<Table<F>>,
    most: usize,
}

impl<F: FileSystem> Handles<F> {
    /// A table for `most` files at the most.
    pub const fn new(most: usize) -> Self {
        Self { table: RwLock::new(Table { slots: Vec::new(), free: Vec::new() }), most }
    }

    /// Keeps an open file. The handle is not zero.
    ///
    /// # Errors
    /// [`Refusal::TooManyOpen`].
    pub fn insert(&self, file: OpenFile<F>) -> std::result::Result<u64, Refusal> {
        let mut table = self.table.write();
        let index = match table.free.pop() {
            Some(index) => index,
            None if table.slots.len() >= self.most => return Err(Refusal::TooManyOpen),
            None => {
                table.slots.push(Slot { uses: 0, open: None });
                table.slots.len() as u32 - 1
            }
        };
        let slot = &mut table.slots[index as usize];
        slot.uses = slot.uses.wrapping_add(1);
        slot.open = Some(Arc::new(file));
        Ok(u64::from(slot.uses) << 32 | u64::from(index + 1))
    }

    /// The open file.
    ///
    /// # Errors
    /// [`Refusal::BadHandle`].
    pub fn get(&self, handle: u64) -> std::result::Result<Arc<OpenFile<F>>, Refusal> {
        let table = self.table.read();
        let is_its = |slot: &&Slot<F>| slot.uses == uses(handle) || planted::has(Bug::HandleUsedAgain);
        let slot = index(handle).and_then(|index| table.slots.get(index)).filter(is_its);
        slot.and_then(|slot| slot.open.clone()).ok_or(Refusal::BadHandle)
    }

    /// Closes all.
    pub fn clear(&self) {
        let mut table = self.table.write();
        let Table { slots, free } = &mut *table;
        let open: Vec<_> = slots.iter_mut().map(|slot| slot.open.take()).collect();
        free.clear();
        free.extend(0..slots.len() as u32);
        drop(table);
        // Whatever the file system does with files that are open no more, it does without the table.
        drop(open);
    }

    /// Forgets the handle and returns the file, which closes when nobody uses it.
    ///
    /// # Errors
    /// [`Refusal::BadHandle`].
    pub fn remove(&self, handle: u64) -> std::result::Result<Arc<OpenFile<F>>, Refusal> {
        let mut table = self.table.write();
        let index = index(handle).filter(|index| *index < table.slots.len()).ok_or(Refusal::BadHandle)?;
        let slot = &mut table.slots[index];
        if slot.uses != uses(handle) {
            return Err(Refusal::BadHandle);
        }
        let file = slot.open.take().ok_or(Refusal::BadHandle)?;
        table.free.push(index as u32);
        Ok(file)
    }
}

const fn uses(handle: u64) -> u32 {
    (handle >> 32) as u32
}

fn index(handle: u64) -> Option<usize> {
    (handle as u32).checked_sub(1).map(|index| index as usize)
}
