//! The files of a workload while it runs: which exist, which are open, what their paths are; and making those
//! that exist before it begins.

use std::fmt::Write;

use amphi_rt::random::Generator;
use amphi_rt::sync::Mutex;
use amphi_rt::task;

use super::personality::{Fileset, Kind, Overwritten};
use super::size::Size;
use crate::files::{Files, OpenMode, Result};

/// The filesets of a workload, made.
pub struct Prepared {
    pub(super) sets: Vec<Set>,
    /// What the run writes: noise, of which parts are taken at random places.
    pub(super) contents: Vec<u8>,
}

/// One fileset.
pub(super) struct Set {
    pub(super) root: String,
    pub(super) kind: Kind,
    pub(super) size: Size,
    fills_percent: Option<u64>,
    overwritten: Option<Overwritten>,
    /// Levels of directories below the root.
    depth: u32,
    width: u64,
    /// Into how many parts the directories are divided, one for each thread if there are as many; 1: all are
    /// everybody's.
    parts: u32,
    members: Mutex<Members>,
}

/// Which members there are. A member is created by whoever took it from `absent`, and until that is done in
/// neither list. There are lists for each part of the set.
struct Members {
    present: Vec<Vec<u32>>,
    absent: Vec<Vec<u32>>,
    /// Where in its list each is.
    position: Vec<u32>,
    /// How many have each open or are asking for it.
    users: Vec<u32>,
    /// Whether each has its second name.
    renamed: Vec<bool>,
}

/// What a file that fills space is a multiple of, bytes.
const PAGE: u64 = 4096;
/// How often a random member is drawn before all are said to be in use.
const ATTEMPTS: usize = 16;

