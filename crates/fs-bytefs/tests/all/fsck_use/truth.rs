//! Whether a check that says "clean" is right.
//!
//! Damage with renewed checksums can turn one sound file system into another: a mode, an owner, a time, a
//! letter of a name. Nothing on the device says that it was different before, so no check can find it. What
//! "clean" claims, and what is held against it here:
//!
//! 1. Everything the image holds can be reached and read without an error.
//! 2. What the device says twice agrees: link counts with names, parents with places, counted inodes and
//!    blocks with those in use.
//! 3. The file system behaves as the model that holds the same tree, under random operations, over a new
//!    mount, and is clean again afterwards. Blocks that two files share, or that are free and in use, would
//!    show here.
//! 4. Compared with the tree before the damage, only what is written down once differs: no file is missing,
//!    extra, of another type, elsewhere, or, with its size unchanged, of other contents.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_conformance::random;
use amphi_fs_bytefs::{ByteFs, MountOptions, fsck};
use amphi_vfs::{FileSystem, FileType, Ino, Name, RenameMode, Result};

use amphi_memory_device::Memory;

use crate::fsck_image::Image;

/// Random operations after a clean check.
const OPERATIONS: usize = 60;

/// What is known of a file twice over: its type and link count, the directories it is named in, its size and
/// contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    file_type: FileType,
    nlink: u32,
    named_in: Vec<u64>,
    size: u64,
    contents: Vec<u8>,
}

/// Every reachable inode.
pub type Tree = BTreeMap<u64, Known>;

fn options() -> MountOptions {
    MountOptions { write_back_interval_ns: 0, page_cache_pages: 64, ..MountOptions::default() }
}

/// The tree of a sound image.
pub fn tree_of(image: &Image) -> Tree {
    let fs = ByteFs::mount(Arc::new(image.device()), options()).expect("a sound image can be mounted");
    walk(&fs).expect("a sound image can be read")
}

fn walk(fs: &ByteFs<Memory>) -> Result<Tree> {
    let mut tree = Tree::new();
    let mut dirs = vec![Ino::ROOT];
    tree.insert(Ino::ROOT.0, known(fs, Ino::ROOT, Ino::ROOT)?);
    while let Some(dir) = dirs.pop() {
        let mut listed = Vec::new();
        fs.readdir(dir, 0, &mut |entry| {
            listed.push((entry.name.to_vec(), entry.ino));
            true
        })?;
        for (bytes, ino) in listed {
            let Ok(name) = Name::new(&bytes) else { continue };
            let found = fs.lookup(dir, name)?.attr;
            fs.forget(found.ino, 1);
            assert_eq!(found.ino, ino, "a name is listed as another inode than it names");
            if let Some(again) = tree.get_mut(&ino.0) {
                again.named_in.push(dir.0);
                continue;
            }
            tree.insert(ino.0, known(fs, dir, ino)?);
            if found.file_type == FileType::Directory {
                assert_eq!(fs.parent(ino)?, dir, "directory {}: parent", ino.0);
                dirs.push(ino);
            }
        }
    }
    tree.values_mut().for_each(|known| known.named_in.sort_unstable());
    Ok(tree)
}

fn known(fs: &ByteFs<Memory>, dir: Ino, ino: Ino) -> Result<Known> {
    let attr = fs.getattr(ino)?;
    for name in fs.listxattr(ino)? {
        fs.getxattr(ino, &name)?;
    }
    let mut contents = Vec::new();
    match attr.file_type {
        FileType::Regular => {
            // The sample's files are small; one that claims terabytes has holes.
            contents = vec![0; attr.size.min(3 << 20) as usize];
            fs.read(ino, 0, &mut contents, false)?;
        }
        FileType::Symlink => contents = fs.readlink(ino)?,
        _ => {}
    }
    let (file_type, nlink, size) = (attr.file_type, attr.nlink, attr.size);
    Ok(Known { file_type, nlink, named_in: vec![dir.0], size, contents })
}

