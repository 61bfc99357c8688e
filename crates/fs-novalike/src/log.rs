//! What an inode is in host memory, and how it is read from its log: attributes, a radix tree from blocks to
//! pages (NOVA §4.4), a directory's names. It knows which entries of the log still say something, so that
//! pages of which none does can be collected.

use std::collections::BTreeMap;

use amphi_device::{PageView, Structure};
use amphi_direct_access::{FILE_BLOCKS_MAX, Layout as _, Medium, PAGE};
use amphi_names::Child;
use amphi_radix::Radix;
use amphi_vfs::{Error, FileType, Ino, Name, Result};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::format::{
    ATTR, Attr, CUT, DENTRY, Dentry, ENTRY, EntryHead, FOOTER, INVALID, InodeHead, Layout, MADE, NEXT_PAGE,
    TYPES, WRITE, Write, checksum, dentry_slots, head_checksum, valid_word,
};
use crate::planted::{self, Bug};

/// Where a block is, and the entry that says so.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub page: u64,
    pub entry: u64,
}

/// A name of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    pub child: Child,
    pub cookie: u64,
    /// Address of the entry that says so.
    pub entry: u64,
    /// The entry's first word.
    pub word: u64,
}

/// A directory's names, by name and in the order in which they were made.
#[derive(Default)]
pub struct Names {
    pub by_name: BTreeMap<Vec<u8>, Named>,
    pub by_cookie: BTreeMap<u64, Vec<u8>>,
}

/// The log of an inode.
#[derive(Default)]
pub struct Log {
    /// Address behind the last entry; 0: there is no log.
    pub tail: u64,
    /// Its pages, in order.
    pub pages: Vec<u64>,
    /// Entries of each page that still say something.
    live: BTreeMap<u64, u64>,
}

impl Log {
    /// Notes that an entry says something.
    pub fn enliven(&mut self, entry: u64, slots: u64) {
        *self.live.entry(entry / PAGE).or_default() += slots;
    }

    fn kill(&mut self, entry: u64, slots: u64) {
        if let Some(live) = self.live.get_mut(&(entry / PAGE)) {
            *live = live.saturating_sub(slots);
        }
    }

    /// Entries of a page that still say something.
    pub fn live_in(&self, page: u64) -> u64 {
        self.live.get(&page).copied().unwrap_or(0)
    }

    /// Entries that still say something.
    pub fn live(&self) -> u64 {
        self.live.values().sum()
    }

    /// Forgets a page.
    pub fn drop_page(&mut self, page: u64) {
        self.live.remove(&page);
    }
}

/// A cached inode.
pub type Inode = amphi_names::Inode<Part>;
/// What its lock protects.
pub type State = amphi_names::State<Part>;

/// What is kept of an inode, beside what all file systems keep.
pub struct Part {
    pub log: Log,
    /// It is not in the table yet.
    pub fresh: bool,
    /// The change that touched it last.
    pub touched: u64,
    /// The log has got a page since it was collected.
    pub grew: bool,
    /// Entries that say nothing once the last change counts, and how long they are.
    pub dying: Vec<(u64, u64)>,
    /// Attributes, as the log has them.
    pub attr: Attr,
    /// The entry that has them; 0: none.
    pub attr_at: u64,
    /// Where blocks are.
    pub blocks: Radix<Block>,
    mapped: u64,
    /// Blocks that each entry still has.
    by_entry: BTreeMap<u64, u64>,
    pub names: Names,
    /// A symbolic link's target.
    pub target: Vec<u8>,
}

impl amphi_names::Part for Part {
    type Beside = ();

    fn sectors(state: &State) -> u64 {
        // A directory is its log.
        let log = if state.file_type == FileType::Directory { state.part.log.pages.len() as u64 } else { 0 };
        (state.part.mapped() + log) * (PAGE / 512)
    }
}

impl Part {
    /// That of an inode with these attributes.
    pub fn new(attr: Attr) -> Self {
        Self {
            log: Log::default(),
            fresh: false,
            touched: 0,
            grew: false,
            dying: Vec::new(),
            attr,
            attr_at: 0,
            blocks: Radix::default(),
            mapped: 0,
            by_entry: BTreeMap::new(),
            names: Names::default(),
            target: Vec::new(),
        }
    }

    /// Blocks that have pages.
    pub const fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Applies what the last change has made of entries, now that it counts.
    pub fn settle(&mut self) {
        for (entry, slots) in std::mem::take(&mut self.dying) {
            self.log.kill(entry, slots);
        }
    }

