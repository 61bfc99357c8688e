//! What refers to inodes, and what is read of them: references by lookup, number and open, attributes,
//! targets of links, listings.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_vfs::{Attr, Cred, DirEntry, DirSink, Entry, Error, FileType, Ino, OpenFlags, Result, SetAttr};

use crate::atime::{note_read, read_moves_atime};
use crate::inode::{Inode, Part};
use crate::load::inode;
use crate::namespace::lock_dir;
use crate::remove::reap;
use crate::setattr::setattr;
use crate::store::{FIRST_COOKIE, Store};

/// See [`amphi_vfs::FileSystem::reference`].
///
/// # Errors
/// As there.
pub fn reference<S: Store>(store: &S, ino: Ino) -> Result<Entry> {
    let inode = inode(store, ino)?;
    let state = inode.state.read();
    if state.gone || state.nlink == 0 && !inode.is_open() {
        return Err(Error::Stale(ino));
    }
    // Under the inode's lock, so that nobody deletes it before the reference counts.
    inode.lookups.fetch_add(1, Ordering::AcqRel);
    Ok(Entry { attr: inode.attr(&state) })
}

/// Lowers a count of references, and deletes the inode if it was the last and there is no name. Whether it
/// was the last of its kind.
fn drop_references<S: Store>(
    store: &S,
    inode: &Arc<Inode<S::Part>>,
    count: u64,
    references: &AtomicU64,
) -> bool {
    let lower = |n: u64| Some(n.saturating_sub(count));
    let before = references.fetch_update(Ordering::AcqRel, Ordering::Acquire, lower);
    let was_last = before.is_ok_and(|before| before > 0 && before <= count);
    // The common case, an inode with names, is decided without waiting for its lock.
    if was_last && !inode.referenced() && inode.state.try_read().is_none_or(|state| state.nlink == 0) {
        reap(store, inode);
    }
    was_last
}

/// See [`amphi_vfs::FileSystem::forget`].
pub fn forget<S: Store>(store: &S, ino: Ino, count: u64) {
    let cache = &store.names().cache;
    if let Some(inode) = cache.get(ino).or_else(|| cache.forget_away(ino, count)) {
        drop_references(store, &inode, count, &inode.lookups);
    }
}

/// See [`amphi_vfs::FileSystem::release`].
pub fn release<S: Store>(store: &S, ino: Ino) {
    // What is open is in memory.
    if let Some(inode) = store.names().cache.get(ino)
        && drop_references(store, &inode, 1, &inode.opens)
    {
        store.closed(inode);
    }
}

/// See [`amphi_vfs::FileSystem::open`].
///
/// # Errors
/// As there.
pub fn open<S: Store>(store: &S, ino: Ino, flags: OpenFlags) -> Result<()> {
    if flags.truncate {
        let change = SetAttr { size: Some(0), ..SetAttr::default() };
        setattr(store, ino, &change, &Cred::ROOT)?;
    }
    let inode = inode(store, ino)?;
    let state = inode.state.read();
    if state.gone {
        return Err(Error::Stale(ino));
    }
    if flags.write {
        store.names().health.writable()?;
    }
    if inode.opens.fetch_add(1, Ordering::AcqRel) == 0 {
        store.opened(&inode);
    }
    Ok(())
}

/// See [`amphi_vfs::FileSystem::parent`].
///
/// # Errors
/// As there.
pub fn parent<S: Store>(store: &S, dir: Ino) -> Result<Ino> {
    let inode = inode(store, dir)?;
    if inode.is_dir() { Ok(inode.parent()) } else { Err(Error::NotDirectory) }
}

/// See [`amphi_vfs::FileSystem::getattr`].
///
/// # Errors
/// As there.
pub fn getattr<S: Store>(store: &S, ino: Ino) -> Result<Attr> {
    let inode = inode(store, ino)?;
    let state = inode.state.read();
    if state.gone { Err(Error::Stale(ino)) } else { Ok(inode.attr(&state)) }
}

/// See [`amphi_vfs::FileSystem::readlink`].
///
/// # Errors
/// As there.
pub fn readlink<S: Store>(store: &S, ino: Ino) -> Result<Vec<u8>> {
    let inode = inode(store, ino)?;
    if inode.file_type != FileType::Symlink {
        return Err(Error::Invalid("not a symbolic link"));
    }
    let (target, moves) = {
        let state = inode.state.read();
        (S::target(&state).to_vec(), read_moves_atime(store, &state))
    };
    if moves {
        note_read(store, &inode);
    }
    Ok(target)
}

/// See [`amphi_vfs::FileSystem::readdir`].
///
/// # Errors
/// As there.
pub fn readdir<S: Store>(store: &S, dir: Ino, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
    let inode: Arc<Inode<S::Part>> = inode(store, dir)?;
    if !inode.is_dir() {
        return Err(Error::NotDirectory);
    }
    loop {
        {
            let state = inode.state.read();
            if state.nlink == 0 {
                return Err(Error::NotFound);
            }
            if S::is_open(&state) {
                if list_dots(&inode, cookie, sink) {
                    store.list(&inode, &state, cookie.max(FIRST_COOKIE), sink)?;
                }
                let moves = read_moves_atime(store, &state);
                drop(state);
                if moves {
                    note_read(store, &inode);
                }
                return Ok(());
            }
        }
        drop(lock_dir(store, &inode)?);
    }
}

/// Lists `.` and `..` from `cookie` on. Returns whether `sink` took them.
fn list_dots<P: Part>(dir: &Inode<P>, cookie: u64, sink: &mut DirSink<'_>) -> bool {
    let dots: [(&[u8], Ino); 2] = [(b".", dir.ino), (b"..", dir.parent())];
    dots.into_iter().zip(1..).skip(cookie.min(FIRST_COOKIE) as usize).all(|((name, ino), next_cookie)| {
        sink(DirEntry { ino, file_type: FileType::Directory, name, next_cookie })
    })
}
