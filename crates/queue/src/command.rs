//! A submission, checked: which operation, with which arguments. Every number is looked at here, once, in the
//! copy.

use amphi_vfs::{Allocate, RenameMode, Seek, WriteMode, XattrMode};

use crate::format::{PATH_BYTES_MAX, Span, Submission, XATTR_BYTES_MAX, flag, op};
use crate::planted::{self, Bug};

/// The command is none: what in it is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the command is malformed: {0}")]
pub struct Malformed(pub &'static str);

/// A path, and the directory in which it begins.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// Handle of a directory; 0: the root.
    pub dir: u64,
    /// The path's bytes. Empty: what the handle is open on.
    pub path: Span,
    /// A symbolic link at its end is followed.
    pub follow: bool,
}

/// What a new file gets.
#[derive(Clone, Copy, Debug)]
pub struct Create {
    /// Permission bits.
    pub mode: u16,
    /// Those that it shall not have, unless the directory has a default ACL.
    pub umask: u16,
}

/// How a path is opened.
#[derive(Clone, Copy, Debug)]
pub struct OpenHow {
    /// To read.
    pub read: bool,
    /// To write.
    pub write: bool,
    /// Cut to nothing.
    pub truncate: bool,
    /// Made if it is not there.
    pub create: Option<Create>,
    /// It must not be there.
    pub exclusive: bool,
    /// It must be a directory.
    pub directory: bool,
    /// A new file without a name, in the directory that the path names.
    pub unnamed: bool,
}

/// What `access(2)` asks for: read 4, write 2, execute or search 1, or 0 for existence.
pub type Access = u16;

/// A command whose numbers are in range.
#[derive(Clone, Copy, Debug)]
#[expect(
    missing_docs,
    reason = "the operations of `format::op` say what each is, `Submission` what its fields are"
)]
pub enum Command {
    Open { at: At, how: OpenHow },
    Close { handle: u64 },
    Read { handle: u64, offset: u64, data: Span, direct: bool },
    Write { handle: u64, offset: u64, data: Span, mode: WriteMode },
    SyncFile { handle: u64, data_only: bool },
    Attributes { at: At },
    SetAttributes { at: At, change: Span },
    Unlink { at: At },
    RemoveDirectory { at: At },
    Rename { from: At, to: At, mode: RenameMode },
    MakeDirectory { at: At, create: Create },
    Symlink { at: At, target: Span },
    ReadLink { at: At, data: Span },
    Link { from: At, to: At },
    List { handle: u64, cookie: u64, data: Span },
    Allocate { handle: u64, offset: u64, length: u64, what: Allocate },
    Seek { handle: u64, offset: u64, what: Seek },
    Access { at: At, wanted: Access },
    GetXattr { at: At, name: Span, data: Span },
    SetXattr { at: At, name: Span, data: Span, mode: XattrMode },
    ListXattr { at: At, data: Span },
    RemoveXattr { at: At, name: Span },
    Space { data: Span },
    Sync,
    Copy { from: u64, offset: u64, to: u64, to_offset: u64, length: u64 },
    Pass { handle: u64 },
}

/// The submission's flags, each of which must be asked for.
struct Flags(u16);

impl Flags {
    const fn take(&mut self, bit: u16) -> bool {
        let set = self.0 & bit != 0;
        self.0 &= !bit;
        set
    }

    const fn none_left(&self) -> Result<(), Malformed> {
        if self.0 == 0 { Ok(()) } else { Err(Malformed("an unknown flag")) }
    }
}

fn create(argument: u64) -> Result<Create, Malformed> {
    if argument >> 32 != 0 {
        return Err(Malformed("a mode of more than 16 bits"));
    }
    Ok(Create { mode: argument as u16 & 0o7777, umask: (argument >> 16) as u16 & 0o777 })
}