    /// Attributes have a new entry.
    pub fn apply_attr(&mut self, at: u64, attr: Attr, freed: &mut Vec<(u64, u64)>) {
        self.log.enliven(at, 1);
        // A cut is kept until the log is written anew: what it cuts off may lie in older pages.
        if self.attr_at != 0 && self.attr.head.flags & CUT == 0 {
            self.dying.push((self.attr_at, 1));
        }
        if attr.head.flags & CUT != 0 && !planted::has(Bug::CutForgotten) {
            self.unmap(attr.size.get().div_ceil(PAGE)..u64::MAX, freed);
        }
        (self.attr, self.attr_at) = (attr, at);
    }

    /// Blocks have new pages, or none.
    pub fn apply_write(&mut self, at: u64, write: &Write, freed: &mut Vec<(u64, u64)>) {
        let (first, page, count) = (write.block.get(), write.page.get(), u64::from(write.count.get()));
        // A hole is kept as a cut is.
        self.log.enliven(at, 1);
        if page == 0 {
            self.unmap(first..first + count, freed);
        } else {
            for index in 0..count {
                let old = self.blocks.insert(first + index, Block { page: page + index, entry: at });
                self.mapped += u64::from(old.is_none());
                self.lose(old, freed);
            }
            self.by_entry.insert(at, count);
        }
        if write.head.flags & MADE != 0 {
            return;
        }
        self.attr.size = write.size;
        (self.attr.mtime, self.attr.ctime) = (write.mtime, write.mtime);
        self.attr.mode = write.mode;
    }

    fn lose(&mut self, old: Option<Block>, freed: &mut Vec<(u64, u64)>) {
        let Some(Block { page, entry }) = old else { return };
        freed.push((page, 1));
        if let Some(left) = self.by_entry.get_mut(&entry) {
            *left -= 1;
            if *left == 0 {
                self.by_entry.remove(&entry);
                self.dying.push((entry, 1));
            }
        }
    }

    fn unmap(&mut self, blocks: std::ops::Range<u64>, freed: &mut Vec<(u64, u64)>) {
        let mut from = blocks.start;
        while let Some((block, _)) = self.blocks.next(from).filter(|(block, _)| *block < blocks.end) {
            let old = self.blocks.remove(block);
            self.mapped -= u64::from(old.is_some());
            self.lose(old, freed);
            from = block + 1;
        }
    }

    /// A directory has a new name, or an entry says that one was taken away.
    pub fn apply_dentry(&mut self, at: u64, dentry: &Dentry, child: Option<Child>, name: &[u8]) {
        if let Some(child) = child {
            let mut word = [0; 8];
            word.copy_from_slice(dentry.head.as_bytes());
            let (cookie, word) = (dentry.cookie.get(), u64::from_le_bytes(word));
            self.log.enliven(at, dentry_slots(name.len()));
            self.names.by_cookie.insert(cookie, name.to_vec());
            self.names.by_name.insert(name.to_vec(), Named { child, cookie, entry: at, word });
        }
        self.attr.nlink = dentry.nlink;
        (self.attr.mtime, self.attr.ctime) = (dentry.mtime, dentry.mtime);
    }

    /// Forgets a name.
    pub fn forget(&mut self, name: &[u8]) -> Option<Named> {
        let named = self.names.by_name.remove(name)?;
        self.names.by_cookie.remove(&named.cookie);
        self.dying.push((named.entry, dentry_slots(name.len())));
        Some(named)
    }

    /// A cookie higher than all that the directory has.
    pub fn next_cookie(&self) -> u64 {
        let last = self.names.by_cookie.last_key_value();
        last.map_or(amphi_names::FIRST_COOKIE, |(cookie, _)| cookie + 1)
    }

    /// Runs of blocks whose pages follow each other, from `from` on: first block, first page, length.
    pub fn runs(&self) -> Vec<(u64, u64, u64)> {
        let mut runs: Vec<(u64, u64, u64)> = Vec::new();
        let mut from = 0;
        while let Some((block, at)) = self.blocks.next(from) {
            match runs.last_mut() {
                Some((first, page, count)) if *first + *count == block && *page + *count == at.page => {
                    *count += 1;
                }
                _ => runs.push((block, at.page, 1)),
            }
            from = block + 1;
        }
        runs
    }

