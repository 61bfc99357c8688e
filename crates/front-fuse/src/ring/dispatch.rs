//! A request in a ring's buffers: read, done, and answered in the same buffers.
//!
//! The kernel writes the operation's fixed structure into a header, and what has no fixed length (names,
//! data) into the payload, where the answer goes afterwards. All of it is read with its bounds checked, as
//! from anybody else.

use amphi_vfs::{Entry, FileSystem, Ino, SetAttr, SetTime};
use fuser::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::format::{
    AttrAnswer, Dirent, EntryAnswer, FSYNC_FDATASYNC, FallocateIn, FsyncIn, GetXattrIn, IOCTL_UNRESTRICTED,
    InHeader, IoctlAnswer, IoctlIn, LinkIn, LseekAnswer, LseekIn, MkdirIn, MknodIn, OpenAnswer, ReadIn,
    Rename2In, RenameIn, SetAttrIn, SetXattrIn, SizeAnswer, StatfsAnswer, WriteIn, joined, opcode, valid,
};
use crate::answers::{Answer, VALID, Xattr};
use crate::caller::Caller;
use crate::operations::Operations;

/// [`VALID`] in seconds.
const VALID_S: u64 = VALID.as_secs();

/// What was asked could not be read.
const UNREADABLE: Errno = Errno::EIO;