impl Set {
    /// `threads` threads use it.
    pub(super) fn new(set: &Fileset, threads: usize, chance: &mut Generator) -> Self {
        let files = set.files as u32;
        let mut depth = 0;
        let mut directories = u64::from(files).div_ceil(set.dir_width);
        while directories > 1 {
            depth += 1;
            directories = directories.div_ceil(set.dir_width);
        }
        // Those that exist are spread over the whole tree.
        let mut order: Vec<u32> = (0..files).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, chance.below(last as u64 + 1) as usize);
        }
        let existing = (u64::from(files) * set.existing_percent / 100) as usize;
        let absent = order.split_off(existing);
        let mut position = vec![0; files as usize];
        // Where there are fewer directories than threads, several threads have one.
        let directories = u64::from(files).div_ceil(set.dir_width).max(1);
        let parts = if set.private { (threads as u64).clamp(1, directories) as u32 } else { 1 };
        let mut divide = |list: Vec<u32>| {
            let mut divided = vec![Vec::new(); parts as usize];
            for member in list {
                let part: &mut Vec<u32> = &mut divided[part_of(member, set.dir_width, parts)];
                position[member as usize] = part.len() as u32;
                part.push(member);
            }
            divided
        };
        let (present, absent) = (divide(order), divide(absent));
        let members = Members {
            present,
            absent,
            position,
            users: vec![0; files as usize],
            renamed: vec![false; files as usize],
        };
        Self {
            root: set.name.clone(),
            kind: set.kind,
            size: set.size,
            fills_percent: set.fills_percent,
            overwritten: set.overwritten,
            depth,
            width: set.dir_width,
            parts,
            members: Mutex::new(members),
        }
    }

    /// The path of the directory that holds members `leaf * width` and following.
    fn directory(&self, leaf: u64, levels: u32, into: &mut String) {
        into.clear();
        into.push_str(&self.root);
        for level in (self.depth - levels..self.depth).rev() {
            let number = leaf / self.width.pow(level) % self.width;
            // Writing to a string does not fail.
            let _ = write!(into, "/{number:04}");
        }
    }

    /// A member's path.
    pub(super) fn path(&self, member: u32, into: &mut String) {
        let renamed = self.members.lock().renamed[member as usize];
        self.path_named(member, renamed, into);
    }

    pub(super) fn path_named(&self, member: u32, renamed: bool, into: &mut String) {
        self.directory(u64::from(member) / self.width, self.depth, into);
        let second = if renamed { "r" } else { "" };
        let _ = write!(into, "/{member:08}{second}");
    }

    /// The path of a member's directory.
    pub(super) fn parent(&self, member: u32, into: &mut String) {
        self.directory(u64::from(member) / self.width, self.depth, into);
    }

    /// How many members there are, present or not.
    pub(super) fn len(&self) -> u32 {
        self.members.lock().users.len() as u32
    }

    /// The part of a thread.
    const fn part(&self, thread: usize) -> usize {
        thread % self.parts as usize
    }

    /// The part of a member.
    fn part_of(&self, member: u32) -> usize {
        part_of(member, self.width, self.parts)
    }

    /// A member that is not there, to be created by a thread. None if all are.
    pub(super) fn take_absent(&self, thread: usize, chance: &mut Generator) -> Option<u32> {
        let (part, mut members) = (self.part(thread), self.members.lock());
        let count = members.absent[part].len() as u64;
        (count > 0).then(|| members.take(false, part, chance.below(count) as usize))
    }

    /// A member that is there and nobody uses, to be removed or moved: none of the others will find it. `Err`
    /// if all seem in use, `None` if there is none.
    pub(super) fn take_present(
        &self,
        thread: usize,
        chance: &mut Generator,
    ) -> std::result::Result<Option<u32>, InUse> {
        let (part, mut members) = (self.part(thread), self.members.lock());
        let count = members.present[part].len() as u64;
        if count == 0 {
            return Ok(None);
        }
        for _ in 0..ATTEMPTS {
            let at = chance.below(count) as usize;
            if members.users[members.present[part][at] as usize] == 0 {
                return Ok(Some(members.take(true, part, at)));
            }
        }
        Err(InUse)
    }

    /// A member that is there, to be used. None if there is none.
    pub(super) fn use_present(&self, thread: usize, chance: &mut Generator) -> Option<(u32, bool)> {
        let (part, mut members) = (self.part(thread), self.members.lock());
        let count = members.present[part].len() as u64;
        (count > 0).then(|| {
            let member = members.present[part][chance.below(count) as usize];
            members.users[member as usize] += 1;
            (member, members.renamed[member as usize])
        })
    }

    /// Uses a certain member, if it is there; whether it has its second name.
    pub(super) fn use_this(&self, member: u32) -> Option<bool> {
        let mut members = self.members.lock();
        let at = members.position[member as usize] as usize;
        (members.present[self.part_of(member)].get(at) == Some(&member)).then(|| {
            members.users[member as usize] += 1;
            members.renamed[member as usize]
        })
    }

    /// Somebody stops using a member.
    pub(super) fn stop_using(&self, member: u32) {
        self.members.lock().users[member as usize] -= 1;
    }

    /// A member taken is there now, used by `users`, under its second name or not.
    pub(super) fn put_present(&self, member: u32, users: u32, renamed: bool) {
        let mut members = self.members.lock();
        members.users[member as usize] = users;
        members.renamed[member as usize] = renamed;
        members.put(true, self.part_of(member), member);
    }

    /// A member taken is not there now.
    pub(super) fn put_absent(&self, member: u32) {
        let mut members = self.members.lock();
        members.renamed[member as usize] = false;
        members.put(false, self.part_of(member), member);
    }

    /// Whether a member has its second name.
    pub(super) fn is_renamed(&self, member: u32) -> bool {
        self.members.lock().renamed[member as usize]
    }

    /// Makes the directories, and with `tasks` tasks the members that exist beforehand.
    pub(super) fn make(&self, files: &dyn Files, tasks: usize, seed: u64, contents: &[u8]) -> Result<()> {
        files.mkdir(&self.root)?;
        let mut path = String::new();
        let leaves = u64::from(self.len()).div_ceil(self.width).max(1);
        for levels in 1..=self.depth {
            // One directory for each different prefix of a leaf's number.
            let step = self.width.pow(self.depth - levels) as usize;
            for leaf in (0..leaves).step_by(step) {
                self.directory(leaf, levels, &mut path);
                files.mkdir(&path)?;
            }
        }
        let mut present = self.members.lock().present.concat();
        let size = match self.fills_percent {
            Some(percent) => {
                let each =
                    files.free_bytes()? as u128 * u128::from(percent) / 100 / present.len().max(1) as u128;
                Size::Bytes(each as u64 / PAGE * PAGE)
            }
            None => self.size,
        };
        // In the order of their paths, as a tree is usually made.
        present.sort_unstable();
        let share = present.len().div_ceil(tasks).max(1);
        task::scope(|scope| {
            let makers: Vec<_> = present
                .chunks(share)
                .enumerate()
                .map(|(maker, members)| {
                    scope.spawn("prepare", move || {
                        self.fill(files, members, size, seed ^ maker as u64, contents)
                    })
                })
                .collect();
            makers.into_iter().try_for_each(|maker| maker.join())
        })
    }

    fn fill(
        &self,
        files: &dyn Files,
        members: &[u32],
        sizes: Size,
        seed: u64,
        contents: &[u8],
    ) -> Result<()> {
        let mut chance = Generator::new(seed);
        let mut path = String::new();
        for member in members {
            self.path_named(*member, false, &mut path);
            if self.kind == Kind::Directories {
                files.mkdir(&path)?;
                continue;
            }
            let file = files.open(&path, OpenMode::NEW)?;
            let size = sizes.draw(&mut chance);
            let mut left = size;
            while left > 0 {
                let part = left.min(contents.len() as u64 / 2);
                let at = chance.below(contents.len() as u64 / 2 - part / 2) as usize / 64 * 64;
                files.append(file, &contents[at..][..part as usize])?;
                left -= part;
            }
            let mut left = self.overwritten.map_or(0, |of| size.saturating_mul(of.percent) / 100);
            while let Some(of) = self.overwritten.filter(|_| left > 0) {
                let part = of.size.draw(&mut chance).min(size);
                let at = chance.below(contents.len() as u64 / 2) as usize / 64 * 64;
                files.write(file, chance.below(size - part + 1), &contents[at..][..part as usize])?;
                left = left.saturating_sub(part);
            }
            files.close(file)?;
        }
        Ok(())
    }
}

/// Every member that was drawn is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InUse;

/// The part of a member's directory, of `parts` parts.
fn part_of(member: u32, width: u64, parts: u32) -> usize {
    (u64::from(member) / width % u64::from(parts)) as usize
}

impl Members {
    fn list(&mut self, present: bool, part: usize) -> &mut Vec<u32> {
        if present { &mut self.present[part] } else { &mut self.absent[part] }
    }

    fn take(&mut self, present: bool, part: usize, at: usize) -> u32 {
        let member = self.list(present, part).swap_remove(at);
        if let Some(moved) = self.list(present, part).get(at).copied() {
            self.position[moved as usize] = at as u32;
        }
        member
    }

    fn put(&mut self, present: bool, part: usize, member: u32) {
        let list = self.list(present, part);
        list.push(member);
        let at = list.len() as u32 - 1;
        self.position[member as usize] = at;
    }
}
