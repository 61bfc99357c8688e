//! Listing a directory: names alone, or names with the attributes that a program usually asks for next.

use amphi_vfs::{Attr, DirEntry, Entry, FileSystem, FileType, Ino, Name, Result};

use crate::answered::Answered;

/// Names fetched at a time: about what fits one 4 KB answer with attributes.
const BATCH: usize = 24;

/// Takes an entry; true if it had no room for it.
pub(crate) type AddName<'a> = dyn FnMut(&DirEntry<'_>) -> bool + 'a;

/// Takes a name with the cookie of what comes after it and the attributes of what it names; true if it had no
/// room for it.
pub(crate) type AddAttr<'a> = dyn FnMut(&[u8], u64, &Attr) -> bool + 'a;

/// A name remembered between listing the directory and looking the name up.
struct Listed {
    ino: Ino,
    file_type: FileType,
    name: Vec<u8>,
    next_cookie: u64,
}

/// Names, types and inode numbers.
pub(crate) fn plain<F: FileSystem>(fs: &F, dir: Ino, cookie: u64, add: &mut AddName<'_>) -> Result<()> {
    fs.readdir(dir, cookie, &mut |entry: DirEntry<'_>| !add(&entry))
}

/// Looks `name` up for `thread`, with attributes read after that was noted.
pub(crate) fn lookup<F: FileSystem>(
    fs: &F,
    answered: &Answered,
    dir: Ino,
    name: Name<'_>,
    thread: u32,
) -> Result<Entry> {
    answered.known.name(dir, name.bytes());
    let ino = fs.lookup(dir, name)?.attr.ino;
    referenced(fs, answered, ino, thread)
}

/// What the kernel is told of an inode to which it just got a reference, with attributes read after it was
/// noted who gets them.
pub(crate) fn referenced<F: FileSystem>(fs: &F, answered: &Answered, ino: Ino, thread: u32) -> Result<Entry> {
    answered.give(ino, thread);
    let attr = fs.getattr(ino).inspect_err(|_| not_given(fs, answered, ino))?;
    Ok(Entry { attr })
}

/// Takes back a reference that the kernel was to get.
fn not_given<F: FileSystem>(fs: &F, answered: &Answered, ino: Ino) {
    answered.given.take_back(ino, 1);
    fs.forget(ino, 1);
}

/// Names with attributes; each one but `.` and `..` takes a reference, as a lookup does.
pub(crate) fn with_attributes<F: FileSystem>(
    fs: &F,
    answered: &Answered,
    dir: Ino,
    mut cookie: u64,
    thread: u32,
    add: &mut AddAttr<'_>,
) -> Result<()> {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        batch.clear();
        // The directory is locked while it is listed, so the lookups wait until it has been.
        fs.readdir(dir, cookie, &mut |entry: DirEntry<'_>| {
            if batch.len() == BATCH {
                return false;
            }
            batch.push(Listed {
                ino: entry.ino,
                file_type: entry.file_type,
                name: entry.name.to_vec(),
                next_cookie: entry.next_cookie,
            });
            true
        })?;
        let Some(last) = batch.last() else { return Ok(()) };
        cookie = last.next_cookie;
        for listed in &batch {
            if !add_with_attributes(fs, answered, dir, listed, thread, add) {
                return Ok(());
            }
        }
    }
}

/// Adds one entry; false if the answer is full.
fn add_with_attributes<F: FileSystem>(
    fs: &F,
    answered: &Answered,
    dir: Ino,
    listed: &Listed,
    thread: u32,
    add: &mut AddAttr<'_>,
) -> bool {
    // `.` and `..` are the only names that `Name` refuses. The kernel takes no reference on them.
    let (attr, referenced) = match Name::new(&listed.name) {
        Ok(name) => match lookup(fs, answered, dir, name, thread) {
            Ok(entry) => (entry.attr, true),
            // Removed since it was listed: a listing need not show it.
            Err(_) => return true,
        },
        Err(_) if listed.file_type == FileType::Directory => match fs.getattr(listed.ino) {
            Ok(attr) => (attr, false),
            Err(_) => return true,
        },
        Err(_) => return true,
    };
    let full = add(&listed.name, listed.next_cookie, &attr);
    if full && referenced {
        not_given(fs, answered, attr.ino);
    }
    !full
}