/// Serves the request in `header`, the operation's structure `fixed` and the first `given` bytes of
/// `payload`. Returns how many bytes of `payload` are the answer.
///
/// # Errors
/// What the program sees; then the payload counts for nothing.
pub(crate) fn dispatch<F: FileSystem>(
    operations: &Operations<F>,
    header: &InHeader,
    fixed: &[u8],
    payload: &mut [u8],
    given: usize,
) -> Answer<usize> {
    let caller = Caller { uid: header.uid, gid: header.gid, thread: header.pid };
    let ino = Ino(header.nodeid);
    let input = payload.get(..given).ok_or(UNREADABLE)?;
    match header.opcode {
        opcode::LOOKUP if let Some(passed) = operations.passed(caller, ino, name(input)?) => {
            put(payload, &EntryAnswer { entry_valid: 0, ..EntryAnswer::new(&passed.attr, VALID_S) })
        }
        opcode::LOOKUP => match operations.lookup(caller, ino, name(input)?)? {
            Some(found) => put_entry(payload, &found),
            None => put(payload, &EntryAnswer::absent(VALID_S)),
        },
        opcode::GETATTR => put(payload, &AttrAnswer::new(&operations.getattr(caller, ino)?, VALID_S)),
        opcode::SETATTR => {
            let set = operations.setattr(caller, ino, &change(&read(fixed)?))?;
            let valid = operations.answered.valid_whatever_comes();
            put(payload, &AttrAnswer::new(&set, valid.as_secs()))
        }
        opcode::READLINK => put_bytes(payload, &operations.readlink(ino)?),
        opcode::SYMLINK => {
            let (name, rest) = text(input)?;
            put_entry(payload, &operations.symlink(caller, ino, name, text(rest)?.0)?)
        }
        opcode::MKNOD => {
            let asked: MknodIn = read(fixed)?;
            let name = name(input)?;
            let made = operations.mknod(caller, ino, name, asked.mode, asked.umask, asked.rdev)?;
            put_entry(payload, &made)
        }
        opcode::MKDIR => {
            let asked: MkdirIn = read(fixed)?;
            put_entry(payload, &operations.mkdir(caller, ino, name(input)?, asked.mode, asked.umask)?)
        }
        opcode::UNLINK => nothing(operations.unlink(caller, ino, name(input)?)),
        opcode::RMDIR => nothing(operations.rmdir(caller, ino, name(input)?)),
        opcode::RENAME => {
            let asked: RenameIn = read(fixed)?;
            let (from, rest) = text(input)?;
            let to = (Ino(asked.newdir), name(rest)?);
            nothing(operations.rename(caller, (ino, from), to, 0))
        }
        opcode::RENAME2 => {
            let asked: Rename2In = read(fixed)?;
            let (from, rest) = text(input)?;
            let to = (Ino(asked.newdir), name(rest)?);
            nothing(operations.rename(caller, (ino, from), to, asked.flags))
        }
        opcode::LINK => {
            let asked: LinkIn = read(fixed)?;
            let linked = operations.link(caller, Ino(asked.oldnodeid), ino, name(input)?)?;
            let valid = operations.answered.valid_whatever_comes();
            let answer = EntryAnswer::new(&linked.attr, VALID_S);
            put(payload, &EntryAnswer { attr_valid: valid.as_secs(), ..answer })
        }
        opcode::READ => {
            let asked: ReadIn = read(fixed)?;
            let into = payload.get_mut(..asked.size as usize).ok_or(Errno::EINVAL)?;
            operations.read(ino, asked.offset, into, asked.flags)
        }
        opcode::WRITE => {
            let asked: WriteIn = read(fixed)?;
            let data = input.get(..asked.size as usize).ok_or(UNREADABLE)?;
            let size = operations.write(caller, ino, asked.offset, data, asked.write_flags, asked.flags)?;
            put(payload, &SizeAnswer { size, padding: 0 })
        }
        opcode::STATFS => put(payload, &StatfsAnswer::from(&operations.statfs()?)),
        opcode::FSYNC => nothing(operations.fsync(ino, is_data_only(&read(fixed)?))),
        opcode::FSYNCDIR => nothing(operations.fsyncdir(ino, is_data_only(&read(fixed)?))),
        opcode::SETXATTR => {
            let asked: SetXattrIn = read(fixed)?;
            let (name, rest) = text(input)?;
            let value = rest.get(..asked.size as usize).ok_or(UNREADABLE)?;
            nothing(operations.setxattr(caller, ino, name, value, asked.flags))
        }
        opcode::GETXATTR => {
            let asked: GetXattrIn = read(fixed)?;
            let found = operations.getxattr(ino, name(input)?, asked.size)?;
            put_xattr(payload, &found)
        }
        opcode::LISTXATTR => {
            let asked: GetXattrIn = read(fixed)?;
            put_xattr(payload, &operations.listxattr(caller, ino, asked.size)?)
        }
        opcode::REMOVEXATTR => nothing(operations.removexattr(caller, ino, name(input)?)),
        opcode::OPENDIR => put(payload, &OpenAnswer { fh: 0, open_flags: 0, backing_id: 0 }),
        opcode::RELEASE | opcode::RELEASEDIR => Ok(0),
        opcode::READDIR => list(operations, ino, &read(fixed)?, payload),
        opcode::READDIRPLUS => list_with_attributes(operations, caller, ino, &read(fixed)?, payload),
        opcode::IOCTL => {
            let asked: IoctlIn = read(fixed)?;
            if asked.flags & IOCTL_UNRESTRICTED != 0 {
                return Err(Errno::ENOSYS);
            }
            let argument = input.get(..asked.in_size as usize).ok_or(UNREADABLE)?;
            let argument = operations.ioctl(caller, ino, asked.cmd, argument)?;
            let answer = IoctlAnswer { result: 0, flags: 0, in_iovs: 1, out_iovs: 1 };
            let begun = put(payload, &answer)?;
            Ok(begun + put_bytes(&mut payload[begun..], &argument)?)
        }
        opcode::FALLOCATE => {
            let asked: FallocateIn = read(fixed)?;
            nothing(operations.fallocate(caller, ino, asked.offset, asked.length, asked.mode))
        }
        opcode::LSEEK => {
            let asked: LseekIn = read(fixed)?;
            put(payload, &LseekAnswer { offset: operations.lseek(ino, asked.offset, asked.whence)? })
        }
        // Among them `open`, `create` and `flush`: see `operations`.
        _ => Err(Errno::ENOSYS),
    }
}

/// The structure at the start of `bytes`.
fn read<T: FromBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Answer<T> {
    T::read_from_prefix(bytes).map(|(value, _)| value).map_err(|_| UNREADABLE)
}

/// What comes before the first zero byte, and what after it.
fn text(bytes: &[u8]) -> Answer<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == 0).ok_or(UNREADABLE)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

fn name(bytes: &[u8]) -> Answer<&[u8]> {
    text(bytes).map(|(name, _)| name)
}

const fn is_data_only(asked: &FsyncIn) -> bool {
    asked.fsync_flags & FSYNC_FDATASYNC != 0
}

fn change(asked: &SetAttrIn) -> SetAttr {
    let has = |bit| asked.valid & bit != 0;
    let time = |bit, now, seconds, ns| {
        has(bit).then(|| if has(now) { SetTime::Now } else { SetTime::At(joined(seconds, ns)) })
    };
    SetAttr {
        mode: has(valid::MODE).then_some((asked.mode & 0o7777) as u16),
        uid: has(valid::UID).then_some(asked.uid),
        gid: has(valid::GID).then_some(asked.gid),
        size: has(valid::SIZE).then_some(asked.size),
        atime: time(valid::ATIME, valid::ATIME_NOW, asked.atime, asked.atimensec),
        mtime: time(valid::MTIME, valid::MTIME_NOW, asked.mtime, asked.mtimensec),
        ctime: has(valid::CTIME).then(|| joined(asked.ctime, asked.ctimensec)),
    }
}

