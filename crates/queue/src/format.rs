//! What lies where in the shared memory: a header, and for each lane a page of counters and entries and an
//! area for payload. Little-endian, sizes asserted. `docs/format/queue.md` is the page about it.

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of the memory.
pub const MAGIC: [u8; 8] = *b"AMPHI-Q\0";
/// The version that this code speaks. A client that finds another one does not use the queue.
pub const VERSION: u32 = 1;

/// Entries of a lane, submissions and completions alike.
pub const ENTRIES: u32 = 8;
/// Bytes of a header, and of a lane's counters and entries. Payloads begin on pages.
pub const PAGE: usize = 4096;
/// Most lanes of one memory.
pub const LANES_MAX: u32 = 256;
/// Most bytes of a lane's payload area.
pub const PAYLOAD_BYTES_MAX: u32 = 16 << 20;
/// Longest path, with all of its names, in bytes.
pub const PATH_BYTES_MAX: usize = 4096;
/// What the names begin with that [`op::PASS`] gives out.
pub const PASS_PREFIX: &str = ".amphi-pass-";
/// Most bytes of an extended attribute or of a list of their names.
pub const XATTR_BYTES_MAX: usize = 64 << 10;

/// The memory's first bytes. They never change while it is shared.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// Lanes that follow, 1 to [`LANES_MAX`].
    pub lanes: U32,
    /// Bytes of each lane's payload area, a multiple of [`PAGE`].
    pub payload_bytes: U32,
    /// [`ENTRIES`].
    pub entries: U32,
}

/// Byte, in the header's page, of the word that a client counts up to wake the server.
pub const DOORBELL_AT: usize = 64;
/// Byte of the word in which a client says when it last woke the server, us of the system's monotonic clock
/// modulo 2^32.
pub const RUNG_AT: usize = 68;
/// Byte of the word that counts server threads asleep: who finds it zero need not ring.
pub const ASLEEP_AT: usize = 128;
/// Byte of the word that is not zero once the server has ended.
pub const ENDED_AT: usize = 192;

/// Byte, in a lane's first page, of the count of submissions; the client writes it.
pub const SUBMITTED_AT: usize = 0;
/// Byte of the count of completions; the server writes it.
pub const COMPLETED_AT: usize = 64;
/// Byte of the word that is not zero while the client sleeps until a completion.
pub const WAITING_AT: usize = 128;
/// Byte of the first submission.
pub const SUBMISSIONS_AT: usize = 256;
/// Byte of the first completion.
pub const COMPLETIONS_AT: usize = SUBMISSIONS_AT + ENTRIES as usize * size_of::<Submission>();

/// Bytes of a lane's payload area.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Span {
    /// First byte, from the beginning of the area.
    pub at: U32,
    /// How many.
    pub len: U32,
}

impl Span {
    /// `len` bytes from `at`.
    #[must_use]
    pub const fn new(at: u32, len: u32) -> Self {
        Self { at: U32::new(at), len: U32::new(len) }
    }
}

/// A command. Which fields count depends on the operation; the others are zero.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Submission {
    /// The count of submissions before this one: tells a new entry from one that the ring held before.
    pub sequence: U32,
    /// An operation of [`op`].
    pub operation: U16,
    /// Bits of [`flag`].
    pub flags: U16,
    /// Who asks, where one memory serves several: an entry of the server's table of credentials. 0: who
    /// attached.
    pub credential: U64,
    /// An open file, or the directory in which `first` begins; 0: the root.
    pub handle: U64,
    /// Another one: of `second`, or the file to copy to.
    pub other: U64,
    /// Bytes, or where a listing goes on.
    pub offset: U64,
    /// Bytes.
    pub length: U64,
    /// By operation: permissions (16 bits) and umask (16 bits), access wanted, where to copy to.
    pub argument: U64,
    /// A path or the name of an extended attribute.
    pub first: Span,
    /// Another path, or what a symbolic link holds.
    pub second: Span,
    /// Data to write or room for an answer.
    pub data: Span,
    /// Zero.
    pub reserved: [U64; 6],
}

