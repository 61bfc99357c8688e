//! A directory: blocks of entries one behind the other, as on the device (PMFS §3), and what host memory
//! knows of them. PMFS looks through the blocks whenever a name is looked up; here names are read once.

use std::collections::BTreeMap;

use amphi_device::{PageView, Structure};
use amphi_direct_access::{Medium, PAGE};
use amphi_names::Child;
use amphi_vfs::{Error, FileType, Ino, Name, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::format::{Dentry, Layout, TYPES, dentry_bytes};
use crate::planted::{self, Bug};
use crate::stores::Stores;
use crate::tree::Tree;

/// Where the first entry behind `.` and `..` is.
const FIRST: u64 = 32;
/// Where the entry `..` is.
const PARENT: u64 = 16;

/// An entry, by its place in the directory.
struct Slot {
    len: u16,
    /// What it names; nothing: it is free.
    child: Option<Child>,
    /// Its type and its name, or those that it had.
    code: u8,
    name: Box<[u8]>,
}

/// A directory's entries.
#[derive(Default)]
pub struct Dir {
    by_name: BTreeMap<Box<[u8]>, u64>,
    slots: BTreeMap<u64, Slot>,
    /// For each block, the longest entry for which there is room.
    room: Vec<u16>,
    /// Entries that the last change has taken away. Their bytes stay until it counts.
    dying: Vec<u64>,
}

/// The second word of an entry: its length, its name's, the type, the name's first four bytes.
fn second_word(len: u16, name: &[u8], code: u8) -> u64 {
    let mut word = [0; 8];
    word[..2].copy_from_slice(&len.to_le_bytes());
    (word[2], word[3]) = (name.len() as u8, code);
    let first = name.len().min(4);
    word[4..4 + first].copy_from_slice(&name[..first]);
    u64::from_le_bytes(word)
}

impl Slot {
    /// The two words of one that is free.
    fn head(&self) -> [u64; 2] {
        [0, second_word(self.len, &self.name, self.code)]
    }

    /// Bytes that an entry does not need for its name.
    fn slack(&self) -> u16 {
        self.len - dentry_bytes(self.name.len())
    }
}

/// The bytes of an entry.
pub fn entry(ino: u64, len: u16, name: &[u8], code: u8) -> Vec<u8> {
    let head = Dentry { ino: ino.into(), len: len.into(), name_bytes: name.len() as u8, code };
    let mut bytes = head.as_bytes().to_vec();
    bytes.extend(name);
    bytes.resize(dentry_bytes(name.len()).into(), 0);
    bytes
}

/// The first block of a directory with nothing in it.
pub fn first_block(ino: Ino, parent: Ino) -> Box<[u8; PAGE as usize]> {
    let directory = TYPES.code(FileType::Directory);
    let mut block = Box::new([0; PAGE as usize]);
    let parts = [
        (0, entry(ino.0, PARENT as u16, b".", directory)),
        (PARENT, entry(parent.0, (FIRST - PARENT) as u16, b"..", directory)),
        (FIRST, entry(0, (PAGE - FIRST) as u16, b"", 0)),
    ];
    for (at, bytes) in parts {
        block[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
    }
    block
}

impl Dir {
    /// That of a directory with nothing in it.
    pub fn empty() -> Self {
        let mut dir = Self::default();
        dir.add_block(FIRST, 0);
        dir
    }

    fn add_block(&mut self, from: u64, block: u64) {
        let len = ((block + 1) * PAGE - from) as u16;
        self.slots.insert(from, Slot { len, child: None, code: 0, name: Box::default() });
        self.room.push(0);
        self.measure(block);
    }

    /// Reads a directory, and which one its `..` names.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn load<D: PageView>(
        medium: &Medium<D>,
        layout: &Layout,
        ino: Ino,
        size: u64,
        tree: &Tree,
    ) -> Result<(Self, Ino)> {
        let corrupt = |what| Error::corrupt("directory", ino.0, what);
        if size == 0 || !size.is_multiple_of(PAGE) || tree.mapped() != size / PAGE {
            return Err(corrupt("its size makes no sense"));
        }
        let mut dir = Self::default();
        let mut parent = None;
        let mut bytes = vec![0; PAGE as usize];
        for block in 0..size / PAGE {
            let page = *tree.blocks.get(block).ok_or_else(|| corrupt("it has a hole"))?;
            medium.load(page * PAGE, &mut bytes, Structure::Dentry)?;
            let mut at = 0;
            while at < bytes.len() {
                let (head, rest) = Dentry::read_from_prefix(&bytes[at..])
                    .map_err(|_| corrupt("an entry crosses its block"))?;
                let (len, name_bytes) = (usize::from(head.len.get()), usize::from(head.name_bytes));
                let fits = len >= dentry_bytes(name_bytes).into()
                    && len.is_multiple_of(8)
                    && len <= bytes.len() - at;
                if !fits {
                    return Err(corrupt("an entry has no sensible length"));
                }
                let (name, place) = (&rest[..name_bytes], block * PAGE + at as u64);
                at += len;
                let child = match head.ino.get() {
                    0 => None,
                    child if child <= layout.inodes => {
                        let file_type =
                            TYPES.file_type(head.code).ok_or_else(|| corrupt("an entry has no type"))?;
                        Some(Child { ino: Ino(child), file_type })
                    }
                    _ => return Err(corrupt("an entry names what cannot be")),
                };
                if place < FIRST {
                    let wanted: (u64, &[u8]) = if place == 0 { (0, b".") } else { (PARENT, b"..") };
                    if (place, name) != wanted || child.is_none() || at as u64 > FIRST {
                        return Err(corrupt("it does not begin with . and .."));
                    }
                    parent = child.filter(|_| place == PARENT).map(|child| child.ino);
                    continue;
                }
                if child.is_some() {
                    if Name::new(name).is_err() {
                        return Err(corrupt("an entry's name makes no sense"));
                    }
                    if dir.by_name.insert(name.into(), place).is_some() {
                        return Err(corrupt("two entries have one name"));
                    }
                }
                let slot = Slot { len: len as u16, child, code: head.code, name: name.into() };
                dir.slots.insert(place, slot);
            }
            dir.room.push(0);
            dir.measure(block);
        }
        let parent = parent.ok_or_else(|| corrupt("it has no parent"))?;
        Ok((dir, parent))
    }

    /// What a name stands for.
    pub fn find(&self, name: &[u8]) -> Option<Child> {
        self.slots.get(self.by_name.get(name)?)?.child
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// What is in it.
    pub fn children(&self) -> impl Iterator<Item = Child> {
        self.slots.values().filter_map(|slot| slot.child)
    }

    /// Entries from a cookie on: each with the cookie behind it.
    pub fn from(&self, cookie: u64) -> impl Iterator<Item = (Child, &[u8], u64)> {
        self.slots.range(cookie..).filter_map(|(at, slot)| Some((slot.child?, &*slot.name, at + 1)))
    }

    /// What the last change has taken away is free now that it counts.
    pub fn settle(&mut self) {
        for at in std::mem::take(&mut self.dying) {
            self.measure(at / PAGE);
        }
    }

    /// Whether an entry's bytes are to stay: it names something, or did before the change under way.
    fn stays(&self, at: u64, slot: &Slot) -> bool {
        slot.child.is_some() || self.dying.contains(&at)
    }

    /// How many bytes behind each other are free from an entry on.
    fn free_run(&self, at: u64) -> u16 {
        let mut end = at;
        for (place, slot) in self.slots.range(at..(at / PAGE + 1) * PAGE) {
            if self.stays(*place, slot) {
                break;
            }
            end = place + u64::from(slot.len);
        }
        (end - at) as u16
    }

    fn measure(&mut self, block: u64) {
        let (mut room, mut run) = (0, 0);
        for (at, slot) in self.slots.range(block * PAGE..(block + 1) * PAGE) {
            if self.stays(*at, slot) {
                (room, run) = (room.max(slot.slack()), 0);
            } else {
                run += slot.len;
                room = room.max(run);
            }
        }
        self.room[block as usize] = room;
    }

    /// Adds an entry where there is room, or in a new block. Returns how many bytes the directory grows by.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn insert<D: PageView>(
        &mut self,
        stores: &mut Stores<'_, D>,
        tree: &mut Tree,
        name: &[u8],
        child: Child,
    ) -> Result<u64> {
        let need = dentry_bytes(name.len());
        let (block, grown) = match self.room.iter().position(|room| *room >= need) {
            Some(block) => (block as u64, 0),
            None => {
                let block = self.room.len() as u64;
                let (page, _) = stores.taken.take(1);
                tree.map(stores, block, page)?;
                let image = stores.fresh(page, Structure::Dentry);
                let bytes = entry(0, PAGE as u16, b"", 0);
                image[..bytes.len()].copy_from_slice(&bytes);
                self.add_block(block * PAGE, block);
                (block, PAGE)
            }
        };
        let lost = || Error::corrupt("directory", block, "a block has less room than it says");
        let page = *tree.blocks.get(block).ok_or_else(lost)?;
        let to = |at: u64| page * PAGE + at % PAGE;
        let fits = |(at, slot): (&u64, &Slot)| {
            let free = if self.stays(*at, slot) { slot.slack() } else { self.free_run(*at) };
            (free >= need).then_some((*at, free))
        };
        let found = self.slots.range(block * PAGE..(block + 1) * PAGE).find_map(fits);
        let (at, free) = found.ok_or_else(lost)?;
        let slot = self.slots.get(&at).ok_or_else(lost)?;
        let stays = self.stays(at, slot);
        let (old_len, old_code, old_name) = (slot.len, slot.code, slot.name.clone());
        let code = TYPES.code(child.file_type);
        let place = if stays {
            // Behind the name of an entry that is longer than it has to be: nobody sees it before that
            // one is shorter.
            let keeps = old_len - free;
            let place = at + u64::from(keeps);
            stores.store(to(place), &entry(child.ino.0, free, name, code), Structure::Dentry)?;
            let words = [old_len, keeps].map(|len| second_word(len, &old_name, old_code));
            if planted::has(Bug::NamesNotLogged) {
                stores.store(to(at) + 8, &words[1].to_le_bytes(), Structure::Dentry)?;
            } else {
                stores.set_word(to(at) + 8, words[0], words[1], Structure::Dentry);
            }
            if let Some(slot) = self.slots.get_mut(&at) {
                slot.len = keeps;
            }
            self.slots.insert(place, Slot { len: free, child: Some(child), code, name: name.into() });
            place
        } else {
            // In the place of free ones: what is behind its two words nobody reads while it names nothing,
            // but for those of the free entries behind it.
            let bytes = entry(child.ino.0, free, name, code);
            let behind = self.slots.range(at + 1..at + bytes.len() as u64);
            let heads: Vec<_> = behind.map(|(place, slot)| (*place - at, slot.head())).collect();
            let mut from = 16;
            for (head, words) in heads {
                let head = head as usize;
                stores.store(to(at) + from as u64, &bytes[from..head], Structure::Dentry)?;
                for (word, old) in (head..bytes.len()).step_by(8).zip(words) {
                    let new = u64::from_le_bytes(std::array::from_fn(|byte| bytes[word + byte]));
                    stores.set_word(to(at) + word as u64, old, new, Structure::Dentry);
                }
                from = bytes.len().min(head + 16);
            }
            stores.store(to(at) + from as u64, &bytes[from..], Structure::Dentry)?;
            let second = second_word(old_len, &old_name, old_code);
            stores.set_word(to(at) + 8, second, second_word(free, name, code), Structure::Dentry);
            stores.set_word(to(at), 0, child.ino.0, Structure::Dentry);
            let gone: Vec<u64> =
                self.slots.range(at..at + u64::from(free)).map(|(place, _)| *place).collect();
            gone.iter().for_each(|place| drop(self.slots.remove(place)));
            self.slots.insert(at, Slot { len: free, child: Some(child), code, name: name.into() });
            at
        };
        self.by_name.insert(name.into(), place);
        self.measure(block);
        Ok(grown)
    }

    /// Takes an entry away, or has it name something else.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is none.
    pub fn change<D: PageView>(
        &mut self,
        stores: &mut Stores<'_, D>,
        tree: &Tree,
        name: &[u8],
        child: Option<Child>,
    ) -> Result<()> {
        let lost = || Error::corrupt("directory", 0, "it lost a name");
        let at = *self.by_name.get(name).ok_or_else(lost)?;
        let page = *tree.blocks.get(at / PAGE).ok_or_else(lost)?;
        let slot = self.slots.get_mut(&at).ok_or_else(lost)?;
        let old = slot.child.ok_or_else(lost)?;
        let to = page * PAGE + at % PAGE;
        let ino = child.map_or(0, |child| child.ino.0);
        stores.set_word(to, old.ino.0, ino, Structure::Dentry);
        slot.child = child;
        match child {
            Some(child) => {
                let code = std::mem::replace(&mut slot.code, TYPES.code(child.file_type));
                let [old, new] = [code, slot.code].map(|code| second_word(slot.len, &slot.name, code));
                stores.set_word(to + 8, old, new, Structure::Dentry);
            }
            None => {
                // Its type stays, as does its name, where nobody looks.
                self.by_name.remove(name);
                self.dying.push(at);
            }
        }
        Ok(())
    }
}

/// Has `..` of a directory name another one.
///
/// # Errors
/// [`Error::Corrupt`] if there is none.
pub fn reparent<D: PageView>(stores: &mut Stores<'_, D>, tree: &Tree, old: Ino, new: Ino) -> Result<()> {
    let page = tree.blocks.get(0).ok_or_else(|| Error::corrupt("directory", new.0, "it has no blocks"))?;
    if !planted::has(Bug::ParentKept) {
        stores.set_word(page * PAGE + PARENT, old.0, new.0, Structure::Dentry);
    }
    Ok(())
}