fn nothing(done: Answer<()>) -> Answer<usize> {
    done.map(|()| 0)
}

fn put_bytes(payload: &mut [u8], bytes: &[u8]) -> Answer<usize> {
    payload.get_mut(..bytes.len()).ok_or(Errno::ERANGE)?.copy_from_slice(bytes);
    Ok(bytes.len())
}

fn put<T: IntoBytes + Immutable>(payload: &mut [u8], answer: &T) -> Answer<usize> {
    put_bytes(payload, answer.as_bytes())
}

fn put_entry(payload: &mut [u8], entry: &Entry) -> Answer<usize> {
    put(payload, &EntryAnswer::new(&entry.attr, VALID_S))
}

fn put_xattr(payload: &mut [u8], answer: &Xattr) -> Answer<usize> {
    match answer {
        Xattr::Size(size) => put(payload, &SizeAnswer { size: *size, padding: 0 }),
        Xattr::Value(value) => put_bytes(payload, value),
    }
}

/// A listing in the making.
struct List<'a> {
    room: &'a mut [u8],
    filled: usize,
}

impl<'a> List<'a> {
    fn new(payload: &'a mut [u8], asked: &ReadIn) -> Self {
        let room = payload.len().min(asked.size as usize);
        Self { room: &mut payload[..room], filled: 0 }
    }

    /// Adds an entry that begins with `before`; true if it has no room.
    fn add(&mut self, before: &[u8], dirent: &Dirent, name: &[u8]) -> bool {
        let length = before.len() + size_of::<Dirent>() + name.len().next_multiple_of(8);
        let Some(place) = self.room.get_mut(self.filled..self.filled + length) else { return true };
        let (head, rest) = place.split_at_mut(before.len());
        head.copy_from_slice(before);
        let (fixed, tail) = rest.split_at_mut(size_of::<Dirent>());
        fixed.copy_from_slice(dirent.as_bytes());
        let (text, filling) = tail.split_at_mut(name.len());
        text.copy_from_slice(name);
        filling.fill(0);
        self.filled += length;
        false
    }
}

fn list<F: FileSystem>(
    operations: &Operations<F>,
    ino: Ino,
    asked: &ReadIn,
    payload: &mut [u8],
) -> Answer<usize> {
    let mut list = List::new(payload, asked);
    operations.readdir(ino, asked.offset, &mut |entry| {
        let dirent = Dirent {
            ino: entry.ino.0,
            off: entry.next_cookie,
            namelen: entry.name.len() as u32,
            kind: u32::from(entry.file_type.mode_bits() >> 12),
        };
        list.add(&[], &dirent, entry.name)
    })?;
    Ok(list.filled)
}