/// What came of a command.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Completion {
    /// The submission's.
    pub sequence: U32,
    /// A [`code`]; 0: it was done.
    pub status: U16,
    /// Zero.
    pub flags: U16,
    /// By operation: bytes moved, a handle, an offset.
    pub value: U64,
    /// By operation: where an append began, where a listing goes on.
    pub other: U64,
    /// Bytes of the answer in the submission's `data`.
    pub len: U32,
    /// Zero.
    pub zero: U32,
    /// Of the file, where the operation tells them.
    pub attributes: Attributes,
    /// Zero.
    pub reserved: [U64; 3],
}

/// Attributes of a file.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Attributes {
    /// Inode number.
    pub ino: U64,
    /// Bytes.
    pub size: U64,
    /// Space in units of 512 bytes.
    pub blocks: U64,
    /// Last access, ns since 1970.
    pub atime: I64,
    /// Last change of contents.
    pub mtime: I64,
    /// Last change of anything.
    pub ctime: I64,
    /// Distinguishes files that had one number one after the other.
    pub generation: U32,
    /// Names.
    pub nlink: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Device number of a device.
    pub rdev: U32,
    /// Permission bits, `0o7777`.
    pub mode: U16,
    /// A [`kind`].
    pub kind: U16,
}

/// Attributes to change: the data of [`op::SET_ATTRIBUTES`].
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Change {
    /// Bits of [`change`]: which of the others count.
    pub which: U32,
    /// Permission bits.
    pub mode: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Bytes.
    pub size: U64,
    /// Access time, ns since 1970.
    pub atime: I64,
    /// Modification time.
    pub mtime: I64,
}

/// What precedes each name of a listing. Entries are padded to 8 bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ListedName {
    /// Inode number.
    pub ino: U64,
    /// Where a listing goes on behind this entry.
    pub next: U64,
    /// A [`kind`].
    pub kind: U16,
    /// Bytes of the name that follows.
    pub len: U16,
    /// Zero.
    pub zero: U32,
}

/// The answer to [`op::SPACE`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Space {
    /// Blocks.
    pub blocks: U64,
    /// Free ones.
    pub blocks_free: U64,
    /// Free ones for users without privileges.
    pub blocks_available: U64,
    /// Inodes.
    pub inodes: U64,
    /// Free ones.
    pub inodes_free: U64,
    /// Bytes of a block.
    pub block_bytes: U32,
    /// Longest name, in bytes.
    pub name_bytes_max: U32,
}

const _: () = assert!(size_of::<Header>() == 24);
const _: () = assert!(size_of::<Submission>() == 128);
const _: () = assert!(size_of::<Completion>() == 128);
const _: () = assert!(size_of::<Attributes>() == 72);
const _: () = assert!(size_of::<Change>() == 40);
const _: () = assert!(size_of::<ListedName>() == 24);
const _: () = assert!(size_of::<Space>() == 48);
const _: () = assert!(COMPLETIONS_AT + ENTRIES as usize * size_of::<Completion>() <= PAGE);
const _: () = assert!(ENTRIES.is_power_of_two(), "counts wrap at 2^32");

