//! Random use of a mounted file system through `vfs`, by whoever has only names and inode numbers. Outcomes
//! do not matter here, only that there is one.

use amphi_vfs::{
    Cred, Error, FileSystem, FileType, Ino, Name, OpenFlags, RenameMode, Seek, SetAttr, WriteMode, XattrMode,
};

use super::corrupt::Random;

/// A listed name: where it stands, what it is, and its inode.
struct Listed {
    dir: Ino,
    name: Vec<u8>,
    ino: Ino,
    file_type: FileType,
}

/// Most entries one walk lists; a damaged tree may have cycles.
const LISTED_MAX: usize = 2000;

/// Lists the tree, as deep as it goes.
fn walk(fs: &impl FileSystem) -> Vec<Listed> {
    let mut found = vec![];
    let mut dirs = vec![Ino::ROOT];
    while let Some(dir) = dirs.pop() {
        if found.len() > LISTED_MAX || dirs.len() > LISTED_MAX {
            break;
        }
        let mut add = |entry: amphi_vfs::DirEntry<'_>| {
            if entry.name != b"." && entry.name != b".." {
                if entry.file_type == FileType::Directory {
                    dirs.push(entry.ino);
                }
                let (name, ino, file_type) = (entry.name.to_vec(), entry.ino, entry.file_type);
                found.push(Listed { dir, name, ino, file_type });
            }
            found.len() <= LISTED_MAX
        };
        let listed = fs.readdir(dir, 0, &mut add);
        drop(listed);
    }
    found
}

/// Walks the tree, then does `operations` random things in it. Failures are counted; the number that
/// succeeded is returned.
pub fn use_it(fs: &impl FileSystem, random: &mut Random, operations: usize) -> usize {
    let mut done = 0;
    let mut listed = walk(fs);
    let root =
        || Listed { dir: Ino::ROOT, name: b"x".into(), ino: Ino::ROOT, file_type: FileType::Directory };
    for _ in 0..operations {
        if listed.is_empty() {
            listed.push(root());
        }
        let (a, b) = (random.below(listed.len()), random.below(listed.len()));
        let outcome = operation(fs, random, &listed[a], &listed[b]);
        done += usize::from(outcome.is_ok());
        if random.below(16) == 0 {
            listed = walk(fs);
        }
    }
    done
}

fn operation(fs: &impl FileSystem, random: &mut Random, a: &Listed, b: &Listed) -> Result<(), Error> {
    let cred = Cred::ROOT;
    let fresh = format!("new-{}", random.below(40)).into_bytes();
    let (name, other) = (Name::new(&a.name)?, Name::new(&b.name)?);
    let fresh = Name::new(&fresh)?;
    let dir = if a.file_type == FileType::Directory && random.below(4) > 0 { a.ino } else { a.dir };
    match random.below(20) {
        0 => fs.create(dir, fresh, FileType::Regular, 0o644, 0, &cred).map(|e| fs.forget(e.attr.ino, 1)),
        1 => fs.mkdir(dir, fresh, 0o755, &cred).map(|e| fs.forget(e.attr.ino, 1)),
        2 => {
            let target = vec![b't'; 1 + random.below(120)];
            fs.symlink(dir, fresh, &target, &cred).map(|e| fs.forget(e.attr.ino, 1))
        }
        3 => fs.create(dir, fresh, FileType::Fifo, 0o644, 0, &cred).map(|e| fs.forget(e.attr.ino, 1)),
        4 => fs.unlink(a.dir, name).map(drop),
        5 => fs.rmdir(a.dir, name).map(drop),
        6 => fs.rename(a.dir, name, dir, fresh, RenameMode::NoReplace).map(drop),
        7 => fs.rename(a.dir, name, b.dir, other, RenameMode::Replace).map(drop),
        8 => fs.rename(a.dir, name, b.dir, other, RenameMode::Exchange).map(drop),
        9 => fs.link(a.ino, b.dir, fresh).map(|e| fs.forget(e.attr.ino, 1)),
        10 => fs.lookup(a.dir, name).map(|e| fs.forget(e.attr.ino, 1)),
        11 => {
            let mut into = vec![0; 1 + random.below(20_000)];
            let size = fs.getattr(a.ino)?.size.max(1);
            fs.read(a.ino, random.next() % size, &mut into, false).map(drop)
        }
        12 | 13 => {
            let data = vec![random.next() as u8; 1 + random.below(30_000)];
            let mode = WriteMode { append: random.below(4) == 0, ..WriteMode::default() };
            let size = fs.getattr(a.ino)?.size;
            fs.write(a.ino, random.next() % (size.min(1 << 20) + 5000), &data, mode, &cred).map(drop)
        }
        14 => {
            let size = fs.getattr(a.ino)?.size.min(1 << 20);
            let change = SetAttr { size: Some(random.next() % (2 * size + 9000)), ..SetAttr::default() };
            fs.setattr(a.ino, &change, &cred).map(drop)
        }
        15 => fs.fsync(a.ino, random.below(2) == 0),
        16 => fs.readlink(a.ino).map(drop),
        17 => fs.setxattr(a.ino, b"user.x", &vec![1; random.below(3000)], XattrMode::Set),
        18 => fs.listxattr(a.ino).and_then(|_| fs.removexattr(a.ino, b"user.colour")),
        _ => {
            fs.open(a.ino, OpenFlags::default())?;
            let removed = fs.unlink(a.dir, name);
            let sought = fs.seek(a.ino, 0, Seek::Hole);
            fs.release(a.ino);
            removed.and(sought.map(drop))
        }
    }
}