fn list_with_attributes<F: FileSystem>(
    operations: &Operations<F>,
    caller: Caller,
    ino: Ino,
    asked: &ReadIn,
    payload: &mut [u8],
) -> Answer<usize> {
    let mut list = List::new(payload, asked);
    operations.readdirplus(caller, ino, asked.offset, &mut |name, next_cookie, attr| {
        let dirent = Dirent {
            ino: attr.ino.0,
            off: next_cookie,
            namelen: name.len() as u32,
            kind: u32::from(attr.file_type.mode_bits() >> 12),
        };
        list.add(EntryAnswer::new(attr, VALID_S).as_bytes(), &dirent, name)
    })?;
    Ok(list.filled)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use amphi_model::Model;
    use zerocopy::FromZeros;

    use super::*;
    use crate::answered::Answered;

    const ROOT: u64 = Ino::ROOT.0;

    fn operations() -> Operations<Model> {
        Operations::new(
            Arc::new(Model::new()),
            Arc::new(Answered::new(crate::known::Known::Own(amphi_queue::Marks::new()))),
            false,
        )
    }

    /// Has a request served whose payload holds `input`; the answer.
    fn ask(operations: &Operations<Model>, opcode: u32, fixed: &[u8], input: &[u8]) -> Answer<Vec<u8>> {
        let mut header = InHeader::new_zeroed();
        (header.opcode, header.nodeid) = (opcode, ROOT);
        let mut payload = vec![0; 4096];
        payload[..input.len()].copy_from_slice(input);
        let length = dispatch(operations, &header, fixed, &mut payload, input.len())?;
        payload.truncate(length);
        Ok(payload)
    }

    fn read_in(size: u32) -> Vec<u8> {
        let asked = ReadIn { size, ..ReadIn::new_zeroed() };
        asked.as_bytes().to_vec()
    }

    #[test]
    fn what_is_made_is_found_and_listed() {
        let operations = operations();
        let asked = MkdirIn { mode: 0o755, umask: 0 };
        let made = ask(&operations, opcode::MKDIR, asked.as_bytes(), b"long enough\0").unwrap();
        let found = ask(&operations, opcode::LOOKUP, &[], b"long enough\0").unwrap();
        let (made, found): (EntryAnswer, EntryAnswer) = (read(&made).unwrap(), read(&found).unwrap());
        assert_eq!((made.nodeid, made.attr.mode), (found.nodeid, 0o040_755));
        let absent = ask(&operations, opcode::LOOKUP, &[], b"absent\0").unwrap();
        assert_eq!(read::<EntryAnswer>(&absent).unwrap().nodeid, 0);
        let listed = ask(&operations, opcode::READDIR, &read_in(4096), &[]).unwrap();
        // Two names of one and two letters take 32 bytes each, one of eleven 40.
        assert_eq!(listed.len(), 32 + 32 + 40);
        assert!(listed.ends_with(b"long enough\0\0\0\0\0"), "{listed:?}");
        let plus = ask(&operations, opcode::READDIRPLUS, &read_in(4096), &[]).unwrap();
        assert_eq!(plus.len(), listed.len() + 3 * size_of::<EntryAnswer>());
    }

    #[test]
    fn a_listing_ends_with_its_room() {
        let operations = operations();
        let length = |room| ask(&operations, opcode::READDIR, &read_in(room), &[]).unwrap().len();
        assert_eq!([31, 32, 63, 64, 4096, u32::MAX].map(length), [0, 32, 32, 64, 64, 64]);
    }

    #[test]
    fn operations_that_nobody_knows_are_not_implemented() {
        let operations = operations();
        for unknown in [0, 2, 14, 35, 47, 51, 52, 99, u32::MAX] {
            assert_eq!(ask(&operations, unknown, &[0; 128], b"x\0"), Err(Errno::ENOSYS), "{unknown}");
        }
    }

    #[test]
    fn what_is_cut_short_is_refused() {
        let operations = operations();
        assert_eq!(ask(&operations, opcode::LOOKUP, &[], b"no end"), Err(UNREADABLE));
        assert_eq!(ask(&operations, opcode::SYMLINK, &[], b"name\0no end"), Err(UNREADABLE));
        assert_eq!(ask(&operations, opcode::RENAME2, &[0; 16], b"name\0"), Err(UNREADABLE));
        assert_eq!(ask(&operations, opcode::MKDIR, &[0; 7], b"name\0"), Err(UNREADABLE));
        let write = WriteIn { size: 3, ..WriteIn::new_zeroed() };
        assert_eq!(ask(&operations, opcode::WRITE, write.as_bytes(), b"ab"), Err(UNREADABLE));
        let value = SetXattrIn { size: 9, flags: 0 };
        assert_eq!(ask(&operations, opcode::SETXATTR, value.as_bytes(), b"user.a\0x"), Err(UNREADABLE));
        assert_eq!(ask(&operations, opcode::READ, &read_in(1 << 20), &[]), Err(Errno::EINVAL));
        let header = InHeader::new_zeroed();
        assert_eq!(dispatch(&operations, &header, &[], &mut [0; 8], 9), Err(UNREADABLE));
    }

    /// Every operation, with whatever in its buffers: nothing but answers and errors comes of it.
    #[test]
    fn nothing_that_comes_makes_it_panic() {
        let operations = operations();
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32
        };
        for round in 0..20_000_u32 {
            let mut header = InHeader::new_zeroed();
            (header.opcode, header.nodeid) = (round % 56, u64::from(next() % 4));
            let fixed: Vec<u8> = (0..128).map(|_| if next() % 3 == 0 { next() as u8 } else { 0 }).collect();
            let mut payload: Vec<u8> = (0..next() % 300).map(|_| (next() % 4) as u8).collect();
            let given = (next() as usize % 300).min(payload.len() + 1);
            let room = payload.len();
            if let Ok(length) = dispatch(&operations, &header, &fixed, &mut payload, given) {
                assert!(length <= room, "operation {}", header.opcode);
            }
        }
    }
}