/// Operations.
pub mod op {
    /// Opens `first` in `handle`; flags say how. The answer is a handle and attributes.
    pub const OPEN: u16 = 1;
    /// Closes `handle`.
    pub const CLOSE: u16 = 2;
    /// Reads `data.len` bytes at `offset`.
    pub const READ: u16 = 3;
    /// Writes `data` at `offset`, or at the end.
    pub const WRITE: u16 = 4;
    /// Makes what was written durable.
    pub const SYNC_FILE: u16 = 5;
    /// Attributes of `first` in `handle`, or of `handle` if `first` is empty.
    pub const ATTRIBUTES: u16 = 6;
    /// Changes them, as `data` says.
    pub const SET_ATTRIBUTES: u16 = 7;
    /// Removes a name of what is no directory.
    pub const UNLINK: u16 = 8;
    /// Removes an empty directory.
    pub const REMOVE_DIRECTORY: u16 = 9;
    /// Moves `first` in `handle` to `second` in `other`. `value`: 1 if the kernel may know a directory
    /// by its old name.
    pub const RENAME: u16 = 10;
    /// Makes a directory.
    pub const MAKE_DIRECTORY: u16 = 11;
    /// Makes a symbolic link that holds `second`.
    pub const SYMLINK: u16 = 12;
    /// What a symbolic link holds, into `data`.
    pub const READ_LINK: u16 = 13;
    /// Gives `first` in `handle` the name `second` in `other`.
    pub const LINK: u16 = 14;
    /// Lists the directory `handle` from `offset` into `data`.
    pub const LIST: u16 = 15;
    /// Reserves, frees or zeroes `length` bytes at `offset`.
    pub const ALLOCATE: u16 = 16;
    /// Finds data or a hole at or after `offset`.
    pub const SEEK: u16 = 17;
    /// Whether `first` may be used as `argument` says (`access(2)`).
    pub const ACCESS: u16 = 18;
    /// The attribute called `second`, into `data`; its length only if there is no room at all.
    pub const GET_XATTR: u16 = 19;
    /// Sets the attribute called `second` to `data`.
    pub const SET_XATTR: u16 = 20;
    /// Names of all attributes, each with a zero byte behind it.
    pub const LIST_XATTR: u16 = 21;
    /// Removes the attribute called `second`.
    pub const REMOVE_XATTR: u16 = 22;
    /// Free space, as [`Space`](super::Space) into `data`.
    pub const SPACE: u16 = 23;
    /// Makes everything durable.
    pub const SYNC: u16 = 24;
    /// Copies `length` bytes at `offset` of `handle` to `argument` of `other`. The answer says how many,
    /// fewer at the end of a file and after 16 MiB.
    pub const COPY: u16 = 25;
    /// A name in the root directory, [`PASS_PREFIX`](super::PASS_PREFIX) and `other` and `value` as 32
    /// hexadecimal digits, under which the kernel finds the regular file `handle` once, whether or not it has
    /// names of its own.
    pub const PASS: u16 = 26;
}

/// Bits of a submission's flags, by operation.
pub mod flag {
    /// [`OPEN`](super::op::OPEN): to read.
    pub const READ: u16 = 1;
    /// To write.
    pub const WRITE: u16 = 1 << 1;
    /// Makes the file if it is not there.
    pub const CREATE: u16 = 1 << 2;
    /// It must not be there.
    pub const EXCLUSIVE: u16 = 1 << 3;
    /// Cuts it to nothing.
    pub const TRUNCATE: u16 = 1 << 4;
    /// It must be a directory.
    pub const DIRECTORY: u16 = 1 << 5;
    /// Here and elsewhere: a symbolic link at the end of the path is not followed.
    pub const NO_FOLLOW: u16 = 1 << 6;
    /// Makes a file without a name in the directory.
    pub const UNNAMED: u16 = 1 << 7;

    /// [`WRITE`](super::op::WRITE): at the end of the file.
    pub const APPEND: u16 = 1;
    /// Data durable on return.
    pub const SYNC_DATA: u16 = 1 << 1;
    /// Attributes too.
    pub const SYNC_ALL: u16 = 1 << 2;
    /// Here and for [`READ`](super::op::READ): past the page cache.
    pub const DIRECT: u16 = 1 << 3;

    /// [`SYNC_FILE`](super::op::SYNC_FILE): only what is needed to read the data.
    pub const DATA_ONLY: u16 = 1;

    /// [`RENAME`](super::op::RENAME): the target must not be there.
    pub const NO_REPLACE: u16 = 1;
    /// Swaps the two.
    pub const EXCHANGE: u16 = 1 << 1;

    /// [`ALLOCATE`](super::op::ALLOCATE): the size stays.
    pub const KEEP_SIZE: u16 = 1;
    /// Frees the range.
    pub const PUNCH_HOLE: u16 = 1 << 1;
    /// Makes the range read as zeros.
    pub const ZERO: u16 = 1 << 2;

    /// [`SEEK`](super::op::SEEK): a hole instead of data.
    pub const HOLE: u16 = 1;

