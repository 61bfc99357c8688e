//! Drawing sequences: few names, so that operations meet; sizes and offsets around the edges that matter.
//!
//! Most operations would fail if everything were drawn alike: so some names are usually directories and the
//! others usually files, and names that earlier operations made are drawn again.

use std::collections::VecDeque;

use amphi_vfs::{Allocate, FileType, RenameMode, Seek, XattrMode};

use super::numbers::Numbers;
use super::operation::{COMPONENTS, Data, Object, Operation, Path};

/// Handles that can be open at the same time.
pub(super) const HANDLES: u8 = 6;

/// Components below this are usually directories.
const DIRECTORIES: u64 = 3;

/// How many paths made by earlier operations are remembered.
const REMEMBERED: usize = 24;

/// Largest offset of a usual write: files stay small enough to compare byte by byte.
const USUAL_BYTES: u64 = 400_000;

/// Largest offset of a rare write.
const SPARSE_BYTES: u64 = 1 << 40;

pub(super) fn sequence(seed: u64, count: usize, remount_every: Option<usize>) -> Vec<Operation> {
    let mut draw = Draw(Numbers::new(seed), VecDeque::new());
    (0..count)
        .map(|_| match remount_every {
            Some(every) if draw.0.one_in(every.max(1) as u64) => Operation::Remount,
            _ => draw.operation(),
        })
        .collect()
}

/// The numbers, and the files and special files made by the last operations, unless something took them away.
struct Draw(Numbers, VecDeque<Path>);

impl Draw {
    fn operation(&mut self) -> Operation {
        match self.0.below(100) {
            0..=11 => Operation::Create {
                path: self.new_file(),
                file_type: self.file_type(),
                mode: self.mode(),
                rdev: self.0.below(1 << 20) as u32,
                user: self.user(),
            },
            12..=17 => Operation::Mkdir { path: self.new_directory(), mode: self.mode(), user: self.user() },
            18..=19 => {
                Operation::Symlink { path: self.new_file(), length: self.target_length(), user: self.user() }
            }
            20 => Operation::Readlink { path: self.file() },
            21..=24 => Operation::Link { from: self.with_data(), to: self.new_file() },
            25..=31 => Operation::Unlink { path: self.path() },
            32..=34 => Operation::Rmdir { path: self.new_directory() },
            35..=42 => Operation::Rename { from: self.path(), to: self.path(), mode: self.rename_mode() },
            43..=46 => Operation::Open {
                path: self.file(),
                handle: self.handle(),
                keep_lookup: self.0.one_in(2),
                truncate: self.0.one_in(5),
            },
            47 if self.0.one_in(2) => Operation::Tmpfile {
                directory: self.directory(),
                handle: self.handle(),
                mode: self.mode(),
                user: self.user(),
            },
            47..=48 => Operation::Close { handle: self.handle() },
            49..=64 => Operation::Write {
                object: self.with_data(),
                offset: self.offset(),
                data: self.data(),
                append: self.0.one_in(5),
                direct: self.0.one_in(8),
                user: self.user(),
            },
            65..=72 => Operation::Read {
                object: self.with_data(),
                offset: self.offset(),
                length: self.length(),
                direct: self.0.one_in(8),
            },
            73..=77 => Operation::Resize { object: self.with_data(), size: self.offset(), user: self.user() },
            78..=79 => Operation::SetMode { object: self.object(), mode: self.mode() },
            80..=81 => {
                Operation::SetOwner { object: self.object(), uid: self.some_id(), gid: self.some_id() }
            }
            82..=83 => Operation::SetTimes {
                object: self.object(),
                atime: self.some_time(),
                mtime: self.some_time(),
            },
            84..=86 => Operation::GetAttr { object: self.object() },
            87..=89 => Operation::List { path: self.directory(), step: 1 + self.0.below(9) as u8 },
            90 => Operation::Parent { path: self.directory() },
            91 => Operation::Seek {
                object: self.with_data(),
                offset: self.offset(),
                what: self.0.pick(&[Seek::Data, Seek::Hole]),
            },
            92 => Operation::Allocate {
                object: self.with_data(),
                offset: self.offset().min(USUAL_BYTES),
                length: self.length(),
                what: self.allocate(),
                user: self.user(),
            },
            93 => Operation::SetXattr {
                object: self.object(),
                key: self.key(),
                length: self.0.below(3_000) as u16,
                mode: self.0.pick(&[XattrMode::Set, XattrMode::Set, XattrMode::Create, XattrMode::Replace]),
            },
            94 if self.0.one_in(2) => Operation::SetAcl {
                object: self.object(),
                default: self.0.one_in(2),
                number: self.0.below(6) as u8,
            },
            94 => Operation::GetXattr { object: self.object(), key: self.key() },
            95 if self.0.one_in(2) => Operation::ListXattr { object: self.object() },
            95 => Operation::RemoveXattr { object: self.object(), key: self.key() },
            96..=98 => Operation::Fsync { object: self.with_data(), data_only: self.0.one_in(2) },
            _ => Operation::Sync,
        }
    }