impl Command {
    /// Checks a copy of a submission against a payload of `payload_bytes`.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(raw: &Submission, payload_bytes: u32) -> Result<Self, Malformed> {
        if raw.reserved.iter().any(|word| word.get() != 0) && !planted::has(Bug::ReservedNotChecked) {
            return Err(Malformed("a reserved field is not zero"));
        }
        for span in [raw.first, raw.second, raw.data] {
            if span.at.get().checked_add(span.len.get()).is_none_or(|end| end > payload_bytes) {
                return Err(Malformed("a span outside the payload"));
            }
        }
        let mut flags = Flags(raw.flags.get());
        let (handle, other) = (raw.handle.get(), raw.other.get());
        let (offset, length, argument) = (raw.offset.get(), raw.length.get(), raw.argument.get());
        let data = raw.data;
        let path = |span: Span| {
            let fits = span.len.get() as usize <= PATH_BYTES_MAX;
            if fits { Ok(span) } else { Err(Malformed("a path of more than 4096 bytes")) }
        };
        let name = |span: Span| {
            let fits = span.len.get() as usize <= XATTR_BYTES_MAX;
            if fits { Ok(span) } else { Err(Malformed("a name of more than 65536 bytes")) }
        };
        let first = path(raw.first)?;
        let at = |follow| At { dir: handle, path: first, follow };
        let operation = raw.operation.get();
        let follow = match operation {
            op::OPEN
            | op::ATTRIBUTES
            | op::SET_ATTRIBUTES
            | op::ACCESS
            | op::LINK
            | op::GET_XATTR
            | op::SET_XATTR
            | op::LIST_XATTR
            | op::REMOVE_XATTR => !flags.take(flag::NO_FOLLOW),
            _ => false,
        };
        let command = match operation {
            op::OPEN => {
                let makes = flags.take(flag::CREATE);
                let unnamed = flags.take(flag::UNNAMED);
                let how = OpenHow {
                    read: flags.take(flag::READ),
                    write: flags.take(flag::WRITE),
                    truncate: flags.take(flag::TRUNCATE),
                    exclusive: flags.take(flag::EXCLUSIVE),
                    directory: flags.take(flag::DIRECTORY),
                    create: if makes || unnamed { Some(create(argument)?) } else { None },
                    unnamed,
                };
                Self::Open { at: at(follow && !(makes && how.exclusive)), how }
            }
            op::CLOSE => Self::Close { handle },
            op::READ => Self::Read { handle, offset, data, direct: flags.take(flag::DIRECT) },
            op::WRITE => {
                let mode = WriteMode {
                    append: flags.take(flag::APPEND),
                    direct: flags.take(flag::DIRECT),
                    sync_data: flags.take(flag::SYNC_DATA),
                    sync_metadata: flags.take(flag::SYNC_ALL),
                };
                Self::Write { handle, offset, data, mode }
            }
            op::SYNC_FILE => Self::SyncFile { handle, data_only: flags.take(flag::DATA_ONLY) },
            op::ATTRIBUTES => Self::Attributes { at: at(follow) },
            op::SET_ATTRIBUTES => Self::SetAttributes { at: at(follow), change: data },
            op::UNLINK => Self::Unlink { at: at(false) },
            op::REMOVE_DIRECTORY => Self::RemoveDirectory { at: at(false) },
            op::RENAME => {
                let to = At { dir: other, path: path(raw.second)?, follow: false };
                let mode = match (flags.take(flag::NO_REPLACE), flags.take(flag::EXCHANGE)) {
                    (false, false) => RenameMode::Replace,
                    (true, false) => RenameMode::NoReplace,
                    (false, true) => RenameMode::Exchange,
                    (true, true) => return Err(Malformed("two kinds of rename")),
                };
                Self::Rename { from: at(false), to, mode }
            }
            op::MAKE_DIRECTORY => Self::MakeDirectory { at: at(false), create: create(argument)? },
            op::SYMLINK => Self::Symlink { at: at(false), target: path(raw.second)? },
            op::READ_LINK => Self::ReadLink { at: at(false), data },
            op::LINK => {
                let to = At { dir: other, path: path(raw.second)?, follow: false };
                Self::Link { from: at(follow), to }
            }
            op::LIST => Self::List { handle, cookie: offset, data },
            op::ALLOCATE => {
                let keep_size = flags.take(flag::KEEP_SIZE);
                let what = match (flags.take(flag::PUNCH_HOLE), flags.take(flag::ZERO)) {
                    (false, false) => Allocate::Reserve { keep_size },
                    (true, false) if keep_size => Allocate::PunchHole,
                    (false, true) => Allocate::Zero { keep_size },
                    _ => return Err(Malformed("two kinds of allocation, or a hole that changes the size")),
                };
                Self::Allocate { handle, offset, length, what }
            }
            op::SEEK => {
                let what = if flags.take(flag::HOLE) { Seek::Hole } else { Seek::Data };
                Self::Seek { handle, offset, what }
            }
            op::ACCESS if argument <= 7 => Self::Access { at: at(follow), wanted: argument as Access },
            op::ACCESS => return Err(Malformed("access of another kind")),
            op::GET_XATTR => Self::GetXattr { at: at(follow), name: name(raw.second)?, data },
            op::SET_XATTR => {
                let mode = match (flags.take(flag::CREATE_ONLY), flags.take(flag::REPLACE_ONLY)) {
                    (false, false) => XattrMode::Set,
                    (true, false) => XattrMode::Create,
                    (false, true) => XattrMode::Replace,
                    (true, true) => return Err(Malformed("an attribute that is there and is not")),
                };
                Self::SetXattr { at: at(follow), name: name(raw.second)?, data: name(data)?, mode }
            }
            op::LIST_XATTR => Self::ListXattr { at: at(follow), data },
            op::REMOVE_XATTR => Self::RemoveXattr { at: at(follow), name: name(raw.second)? },
            op::SPACE => Self::Space { data },
            op::SYNC => Self::Sync,
            op::COPY => Self::Copy { from: handle, offset, to: other, to_offset: argument, length },
            op::PASS => Self::Pass { handle },
            _ => return Err(Malformed("an unknown operation")),
        };
        flags.none_left()?;
        Ok(command)
    }
}