    /// [`SET_XATTR`](super::op::SET_XATTR): it must not be there.
    pub const CREATE_ONLY: u16 = 1;
    /// It must be there.
    pub const REPLACE_ONLY: u16 = 1 << 1;
}

/// Bits of [`Change::which`].
pub mod change {
    /// Permission bits.
    pub const MODE: u32 = 1;
    /// Owner.
    pub const UID: u32 = 1 << 1;
    /// Group.
    pub const GID: u32 = 1 << 2;
    /// Length.
    pub const SIZE: u32 = 1 << 3;
    /// Access time: what is given.
    pub const ATIME: u32 = 1 << 4;
    /// Access time: now.
    pub const ATIME_NOW: u32 = 1 << 5;
    /// Modification time: what is given.
    pub const MTIME: u32 = 1 << 6;
    /// Modification time: now.
    pub const MTIME_NOW: u32 = 1 << 7;
    /// All of them.
    pub const ALL: u32 = 0xFF;
}

/// Kinds of files.
pub mod kind {
    /// Regular file.
    pub const REGULAR: u16 = 1;
    /// Directory.
    pub const DIRECTORY: u16 = 2;
    /// Symbolic link.
    pub const SYMLINK: u16 = 3;
    /// Named pipe.
    pub const FIFO: u16 = 4;
    /// Socket.
    pub const SOCKET: u16 = 5;
    /// Character device.
    pub const CHAR: u16 = 6;
    /// Block device.
    pub const BLOCK: u16 = 7;
}

/// What a completion's status says.
pub mod code {
    /// It was done.
    pub const DONE: u16 = 0;
    /// No such name, or the file is gone.
    pub const NOT_FOUND: u16 = 1;
    /// The inode number names no file any more.
    pub const STALE: u16 = 2;
    /// The name exists.
    pub const EXISTS: u16 = 3;
    /// A directory was needed.
    pub const NOT_DIRECTORY: u16 = 4;
    /// A directory was not allowed.
    pub const IS_DIRECTORY: u16 = 5;
    /// The directory has entries.
    pub const NOT_EMPTY: u16 = 6;
    /// A name or a path is too long.
    pub const NAME_TOO_LONG: u16 = 7;
    /// An argument is out of its range, or a name is none.
    pub const INVALID: u16 = 8;
    /// No free space or no free inodes.
    pub const NO_SPACE: u16 = 9;
    /// The file would be too large.
    pub const TOO_LARGE: u16 = 10;
    /// Too many names of one file.
    pub const TOO_MANY_LINKS: u16 = 11;
    /// The caller's permissions do not allow it.
    pub const PERMISSION_DENIED: u16 = 12;
    /// Only the owner or a privileged caller may do it.
    pub const NOT_PERMITTED: u16 = 13;
    /// The file system is read-only.
    pub const READ_ONLY: u16 = 14;
    /// The operation is not offered.
    pub const UNSUPPORTED: u16 = 15;
    /// No such attribute, or no data behind the offset.
    pub const NO_DATA: u16 = 16;
    /// The room for the answer is too small.
    pub const BUFFER_TOO_SMALL: u16 = 17;
    /// The attribute is too large.
    pub const XATTR_TOO_LARGE: u16 = 18;
    /// The file system is damaged.
    pub const CORRUPT: u16 = 19;
    /// The device failed.
    pub const IO: u16 = 20;
    /// The command itself is wrong: an unknown operation or flag, a span outside the payload, a field that is
    /// not zero.
    pub const MALFORMED: u16 = 21;
    /// The handle is not open, or not open for this.
    pub const BAD_HANDLE: u16 = 22;
    /// The path leads out of the file system: the kernel can follow it.
    pub const OUTSIDE: u16 = 23;
    /// Too many symbolic links on the path.
    pub const LINK_LOOP: u16 = 24;
    /// The client has as many files open as it may have.
    pub const TOO_MANY_OPEN: u16 = 25;
    /// The credential is not in the table, or was taken back.
    pub const BAD_CREDENTIAL: u16 = 26;
    /// Something uses what the command would change.
    pub const BUSY: u16 = 27;
    /// The last of these.
    pub const LAST: u16 = BUSY;
}
