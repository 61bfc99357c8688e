//! The file system with pins, as whoever mounts it sees it: reads and writes of pinned ranges go to the
//! window, what would take their pages away is refused, all else goes below.

use std::ops::Range;

use amphi_device::BaBuffer;
use amphi_vfs::{
    AccessTimes, Allocate, Attr, Cred, DirSink, Entry, Error, Extents, FileSystem, FileType, Ino, Name,
    OpenFlags, PinnedRange, Promise, Removed, RenameMode, Renamed, Result, Seek, SetAttr, SetTime, StatFs,
    WriteMode, XattrMode,
};

use crate::pinned::Pinned;
use crate::table::{Part, Pin};

/// What is said of a call that would free or move pinned pages.
const PINNED: Error = Error::Busy("some of the range is pinned; unpin it first");

impl<F: Extents + 'static, D: BaBuffer> Pinned<F, D> {
    /// Notes what a name is.
    fn named(&self, dir: Ino, name: Name<'_>, entry: Entry) -> Entry {
        self.logs().named(dir, name.bytes(), &entry.attr);
        entry
    }

    /// Notes that a name is gone.
    fn unnamed(&self, removed: Removed) -> Result<Removed> {
        if removed.nlink == 0 {
            self.logs().unnamed(removed.ino)?;
        }
        Ok(removed)
    }
}

