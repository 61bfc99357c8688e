//! A client as a file system: each method is one call through the gate.
#![allow(unsafe_code)]

use std::ops::Range;

use amphi_vfs::{
    AccessTimes, Allocate, Attr, Cred, DirEntry, DirSink, Entry, Error, FileSystem, FileType, Ino, Name,
    OpenFlags, Promise, Removed, RenameMode, Renamed, Result, Seek, SetAttr, StatFs, WriteMode, XattrMode,
};

use crate::call::{Bytes, Call, Room};
use crate::client::Client;
use crate::operation::{Operation, pack, unpack};

/// Bytes of a first try for what has no fixed size.
const FIRST_ROOM: usize = 4096;
/// Bytes of a listing's part.
const LIST_ROOM: usize = 32 << 10;
/// Bytes before a name in a listing: inode, cookie, type, length.
const ENTRY_BYTES: usize = 32;

fn numbers<const N: usize>(given: [u64; N]) -> [u64; 8] {
    let mut all = [0; 8];
    all[..N].copy_from_slice(&given);
    all
}

fn new<const N: usize>(operation: Operation, given: [u64; N]) -> Call {
    Call::new(operation as u32, numbers(given))
}

fn removed(answer: &[u64]) -> Removed {
    Removed { ino: Ino(answer[0]), nlink: answer[1] as u32 }
}

/// Bits of a write's mode.
fn write_bits(mode: WriteMode) -> u64 {
    u64::from(mode.append)
        | u64::from(mode.direct) << 1
        | u64::from(mode.sync_data) << 2
        | u64::from(mode.sync_metadata) << 3
}

impl Client {
    /// Makes a call whose buffers are borrowed for as long as it takes.
    fn done(&self, mut call: Call) -> Result<[u64; 16]> {
        // SAFETY: each method below fills the buffers from slices that it has, and rooms from slices that it
        // may change.
        unsafe { self.call(&mut call) };
        call.result()?;
        Ok(call.answer)
    }

    fn entry(&self, call: Call) -> Result<Entry> {
        Ok(Entry { attr: unpack::attr(&self.done(call)?) })
    }

    /// Makes a call whose answer has any size, and again with more room until it fits.
    pub(crate) fn sized(&self, make: impl Fn() -> Call) -> Result<Vec<u8>> {
        let mut room = vec![0; FIRST_ROOM];
        loop {
            let mut call = make();
            call.room = Room::of(&mut room);
            // SAFETY: as in `done`.
            unsafe { self.call(&mut call) };
            call.result()?;
            let fits = call.room.used <= room.len();
            room.resize(call.room.used, 0);
            if fits {
                return Ok(room);
            }
        }
    }

    /// Crosses the gate and comes back: what a call costs that does nothing.
    ///
    /// # Errors
    /// The range has died.
    pub fn cross(&self) -> Result<()> {
        self.done(new(Operation::Nothing, [])).map(|_| ())
    }

    /// Waits until it is the turn of `mine` (below `all`), then makes it the next one's. The first turn is
    /// 0's.
    ///
    /// # Errors
    /// The range has died.
    pub fn take_turn(&self, mine: u64, all: u64) -> Result<()> {
        self.done(new(Operation::Turn, [mine, all])).map(|_| ())
    }
}

impl FileSystem for Client {
    fn promise(&self) -> Promise {
        let bits = self.done(new(Operation::Promise, [])).map_or(0, |answer| answer[0]);
        Promise {
            metadata_durable_on_return: bits & 1 != 0,
            atomic_writes: bits & 2 != 0,
            data_durable_on_return: bits & 4 != 0,
        }
    }

    fn access_times(&self) -> AccessTimes {
        match self.done(new(Operation::AccessTimes, [])).map_or(0, |answer| answer[0]) {
            0 => AccessTimes::Relative,
            1 => AccessTimes::Strict,
            _ => AccessTimes::Never,
        }
    }

    fn lookup(&self, dir: Ino, name: Name<'_>) -> Result<Entry> {
        self.entry(Call { first: Bytes::of(name.bytes()), ..new(Operation::Lookup, [dir.0]) })
    }

