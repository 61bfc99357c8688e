//! Judging one crash state: power on, mount, compare with what is legal, check, use again, take everything
//! away; and the same with the power failing once more while it recovers.

use std::sync::Arc;

use amphi_device::Lpa;
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};

use crate::difference::difference;
use crate::oracle::Legal;
use crate::rig::Rig;
use crate::subject::Subject;
use crate::tree::Tree;
use crate::workload::pattern;

/// Steps to which a cut is armed that is never to come, so that steps are counted.
const NEVER: u64 = 1 << 40;

/// A file system after recovery.
pub struct Recovered {
    /// The device under it.
    pub rig: Arc<Rig>,
    /// The file system.
    pub fs: Box<dyn FileSystem>,
    /// A number that tells the contents of the device, bookkeeping apart.
    pub contents: u64,
    /// Firmware steps that power-on and mounting took.
    pub steps: u32,
}

/// What an empty file system has to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pages: u64,
    inodes: u64,
}

impl Room {
    /// What is free, and what the root directory has taken.
    ///
    /// # Errors
    /// In words.
    pub fn of(fs: &dyn FileSystem) -> Result<Self, String> {
        let stat = fs.statfs().map_err(|error| format!("statfs: {error}"))?;
        let root = fs.getattr(Ino::ROOT).map_err(|error| format!("the root's attributes: {error}"))?;
        Ok(Self {
            pages: stat.blocks_free + root.blocks * 512 / u64::from(stat.block_bytes),
            inodes: stat.inodes_free,
        })
    }
}

/// Mounts what a crash has left on a device that has power.
///
/// # Errors
/// It cannot be mounted, or read afterwards.
pub fn recover(subject: &Subject, device: Ssd) -> Result<Recovered, String> {
    device.cut_after_steps(NEVER, 0);
    let rig = Arc::new(Rig::plain(device));
    let fs = subject.mount(&rig).map_err(|error| format!("it cannot be mounted: {error}"))?;
    let left = rig.ssd().steps_before_cut().unwrap_or(NEVER);
    let contents = contents(subject, rig.ssd())?;
    Ok(Recovered { rig, fs, contents, steps: (NEVER - left) as u32 })
}

fn contents(subject: &Subject, device: &Ssd) -> Result<u64, String> {
    let except: &[Lpa] = subject.bookkeeping;
    device.contents(except).map_err(|error| format!("the device cannot be read: {error}"))
}

/// Mounts what a crash has left, with the power failing again after `step` firmware steps, and once more
/// without.
///
/// # Errors
/// As [`recover`].
pub fn recover_twice(subject: &Subject, device: Ssd, step: u32) -> Result<Recovered, String> {
    device.cut_after_steps(u64::from(step), u64::from(step));
    let rig = Arc::new(Rig::plain(device));
    let interrupted = subject.mount(&rig);
    if let Err(error) = &interrupted
        && rig.ssd().has_power()
    {
        return Err(format!("it cannot be mounted: {error}"));
    }
    drop(interrupted);
    let rig = Arc::into_inner(rig).ok_or("a mount that is gone still holds the device")?;
    let device = rig.into_ssd();
    device.power_cut(0);
    let device = device.restart().map_err(|error| format!("the device does not power up: {error}"))?;
    recover(subject, device)
}

/// Compares a recovered tree with what is legal.
///
/// # Errors
/// How it differs, from each candidate.
pub fn compare(fs: &dyn FileSystem, legal: &Legal) -> Result<Tree, String> {
    let found = Tree::of(fs)?;
    let mut wrong: Vec<String> = Vec::new();
    for candidate in &legal.candidates {
        match difference(&found, candidate, legal) {
            None => return Ok(found),
            Some(how) if !wrong.contains(&how) => wrong.push(how),
            Some(_) => {}
        }
    }
    Err(wrong.join("; or else: "))
}

/// Whether the check finds nothing.
///
/// # Errors
/// What it finds.
pub fn clean(subject: &Subject, device: &Arc<Rig>) -> Result<(), String> {
    let findings = subject.check(device).map_err(|error| format!("it cannot be checked: {error}"))?;
    if findings.is_empty() { Ok(()) } else { Err(format!("the check finds: {}", findings.join("; "))) }
}

/// Looks at a file system after an operation that is described to it.
pub type AfterEach<'a> = &'a mut dyn FnMut(&str) -> Result<(), String>;

