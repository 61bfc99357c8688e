//! What must be there before an operation makes sense: parents, files with contents, attributes to remove,
//! free names. As ACE does, it is made just before the operation.

use amphi_trace::{How, Operation, Place, XATTR, at};
use amphi_vfs::{FileSystem, FileType, Ino, Name};

/// Whether a path that does not exist yet is to be a directory.
fn is_directory_name(path: &str) -> bool {
    matches!(path, "." | "A" | "B" | "A/C")
}

struct Maker<'a> {
    fs: &'a dyn FileSystem,
    made: Vec<Operation>,
}

impl Maker<'_> {
    fn file_type(&self, path: &str) -> Option<FileType> {
        at(self.fs, path, |ino| self.fs.getattr(ino)).ok().map(|attr| attr.file_type)
    }

    fn will_exist(&self, path: &str) -> bool {
        let made = self.made.iter().rev().find_map(|operation| match operation {
            Operation::Create(made) | Operation::Mkdir(made) if made == path => Some(true),
            Operation::Unlink(gone) | Operation::Rmdir(gone) if gone == path => Some(false),
            _ => None,
        });
        made.unwrap_or_else(|| self.file_type(path).is_some())
    }

    fn parents(&mut self, path: &str) {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.exists(parent);
        }
    }

    fn exists(&mut self, path: &str) {
        if self.will_exist(path) {
            return;
        }
        self.parents(path);
        let make = if is_directory_name(path) { Operation::Mkdir } else { Operation::Create };
        self.made.push(make(path.to_owned()));
    }

    fn has_contents(&mut self, path: &str) {
        self.exists(path);
        let empty = at(self.fs, path, |ino| self.fs.getattr(ino)).map_or(true, |attr| attr.size == 0);
        if empty {
            self.made.push(Operation::Write(path.to_owned(), How::Buffered, Place::At(0), 32_768));
        }
    }

    fn names_in(&self, path: &str) -> Vec<String> {
        let mut names = Vec::new();
        let listed = at(self.fs, path, |ino: Ino| {
            self.fs.readdir(ino, 0, &mut |entry| {
                if entry.name != b"." && entry.name != b".." && Name::new(entry.name).is_ok() {
                    names.push(String::from_utf8_lossy(entry.name).into_owned());
                }
                true
            })
        });
        if listed.is_err() {
            names.clear();
        }
        names
    }

    fn empty(&mut self, path: &str) {
        for name in self.names_in(path) {
            self.absent(&format!("{path}/{name}"));
        }
    }

    fn absent(&mut self, path: &str) {
        match self.file_type(path) {
            None => {}
            Some(FileType::Directory) => {
                self.empty(path);
                self.made.push(Operation::Rmdir(path.to_owned()));
            }
            Some(_) => self.made.push(Operation::Unlink(path.to_owned())),
        }
    }
}

/// What has to be done on `fs` before `operation`.
#[must_use]
pub fn prerequisites(operation: &Operation, fs: &dyn FileSystem) -> Vec<Operation> {
    let mut maker = Maker { fs, made: Vec::new() };
    match operation {
        Operation::Create(path)
        | Operation::Tmpfile(path)
        | Operation::Mknod(path)
        | Operation::Mkdir(path)
        | Operation::Symlink(_, path) => {
            maker.parents(path);
            maker.absent(path);
        }
        Operation::Link(from, to) => {
            maker.exists(from);
            maker.parents(to);
            maker.absent(to);
        }
        Operation::Rename(from, to) => {
            maker.exists(from);
            maker.parents(to);
        }
        Operation::Exchange(from, to) => {
            maker.exists(from);
            maker.exists(to);
        }
        Operation::Rmdir(path) => {
            maker.exists(path);
            maker.empty(path);
        }
        Operation::Write(path, _, Place::End, _) => maker.exists(path),
        Operation::Write(path, ..) | Operation::Allocate(path, ..) | Operation::Truncate(path, _) => {
            maker.has_contents(path);
        }
        Operation::RemoveXattr(path) => {
            maker.exists(path);
            if at(fs, path, |ino| fs.getxattr(ino, XATTR)).is_err() {
                maker.made.push(Operation::SetXattr(path.clone(), 40));
            }
        }
        Operation::Unlink(path)
        | Operation::UnlinkOpen(path)
        | Operation::SetXattr(path, _)
        | Operation::Chmod(path, _)
        | Operation::Chown(path, ..)
        | Operation::Utimens(path, _)
        | Operation::Fsync(path, _) => maker.exists(path),
        Operation::Sync | Operation::Discard => {}
    }
    maker.made
}