    /// The log was written anew: where things are now.
    pub fn moved(
        &mut self,
        log: Log,
        attr_at: u64,
        runs: &[(u64, u64, u64, u64)],
        names: &[(Vec<u8>, u64, u64)],
    ) {
        (self.log, self.attr_at) = (log, attr_at);
        self.attr.head.flags = 0;
        self.dying.clear();
        self.by_entry.clear();
        for (first, page, count, entry) in runs {
            for index in 0..*count {
                self.blocks.insert(first + index, Block { page: page + index, entry: *entry });
            }
            self.by_entry.insert(*entry, *count);
        }
        for (name, entry, word) in names {
            if let Some(named) = self.names.by_name.get_mut(name) {
                (named.entry, named.word) = (*entry, *word);
            }
        }
    }

    /// Pages that the inode has, of its log and others: first page and length of runs.
    pub fn pages(&self) -> Vec<(u64, u64)> {
        let mut pages: Vec<_> = self.runs().into_iter().map(|(_, page, count)| (page, count)).collect();
        pages.extend(self.log.pages.iter().map(|page| (*page, 1)));
        let attributes = self.attr.attributes_page.get();
        pages.extend((attributes != 0).then_some((attributes.into(), 1)));
        pages
    }
}

fn corrupt(ino: Ino, what: &'static str) -> Error {
    Error::corrupt("inode", ino.0, what)
}

/// Reads an inode and its log.
///
/// # Errors
/// [`Error::Stale`] if there is none; [`Error::Corrupt`], [`Error::Io`].
pub fn load<D: PageView + 'static>(medium: &Medium<D>, layout: &Layout, ino: Ino) -> Result<Inode> {
    if ino.0 == 0 || ino.0 > layout.inodes {
        return Err(Error::Stale(ino));
    }
    let mut head = InodeHead::new_zeroed();
    medium.load(layout.inode(ino.0), head.as_mut_bytes(), Structure::Inode)?;
    let valid = head.valid.get();
    if valid == 0 {
        return Err(Error::Stale(ino));
    }
    let generation = (valid >> 32) as u32;
    let file_type = TYPES.file_type((valid >> 8) as u8).filter(|of| valid_word(*of, generation) == valid);
    let file_type = file_type.ok_or_else(|| corrupt(ino, "it has no type"))?;
    let first = head.first;
    let sound = head.crc.get() == head_checksum(ino.0, head.rdev.get())
        && first.head.kind == ATTR
        && first.head.crc.get() == checksum(ino.0, first.as_bytes());
    if !sound {
        return Err(corrupt(ino, "its checksum is wrong"));
    }
    let mut part = Part::new(first);
    replay(medium, layout, (ino, file_type), &mut part, head.head.get(), head.tail.get())?;
    check_attr(layout, ino, &part.attr)?;
    if file_type == FileType::Symlink {
        part.target = target(medium, ino, &part)?;
    }
    let attr = part.attr;
    let state = State {
        file_type,
        mode: attr.mode.get(),
        uid: attr.uid.get(),
        gid: attr.gid.get(),
        nlink: attr.nlink.get(),
        size: attr.size.get(),
        atime: attr.atime.get(),
        mtime: attr.mtime.get(),
        ctime: attr.ctime.get(),
        generation,
        rdev: head.rdev.get(),
        attributes: None,
        orphan: false,
        unnamed: false,
        gone: false,
        atime_dirty: false,
        part,
    };
    Ok(Inode::new(ino, Ino(attr.parent.get().into()), state))
}

fn check_attr(layout: &Layout, ino: Ino, attr: &Attr) -> Result<()> {
    let (page, bytes) = (u64::from(attr.attributes_page.get()), u64::from(attr.attributes_bytes.get()));
    if attr.size.get() > FILE_BLOCKS_MAX * PAGE || (page != 0 && !layout.holds(page, 1)) || bytes > PAGE {
        return Err(corrupt(ino, "an attribute makes no sense"));
    }
    Ok(())
}

fn target<D: PageView>(medium: &Medium<D>, ino: Ino, part: &Part) -> Result<Vec<u8>> {
    let size = part.attr.size.get();
    let page = part.blocks.get(0).filter(|_| (1..PAGE).contains(&size));
    let page = page.ok_or_else(|| corrupt(ino, "the symbolic link has no target"))?.page;
    let mut target = vec![0; size as usize];
    medium.load(page * PAGE, &mut target, Structure::Data)?;
    Ok(target)
}