impl<F: Extents + 'static, D: BaBuffer> FileSystem for Pinned<F, D> {
    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize> {
        let table = self.table.read();
        if !table.has(ino) {
            let read = self.logs().read(ino, offset, into, direct);
            return read.unwrap_or_else(|| self.below().read(ino, offset, into, direct));
        }
        let size = self.below().getattr(ino)?.size;
        let len = size.saturating_sub(offset).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            match table.split(ino, at, (len - done) as u64) {
                Part::Window { at, bytes, .. } => {
                    self.load_window(at, &mut into[done..done + bytes as usize])?;
                    done += bytes as usize;
                }
                Part::Below(bytes) => {
                    // Past the page cache: what is read ahead could be pinned.
                    let part = &mut into[done..done + bytes as usize];
                    let got = self.below().read(ino, at, part, true)?;
                    done += got;
                    if got < bytes as usize {
                        break;
                    }
                }
            }
        }
        Ok(done)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        let len = data.len() as u64;
        {
            // An append ends behind every pin.
            let table = self.table.read();
            if !table.has(ino)
                && let Some(written) = self.logs().write(ino, offset, data, mode, cred)
            {
                return written;
            }
            if mode.append || len == 0 || !table.meets(ino, offset, len) {
                return self.below().write(ino, offset, data, mode, cred);
            }
        }
        // Alone, so that others see all of it or nothing.
        let table = self.table.write();
        if !table.meets(ino, offset, len) {
            // The pin has ended meanwhile, and the file may be a log by now.
            drop(table);
            return self.write(ino, offset, data, mode, cred);
        }
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            match table.split(ino, at, (data.len() - done) as u64) {
                Part::Window { at, bytes, entry } => {
                    self.store_window(at, &data[done..done + bytes as usize])?;
                    self.sync_window(entry)?;
                    done += bytes as usize;
                }
                Part::Below(bytes) => {
                    let part = &data[done..done + bytes as usize];
                    done += self.below().write(ino, at, part, mode, cred)?;
                }
            }
        }
        let now = SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() };
        self.below().setattr(ino, &now, cred)?;
        Ok(data.len())
    }

    fn setattr(&self, ino: Ino, change: &SetAttr, cred: &Cred) -> Result<Attr> {
        let table = self.table.read();
        if change.size.is_some_and(|size| table.meets(ino, size, u64::MAX)) {
            return Err(PINNED);
        }
        if change.size.is_some() || change.mode.is_some() || change.mtime.is_some() {
            return self.logs().aside(ino, || self.below().setattr(ino, change, cred));
        }
        self.logs().shown(ino, || self.below().setattr(ino, change, cred))
    }

    fn open(&self, ino: Ino, flags: OpenFlags) -> Result<()> {
        let table = self.table.read();
        if flags.truncate && table.has(ino) {
            return Err(PINNED);
        }
        if flags.truncate {
            return self.logs().aside(ino, || self.below().open(ino, flags));
        }
        self.below().open(ino, flags)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        let table = self.table.read();
        let reserves = matches!(what, Allocate::Reserve { .. });
        if !reserves && table.meets(ino, offset, length) {
            return Err(PINNED);
        }
        let allocate = || self.below().allocate(ino, offset, length, what, cred);
        if what == (Allocate::Reserve { keep_size: true }) {
            allocate()
        } else {
            self.logs().aside(ino, allocate)
        }
    }

    fn promise(&self) -> Promise {
        self.below().promise()
    }

    fn access_times(&self) -> AccessTimes {
        self.below().access_times()
    }

    fn lookup(&self, dir: Ino, name: Name<'_>) -> Result<Entry> {
        let mut entry = self.named(dir, name, self.below().lookup(dir, name)?);
        while self.logs().is_known(entry.attr.ino) {
            // Once more, while nothing of the log changes: name and attributes are of the same moment.
            let first = entry.attr.ino;
            let again = self.logs().shown(first, || Ok(self.below().lookup(dir, name)?.attr));
            self.below().forget(first, 1);
            entry = self.named(dir, name, Entry { attr: again? });
            if entry.attr.ino == first {
                break;
            }
        }
        Ok(entry)
    }

    fn reference(&self, ino: Ino) -> Result<Entry> {
        let attr = self.logs().shown(ino, || Ok(self.below().reference(ino)?.attr))?;
        Ok(Entry { attr })
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.below().parent(dir)
    }

    fn forget(&self, ino: Ino, count: u64) {
        self.below().forget(ino, count);
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.logs().shown(ino, || self.below().getattr(ino))
    }

    fn create(
        &self,
        dir: Ino,
        name: Name<'_>,
        file_type: FileType,
        mode: u16,
        rdev: u32,
        cred: &Cred,
    ) -> Result<Entry> {
        let entry = self.below().create(dir, name, file_type, mode, rdev, cred)?;
        Ok(self.named(dir, name, entry))
    }

    fn tmpfile(&self, dir: Ino, mode: u16, cred: &Cred) -> Result<Entry> {
        self.below().tmpfile(dir, mode, cred)
    }

    fn mkdir(&self, dir: Ino, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry> {
        let entry = self.below().mkdir(dir, name, mode, cred)?;
        Ok(self.named(dir, name, entry))
    }

    fn symlink(&self, dir: Ino, name: Name<'_>, target: &[u8], cred: &Cred) -> Result<Entry> {
        self.below().symlink(dir, name, target, cred)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.below().readlink(ino)
    }

    fn link(&self, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry> {
        let attr = self.logs().shown(ino, || Ok(self.below().link(ino, dir, name)?.attr))?;
        Ok(self.named(dir, name, Entry { attr }))
    }

    fn unlink(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        let removed = self.below().unlink(dir, name)?;
        self.unnamed(removed)
    }

    fn unlink_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        let removed = self.below().unlink_as(dir, name, cred)?;
        self.unnamed(removed)
    }

    fn rmdir(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        let removed = self.below().rmdir(dir, name)?;
        self.unnamed(removed)
    }

    fn rmdir_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        let removed = self.below().rmdir_as(dir, name, cred)?;
        self.unnamed(removed)
    }

    fn rename(
        &self,
        from: Ino,
        name: Name<'_>,
        to: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<Renamed> {
        let renamed = self.below().rename(from, name, to, new_name, mode)?;
        if let Some(target) = renamed.target
            && mode != RenameMode::Exchange
        {
            self.unnamed(target)?;
        }
        // Somebody may have removed it meanwhile.
        if let Ok(attr) = self.below().getattr(renamed.moved) {
            self.logs().named(to, new_name.bytes(), &attr);
        }
        Ok(renamed)
    }

    fn release(&self, ino: Ino) {
        self.below().release(ino);
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        let table = self.table.read();
        let synced = self.logs().fsync(ino, data_only, !table.has(ino));
        synced.unwrap_or_else(|| self.below().fsync(ino, data_only))
    }

    fn sync(&self) -> Result<()> {
        self.logs().sync()?;
        self.below().sync()
    }

    fn readdir(&self, dir: Ino, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        self.below().readdir(dir, cookie, sink)
    }

    fn statfs(&self) -> Result<StatFs> {
        self.below().statfs()
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.logs().aside(ino, || self.below().seek(ino, offset, what))
    }

    fn discard_free(&self, range: Range<u64>, shortest: u64) -> Result<u64> {
        self.below().discard_free(range, shortest)
    }

    fn pin_range(&self, ino: Ino, offset: u64, length: u64, cred: &Cred) -> Result<()> {
        self.pin(ino, offset, length, cred).map(drop)
    }

    fn unpin_range(&self, ino: Ino, offset: u64, length: u64, cred: &Cred) -> Result<()> {
        let within: Vec<Pin> = {
            let table = self.table.read();
            table.pins.iter().filter(|pin| pin.ino == ino && pin.meets(offset, length)).cloned().collect()
        };
        if within.is_empty() {
            return Err(Error::NotFound);
        }
        let end = offset.saturating_add(length);
        if within.iter().any(|pin| pin.offset < offset || pin.offset + pin.length > end) {
            return Err(Error::Invalid("a pin ends as a whole: name all of its range"));
        }
        within.iter().try_for_each(|pin| self.unpin(pin.id, cred))
    }

    fn pinned_ranges(&self) -> Result<Vec<PinnedRange>> {
        let seen =
            |pin: Pin| PinnedRange { ino: pin.ino, offset: pin.offset, length: pin.length, uid: pin.uid };
        Ok(self.pins().into_iter().map(seen).collect())
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.below().getxattr(ino, name)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.logs().aside(ino, || self.below().setxattr(ino, name, value, mode))
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.below().listxattr(ino)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.below().removexattr(ino, name)
    }
}