    fn last(&mut self, directory: bool) -> u8 {
        let any = self.0.one_in(8);
        let drawn = match directory {
            _ if any => self.0.below(COMPONENTS as u64),
            true => self.0.below(DIRECTORIES),
            false => DIRECTORIES + self.0.below(COMPONENTS as u64 - DIRECTORIES),
        };
        drawn as u8
    }

    fn drawn_path(&mut self, directory: bool) -> Path {
        let depth = self.0.pick(&[0, 0, 0, 1, 1, 2]);
        let mut components: Vec<u8> = (0..depth).map(|_| self.last(true)).collect();
        components.push(self.last(directory));
        Path(components)
    }

    /// Where a file may be or come to be.
    fn file(&mut self) -> Path {
        let known = self.1.len() as u64;
        if known > 0 && !self.0.one_in(3) {
            self.1[self.0.below(known) as usize].clone()
        } else {
            self.drawn_path(false)
        }
    }

    /// Where a new file may come to be; it is remembered.
    fn new_file(&mut self) -> Path {
        let path = self.drawn_path(false);
        if self.1.len() == REMEMBERED {
            self.1.pop_front();
        }
        self.1.push_back(path.clone());
        path
    }

    /// Where a directory may be, the root now and then.
    fn directory(&mut self) -> Path {
        if self.0.one_in(4) { Path(Vec::new()) } else { self.drawn_path(true) }
    }

    fn new_directory(&mut self) -> Path {
        self.drawn_path(true)
    }

    /// Either.
    fn path(&mut self) -> Path {
        if self.0.one_in(3) { self.drawn_path(true) } else { self.file() }
    }

    /// What has data, usually.
    fn with_data(&mut self) -> Object {
        match self.0.below(8) {
            0 => Object::At(self.directory()),
            1..=2 => Object::Handle(self.handle()),
            _ => Object::At(self.file()),
        }
    }

    fn object(&mut self) -> Object {
        match self.0.below(4) {
            0 => Object::At(self.directory()),
            _ => self.with_data(),
        }
    }

    fn handle(&mut self) -> u8 {
        self.0.below(u64::from(HANDLES)) as u8
    }

    fn file_type(&mut self) -> FileType {
        match self.0.below(12) {
            0 => FileType::Fifo,
            1 => self.0.pick(&[FileType::Socket, FileType::CharDevice, FileType::BlockDevice]),
            _ => FileType::Regular,
        }
    }

    fn mode(&mut self) -> u16 {
        if self.0.one_in(3) { self.0.below(0o10000) as u16 } else { self.0.pick(&[0o644, 0o755, 0o600]) }
    }

    fn user(&mut self) -> u32 {
        self.0.pick(&[0, 0, 1_000, 1_001])
    }

    fn some_id(&mut self) -> Option<u32> {
        (!self.0.one_in(3)).then(|| self.0.pick(&[0, 5, 1_000, u32::MAX - 1]))
    }

    /// A time before 1980, which no clock shows.
    fn some_time(&mut self) -> Option<i64> {
        (!self.0.one_in(4)).then(|| self.0.below(300_000_000_000_000_000) as i64)
    }

    fn rename_mode(&mut self) -> RenameMode {
        self.0.pick(&[
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::Replace,
            RenameMode::NoReplace,
            RenameMode::Exchange,
        ])
    }

    fn allocate(&mut self) -> Allocate {
        let keep_size = self.0.one_in(2);
        match self.0.below(4) {
            0..=1 => Allocate::PunchHole,
            2 => Allocate::Zero { keep_size },
            _ => Allocate::Reserve { keep_size },
        }
    }

    fn target_length(&mut self) -> u16 {
        if self.0.one_in(4) { self.0.below(4_096) as u16 } else { 1 + self.0.below(100) as u16 }
    }

    fn key(&mut self) -> u8 {
        self.0.below(5) as u8
    }

    /// An offset or size: anywhere, or next to a line, block or other edge.
    fn offset(&mut self) -> u64 {
        let any = match self.0.below(24) {
            0 => self.0.below(SPARSE_BYTES),
            1..=5 => self.0.below(USUAL_BYTES),
            6..=11 => return self.0.below(300),
            _ => self.0.below(40_000),
        };
        let edge = self.0.pick(&[1, 1, 64, 512, 4_096, 4_096, 65_536]);
        let near = any / edge * edge;
        match self.0.below(4) {
            0 => near.saturating_sub(1),
            1 => near + 1,
            _ => near,
        }
    }

    fn length(&mut self) -> u32 {
        match self.0.below(20) {
            0 => self.0.below(200_000) as u32,
            1 => 0,
            2..=5 => self.0.pick(&[1, 63, 64, 65, 511, 512, 4_095, 4_096, 4_097, 8_192]),
            6..=12 => self.0.below(300) as u32,
            _ => self.0.below(12_000) as u32,
        }
    }

    fn data(&mut self) -> Data {
        Data { seed: self.0.next() as u8, length: self.length() }
    }
}