    fn reference(&self, ino: Ino) -> Result<Entry> {
        self.entry(new(Operation::Reference, [ino.0]))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        Ok(Ino(self.done(new(Operation::Parent, [dir.0]))?[0]))
    }

    fn forget(&self, ino: Ino, count: u64) {
        // A range that died has forgotten everything.
        let _ = self.done(new(Operation::Forget, [ino.0, count]));
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(unpack::attr(&self.done(new(Operation::Getattr, [ino.0]))?))
    }

    fn setattr(&self, ino: Ino, change: &SetAttr, cred: &Cred) -> Result<Attr> {
        let [given, mode, owner, size, atime, mtime, ctime] = pack::set_attr(change);
        let call = new(Operation::Setattr, [ino.0, given, mode, owner, size, atime, mtime, ctime]);
        Ok(unpack::attr(&self.done(call.by(cred))?))
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
        let given = [dir.0, pack::file_type(file_type), u64::from(mode), u64::from(rdev)];
        self.entry(Call { first: Bytes::of(name.bytes()), ..new(Operation::Create, given) }.by(cred))
    }

    fn tmpfile(&self, dir: Ino, mode: u16, cred: &Cred) -> Result<Entry> {
        self.entry(new(Operation::Tmpfile, [dir.0, u64::from(mode)]).by(cred))
    }

    fn mkdir(&self, dir: Ino, name: Name<'_>, mode: u16, cred: &Cred) -> Result<Entry> {
        let call = new(Operation::Mkdir, [dir.0, u64::from(mode)]);
        self.entry(Call { first: Bytes::of(name.bytes()), ..call }.by(cred))
    }

    fn symlink(&self, dir: Ino, name: Name<'_>, target: &[u8], cred: &Cred) -> Result<Entry> {
        let call = new(Operation::Symlink, [dir.0]);
        self.entry(Call { first: Bytes::of(name.bytes()), second: Bytes::of(target), ..call }.by(cred))
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.sized(|| new(Operation::Readlink, [ino.0]))
    }

    fn link(&self, ino: Ino, dir: Ino, name: Name<'_>) -> Result<Entry> {
        self.entry(Call { first: Bytes::of(name.bytes()), ..new(Operation::Link, [ino.0, dir.0]) })
    }

    fn unlink(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        let call = Call { first: Bytes::of(name.bytes()), ..new(Operation::Unlink, [dir.0]) };
        Ok(removed(&self.done(call)?))
    }