/// Makes and reads new files, then takes everything away, and compares what is free with `room`, what a new
/// file system has. `after_each` is told of each operation that has been done.
///
/// # Errors
/// What does not work; what `after_each` says.
pub fn use_again(
    fs: &dyn FileSystem,
    tree: &Tree,
    room: Room,
    after_each: AfterEach<'_>,
) -> Result<(), String> {
    make_new(fs, after_each)?;
    // Deeper names first: a directory is empty when its turn comes.
    let mut paths: Vec<&String> = tree.names.keys().filter(|path| *path != ".").collect();
    paths.sort_by_key(|path| std::cmp::Reverse(path.matches('/').count()));
    for path in paths {
        let is_dir = tree.get(path).is_some_and(|node| node.file_type == FileType::Directory);
        remove(fs, path, is_dir).map_err(|error| format!("{path} cannot be removed: {error}"))?;
        after_each(&format!("{} {path}", if is_dir { "rmdir" } else { "unlink" }))?;
    }
    let left = Tree::of(fs)?;
    if left.names.len() > 1 {
        return Err(format!("after removing everything, {:?} are left", left.names.keys()));
    }
    let now = Room::of(fs)?;
    if now != room {
        return Err(format!("after removing everything, {now:?} is free, and {room:?} was when it was new"));
    }
    Ok(())
}

fn remove(fs: &dyn FileSystem, path: &str, is_dir: bool) -> amphi_vfs::Result<()> {
    let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
    crate::workload::at(fs, parent, |dir| {
        let name = Name::new(name.as_bytes())?;
        if is_dir { fs.rmdir(dir, name) } else { fs.unlink(dir, name) }.map(drop)
    })
}

const NEW_DIR: &str = "made-after-the-crash";
const NEW_FILE: &str = "file";

fn make_new(fs: &dyn FileSystem, after_each: AfterEach<'_>) -> Result<(), String> {
    const BYTES: usize = 5000;
    let unusable = |error: amphi_vfs::Error| format!("it cannot be used again: {error}");
    let cannot = |what: &str| {
        let what = what.to_owned();
        move |error: amphi_vfs::Error| format!("it cannot be used again: {what}: {error}")
    };
    let cred = &Cred::ROOT;
    let (dir_name, file_name) = Name::new(NEW_DIR.as_bytes())
        .and_then(|dir| Ok((dir, Name::new(NEW_FILE.as_bytes())?)))
        .map_err(unusable)?;
    let dir = fs.mkdir(Ino::ROOT, dir_name, 0o755, cred).map_err(cannot("mkdir"))?.attr.ino;
    after_each(&format!("mkdir {NEW_DIR}"))?;
    let file =
        fs.create(dir, file_name, FileType::Regular, 0o644, 0, cred).map_err(cannot("create"))?.attr.ino;
    after_each(&format!("create {NEW_DIR}/{NEW_FILE}"))?;
    let mut data = vec![0; BYTES];
    pattern(u64::MAX / 2, 0, &mut data);
    fs.write(file, 0, &data, WriteMode::default(), cred).map_err(cannot("write"))?;
    fs.fsync(file, false).map_err(cannot("fsync"))?;
    after_each(&format!("write and fsync {NEW_DIR}/{NEW_FILE}"))?;
    let mut back = vec![0; BYTES];
    let read = fs.read(file, 0, &mut back, false).map_err(cannot("read"))?;
    if read != BYTES || back != data {
        return Err("it cannot be used again: a new file does not read as it was written".to_owned());
    }
    fs.unlink(dir, file_name).map_err(cannot("unlink"))?;
    fs.forget(file, 1);
    after_each(&format!("unlink {NEW_DIR}/{NEW_FILE}"))?;
    fs.forget(dir, 1);
    fs.rmdir(Ino::ROOT, dir_name).map_err(cannot("rmdir"))?;
    after_each(&format!("rmdir {NEW_DIR}"))
}

/// Which is the first to leave something wrong: the recovery, inodes that are neither free nor have a name,
/// which a check takes for files that are still open; or one of the operations of [`use_again`], something
/// that the check finds. Nothing if none does, or if the file system was not as it should be before.
#[must_use]
pub fn blamed(subject: &Subject, recovered: &Recovered, legal: &Legal, room: Room) -> Option<String> {
    let tree = compare(&*recovered.fs, legal).ok()?;
    clean(subject, &recovered.rig).ok()?;
    if let Some(left) = left_by_recovery(&*recovered.fs, &tree, room) {
        return Some(left);
    }
    let mut first = None;
    // What is wrong besides is known already.
    let _known = use_again(&*recovered.fs, &tree, room, &mut |operation| {
        clean(subject, &recovered.rig).inspect_err(|what| first = Some(format!("{operation}, {what}")))
    });
    first
}

fn left_by_recovery(fs: &dyn FileSystem, tree: &Tree, room: Room) -> Option<String> {
    let free = Room::of(fs).ok()?.inodes;
    // The root is no room of a new file system's either.
    let named = tree.nodes.len() as u64 - 1;
    let left = room.inodes.checked_sub(free + named).filter(|left| *left > 0)?;
    Some(format!("the recovery, {left} of the inodes are neither free nor have a name"))
}