/// Point 2: what the tree says of itself.
fn agrees_with_itself(fs: &ByteFs<Memory>, tree: &Tree) -> std::result::Result<(), String> {
    for (ino, known) in tree {
        let is_directory = |child: &Known| child.file_type == FileType::Directory;
        let subdirectories = tree
            .iter()
            .filter(|(child, known)| **child != *ino && is_directory(known) && known.named_in == [*ino])
            .count() as u32;
        let names = known.named_in.len() as u32;
        let links = if is_directory(known) { 2 + subdirectories } else { names };
        if known.nlink != links || (is_directory(known) && names != 1) {
            return Err(format!(
                "inode {ino} has {names} names, {} links and should have {links}",
                known.nlink
            ));
        }
    }
    let counts = fs.statfs().map_err(|error| error.to_string())?;
    let used = counts.inodes - counts.inodes_free;
    if used != tree.len() as u64 {
        return Err(format!("{used} inodes are counted as used, {} can be reached", tree.len()));
    }
    Ok(())
}

/// Point 4: what differs from the tree before the damage and is written down more than once.
fn differs(before: &Tree, after: &Tree) -> Option<String> {
    if let Some(ino) =
        before.keys().chain(after.keys()).find(|ino| !(before.contains_key(ino) && after.contains_key(ino)))
    {
        return Some(format!("inode {ino} is in one tree only"));
    }
    before.iter().find_map(|(ino, old)| {
        let new = &after[ino];
        // A letter of a target is written down once; so is a size, within the pages that are there.
        let same_contents =
            old.contents == new.contents || old.size != new.size || old.file_type == FileType::Symlink;
        let same = (old.file_type, old.nlink, &old.named_in) == (new.file_type, new.nlink, &new.named_in);
        (!same || !same_contents).then(|| {
            let brief = |known: &Known| {
                format!("{:?} {} {:?} {}", known.file_type, known.nlink, known.named_in, known.size)
            };
            format!("inode {ino} was {} and is {}", brief(old), brief(new))
        })
    })
}

/// Gives the names in the root the names that random operations use.
fn rename_for_operations(fs: &ByteFs<Memory>) -> Result<()> {
    let mut names = Vec::new();
    fs.readdir(Ino::ROOT, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })?;
    let usable: Vec<_> = names.iter().filter_map(|name| Name::new(name).ok()).collect();
    for (name, letter) in usable.into_iter().zip(b'a'..=b'f') {
        match fs.rename(Ino::ROOT, name, Ino::ROOT, Name::new(&[letter])?, RenameMode::NoReplace) {
            // The device may be full, and damage may have made this name.
            Ok(_) | Err(amphi_vfs::Error::Exists | amphi_vfs::Error::NoSpace) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Checks an image that has been damaged; if the check says it is clean, whether that is true. `None` if it
/// is not said to be clean.
pub fn clean_and_true(image: &Image, before: &Tree, seed: u64) -> Option<std::result::Result<(), String>> {
    let device = Arc::new(image.device());
    let report = fsck::check(&*device, &mut |_| ()).expect("the device does not fail");
    report.is_clean().then(|| holds(&device, before, seed))
}

fn holds(device: &Arc<Memory>, before: &Tree, seed: u64) -> std::result::Result<(), String> {
    let mount = || ByteFs::mount(Arc::clone(device), options()).map_err(|error| format!("mounting: {error}"));
    let clean = |when: &str| {
        let report = fsck::check(&**device, &mut |_| ()).expect("the device does not fail");
        if report.is_clean() { Ok(()) } else { Err(format!("{when}: {:?}", report.findings)) }
    };
    let fs = mount()?;
    let tree = walk(&fs).map_err(|error| format!("reading: {error}"))?;
    agrees_with_itself(&fs, &tree)?;
    if let Some(difference) = differs(before, &tree) {
        return Err(difference);
    }
    rename_for_operations(&fs).map_err(|error| format!("renaming: {error}"))?;
    let model = random::adopt(&fs).map_err(|error| format!("copying: {error}"))?;
    let fs = Arc::new(fs);
    let model = random::run_on(&fs, model, seed, OPERATIONS)
        .map_err(|mismatch| format!("operation {}: {}", mismatch.at, mismatch.what))?;
    let fs = Arc::into_inner(fs).ok_or("somebody else uses the file system")?;
    fs.unmount().map_err(|error| format!("unmounting: {error}"))?;
    clean("after use")?;
    model.drop_references();
    random::compare(&Arc::new(mount()?), &model).map_err(|what| format!("after a new mount: {what}"))
}