    fn unlink_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        let call = Call { first: Bytes::of(name.bytes()), ..new(Operation::UnlinkAs, [dir.0]) };
        Ok(removed(&self.done(call.by(cred))?))
    }

    fn rmdir(&self, dir: Ino, name: Name<'_>) -> Result<Removed> {
        let call = Call { first: Bytes::of(name.bytes()), ..new(Operation::Rmdir, [dir.0]) };
        Ok(removed(&self.done(call)?))
    }

    fn rmdir_as(&self, dir: Ino, name: Name<'_>, cred: &Cred) -> Result<Removed> {
        let call = Call { first: Bytes::of(name.bytes()), ..new(Operation::RmdirAs, [dir.0]) };
        Ok(removed(&self.done(call.by(cred))?))
    }

    fn rename(
        &self,
        from: Ino,
        name: Name<'_>,
        to: Ino,
        new_name: Name<'_>,
        mode: RenameMode,
    ) -> Result<Renamed> {
        let mode = match mode {
            RenameMode::Replace => 0,
            RenameMode::NoReplace => 1,
            RenameMode::Exchange => 2,
        };
        let call = new(Operation::Rename, [from.0, to.0, mode]);
        let (first, second) = (Bytes::of(name.bytes()), Bytes::of(new_name.bytes()));
        let answer = self.done(Call { first, second, ..call })?;
        Ok(Renamed { moved: Ino(answer[0]), target: (answer[1] != 0).then(|| removed(&answer[2..])) })
    }

    fn open(&self, ino: Ino, flags: OpenFlags) -> Result<()> {
        let bits = u64::from(flags.write) | u64::from(flags.direct) << 1 | u64::from(flags.truncate) << 2;
        self.done(new(Operation::Open, [ino.0, bits])).map(|_| ())
    }

    fn release(&self, ino: Ino) {
        // As for `forget`.
        let _ = self.done(new(Operation::Release, [ino.0]));
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize> {
        let mut call = new(Operation::Read, [ino.0, offset, u64::from(direct)]);
        call.room = Room::of(into);
        Ok(self.done(call)?[0] as usize)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        let call = new(Operation::Write, [ino.0, offset, write_bits(mode)]);
        Ok(self.done(Call { first: Bytes::of(data), ..call }.by(cred))?[0] as usize)
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        self.done(new(Operation::Fsync, [ino.0, u64::from(data_only)])).map(|_| ())
    }

    fn sync(&self) -> Result<()> {
        self.done(new(Operation::Sync, [])).map(|_| ())
    }

    fn readdir(&self, dir: Ino, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        let mut room = vec![0; LIST_ROOM];
        let mut cookie = cookie;
        loop {
            let mut call = new(Operation::Readdir, [dir.0, cookie]);
            call.room = Room::of(&mut room);
            // SAFETY: as in `done`.
            unsafe { self.call(&mut call) };
            call.result()?;
            let mut left = room.get(..call.room.used).unwrap_or(&[]);
            while let Some((head, rest)) = left.split_at_checked(ENTRY_BYTES) {
                let word = |index: usize| {
                    let bytes = head.chunks_exact(8).nth(index).and_then(|word| word.try_into().ok());
                    bytes.map_or(0, u64::from_le_bytes)
                };
                let (name, after) = rest.split_at_checked(word(3) as usize).ok_or(Error::BufferTooSmall)?;
                cookie = word(1);
                let file_type = unpack::file_type(word(2));
                if !sink(DirEntry { ino: Ino(word(0)), file_type, name, next_cookie: cookie }) {
                    return Ok(());
                }
                left = after;
            }
            if call.answer[0] != 0 {
                return Ok(());
            }
        }
    }

    fn statfs(&self) -> Result<StatFs> {
        let answer = self.done(new(Operation::Statfs, []))?;
        Ok(StatFs {
            block_bytes: answer[0] as u32,
            blocks: answer[1],
            blocks_free: answer[2],
            blocks_available: answer[3],
            inodes: answer[4],
            inodes_free: answer[5],
            name_bytes_max: answer[6] as u32,
        })
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        Ok(self.done(new(Operation::Seek, [ino.0, offset, u64::from(what == Seek::Hole)]))?[0])
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        let (kind, keep) = match what {
            Allocate::Reserve { keep_size } => (0, keep_size),
            Allocate::PunchHole => (1, true),
            Allocate::Zero { keep_size } => (2, keep_size),
        };
        let call = new(Operation::Allocate, [ino.0, offset, length, kind, u64::from(keep)]);
        self.done(call.by(cred)).map(|_| ())
    }

    fn discard_free(&self, range: Range<u64>, shortest: u64) -> Result<u64> {
        Ok(self.done(new(Operation::DiscardFree, [range.start, range.end, shortest]))?[0])
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.sized(|| Call { first: Bytes::of(name), ..new(Operation::Getxattr, [ino.0]) })
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let mode = match mode {
            XattrMode::Set => 0,
            XattrMode::Create => 1,
            XattrMode::Replace => 2,
        };
        let call = new(Operation::Setxattr, [ino.0, mode]);
        self.done(Call { first: Bytes::of(name), second: Bytes::of(value), ..call }).map(|_| ())
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let names = self.sized(|| new(Operation::Listxattr, [ino.0]))?;
        Ok(names.split_inclusive(|byte| *byte == 0).map(|name| name[..name.len() - 1].to_vec()).collect())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.done(Call { first: Bytes::of(name), ..new(Operation::Removexattr, [ino.0]) }).map(|_| ())
    }
}