fn replay<D: PageView>(
    medium: &Medium<D>,
    layout: &Layout,
    (ino, file_type): (Ino, FileType),
    part: &mut Part,
    head: u64,
    tail: u64,
) -> Result<()> {
    part.log.tail = tail;
    let mut page = head / PAGE;
    let mut freed = Vec::new();
    if tail == 0 {
        return Ok(());
    }
    loop {
        let is_page = layout.holds(page, 1) && tail.is_multiple_of(8);
        if !is_page || part.log.pages.len() as u64 > layout.pages {
            return Err(corrupt(ino, "its log leads nowhere"));
        }
        part.log.pages.push(page);
        // Full to its end, or up to the tail, which may be just behind the last entry.
        let is_last = (page * PAGE..=page * PAGE + FOOTER).contains(&tail);
        let mut bytes = [0; PAGE as usize];
        let used = if is_last { tail - page * PAGE } else { FOOTER };
        let wanted = if is_last { used } else { FOOTER + 8 };
        medium.load(page * PAGE, &mut bytes[..wanted as usize], Structure::Pointer)?;
        let mut at = 0;
        while at < used {
            let entry = &bytes[at as usize..used as usize];
            let (head, _) = EntryHead::read_from_prefix(entry).map_err(|_| corrupt(ino, "a torn entry"))?;
            if head.kind == NEXT_PAGE && !is_last {
                if head.crc.get() != checksum(ino.0, &entry[..8]) {
                    return Err(corrupt(ino, "an entry of its log is damaged"));
                }
                break;
            }
            let len = u64::from(head.slots) * ENTRY;
            let entry = (len > 0).then(|| entry.get(..len as usize)).flatten();
            let entry = entry.filter(|entry| head.crc.get() == checksum(ino.0, entry));
            let entry = entry.ok_or_else(|| corrupt(ino, "an entry of its log is damaged"))?;
            apply(layout, (ino, file_type), part, page * PAGE + at, entry, &mut freed)?;
            at += len;
        }
        if is_last {
            break;
        }
        let next = bytes[FOOTER as usize..].first_chunk().map_or(0, |next| u64::from_le_bytes(*next));
        page = next / PAGE;
    }
    part.settle();
    Ok(())
}

fn apply(
    layout: &Layout,
    (ino, file_type): (Ino, FileType),
    part: &mut Part,
    at: u64,
    entry: &[u8],
    freed: &mut Vec<(u64, u64)>,
) -> Result<()> {
    let senseless = || corrupt(ino, "an entry of its log makes no sense");
    freed.clear();
    match entry[0] {
        ATTR => {
            let attr = Attr::read_from_bytes(entry).map_err(|_| senseless())?;
            part.apply_attr(at, attr, freed);
        }
        WRITE if matches!(file_type, FileType::Regular | FileType::Symlink) => {
            let write = Write::read_from_bytes(entry).map_err(|_| senseless())?;
            let (block, page, count) = (write.block.get(), write.page.get(), u64::from(write.count.get()));
            let inside = block.checked_add(count).is_some_and(|end| end <= FILE_BLOCKS_MAX);
            if !inside || count == 0 || (page != 0 && !layout.holds(page, count)) {
                return Err(senseless());
            }
            part.apply_write(at, &write, freed);
            // No file has more pages than there are.
            if part.mapped() > layout.pages {
                return Err(senseless());
            }
        }
        DENTRY if file_type == FileType::Directory => {
            let (dentry, name) = Dentry::read_from_prefix(entry).map_err(|_| senseless())?;
            let name = name.get(..dentry.name_bytes.into()).ok_or_else(senseless)?;
            Name::new(name).map_err(|_| senseless())?;
            let cookie_is_sound = (amphi_names::FIRST_COOKIE..1 << 62).contains(&dentry.cookie.get());
            if dentry_slots(name.len()) * ENTRY != entry.len() as u64 || !cookie_is_sound {
                return Err(senseless());
            }
            let stands = dentry.ino.get() != 0 && dentry.head.flags & INVALID == 0;
            let child = Child {
                ino: Ino(dentry.ino.get()),
                file_type: TYPES.file_type(dentry.code).ok_or_else(senseless)?,
            };
            let known = part.names.by_name.contains_key(name)
                || part.names.by_cookie.contains_key(&dentry.cookie.get());
            if stands && known {
                return Err(senseless());
            }
            part.apply_dentry(at, &dentry, stands.then_some(child), name);
        }
        _ => return Err(senseless()),
    }
    Ok(())
}
