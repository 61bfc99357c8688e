//! A change of the file system: entries appended to logs, then the words that make them count. One word — a
//! log's tail — is stored as it is, since no crash tears it; several go through the journal (NOVA §4.5,
//! §4.6).

use amphi_device::{PageView, Structure};
use amphi_direct_access::{PAGE, Taken, in_change};
use amphi_names::{Change, Changed, Child, NewInode};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{Error, FileType, Ino, Name, Result};
use amphi_volume::encode_attributes;
use smallvec::SmallVec;
use zerocopy::{FromZeros, IntoBytes};

use crate::collect;
use crate::format::{
    ATTR, Attr, CUT, DENTRY, Dentry, ENTRY, EntryHead, FOOTER, HEAD_AT, INVALID, InodeHead, MADE, NEXT_PAGE,
    TAIL_AT, TYPES, WRITE, Write, dentry_slots, head_checksum, seal, valid_word,
};
use crate::fs::NovaLike;
use crate::journal::Word;
use crate::log::{Inode, Part, State};
use crate::planted::{self, Bug};

/// Pages for logs that a change may take, whatever it does: one for each of the inodes of a rename, and for
/// what they lack.
pub const LOG_PAGES: u64 = 6;

/// A directory's entry that is written once the directory's times and links are known.
struct Pending {
    dir: Ino,
    name: Vec<u8>,
    /// What it names, and what it named if that was taken away.
    child: Child,
    stands: bool,
    /// The cookie of the entry that it replaces.
    cookie: Option<u64>,
}

/// A change.
pub struct Tx<'a, D: PageView + 'static> {
    pub fs: &'a NovaLike<D>,
    /// What it takes.
    pub taken: Taken<'a>,
    words: SmallVec<[Word; 8]>,
    pending: SmallVec<[Pending; 2]>,
}

impl<'a, D: PageView + 'static> Tx<'a, D> {
    /// A change that takes at most `pages` pages, and leaves `left`.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn new(fs: &'a NovaLike<D>, pages: u64, left: u64) -> Result<Self> {
        let taken = Taken::new(fs, pages, left)?;
        Ok(Self { fs, taken, words: SmallVec::new(), pending: SmallVec::new() })
    }

    /// Before anything of an inode changes: what the last change left behind is settled, and a log that has
    /// grown is collected (§4.7).
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn touch(&mut self, ino: Ino, part: &mut Part) -> Result<()> {
        if part.touched != self.taken.number {
            part.touched = self.taken.number;
            part.settle();
            if std::mem::take(&mut part.grew) {
                collect::collect(self.fs, ino, part)?;
            }
        }
        Ok(())
    }

    /// Has the change store a word.
    fn set_word(&mut self, at: u64, old: u64, new: u64) {
        match self.words.iter_mut().find(|word| word.at == at) {
            Some(word) => word.new = new,
            None => self.words.push(Word { at, old, new }),
        }
    }

    /// Appends an entry to an inode's log. Returns where it is.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn append(&mut self, ino: Ino, part: &mut Part, entry: &mut [u8], tag: Structure) -> Result<u64> {
        seal(ino.0, entry);
        let (medium, layout) = (&self.fs.medium, &self.fs.layout);
        let old = part.log.tail;
        let room = if old == 0 { 0 } else { FOOTER - old % PAGE };
        let mut at = old;
        if room < entry.len() as u64 {
            // More inodes than usual may be in one change.
            in_change(self.fs, || self.taken.promise_one())?;
            let (page, _) = self.taken.take(1);
            at = page * PAGE;
            if old == 0 {
                // It means nothing as long as there is no tail.
                if !part.fresh {
                    medium.store_word(layout.inode(ino.0) + HEAD_AT, at, Structure::Inode)?;
                }
            } else {
                if room > 0 {
                    let mut next = EntryHead::new_zeroed();
                    next.kind = NEXT_PAGE;
                    let mut word = [0; 8];
                    word.copy_from_slice(next.as_bytes());
                    seal(ino.0, &mut word);
                    medium.store(old, &word, Structure::Pointer)?;
                }
                let last = part.log.pages.last().map_or(0, |page| page * PAGE);
                medium.store_word(last + FOOTER, at, Structure::Pointer)?;
            }
            part.log.pages.push(page);
            part.grew = true;
        }
        medium.store(at, entry, tag)?;
        part.log.tail = at + entry.len() as u64;
        if !part.fresh {
            self.set_word(layout.inode(ino.0) + TAIL_AT, old, part.log.tail);
        }
        Ok(at)
    }

    /// Writes all of an inode's attributes.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_attr(&mut self, inode: &Inode, state: &mut State, cuts: bool) -> Result<()> {
        self.touch(inode.ino, &mut state.part)?;
        let mut attr = attr_of(inode, state);
        attr.head.flags = if cuts { CUT } else { 0 };
        let at = self.append(inode.ino, &mut state.part, attr.as_mut_bytes(), Structure::Inode)?;
        state.part.apply_attr(at, attr, &mut self.taken.freed);
        Ok(())
    }

    /// Notes that blocks of a file have these pages; page 0: that they are a hole.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn map(&mut self, ino: Ino, state: &mut State, block: u64, page: u64, count: u64) -> Result<()> {
        let mut write = Write::new_zeroed();
        (write.block, write.page, write.count) = (block.into(), page.into(), (count as u32).into());
        (write.mode, write.size) = (state.mode.into(), state.size.into());
        write.mtime = state.mtime.into();
        self.map_part(ino, &mut state.part, write)
    }

    fn map_part(&mut self, ino: Ino, part: &mut Part, mut write: Write) -> Result<()> {
        write.head = EntryHead { kind: WRITE, slots: 1, ..write.head };
        let at = self.append(ino, part, write.as_mut_bytes(), Structure::Pointer)?;
        part.apply_write(at, &write, &mut self.taken.freed);
        Ok(())
    }

    /// Writes the entries of a directory that wait for its times and links.
    fn write_pending(&mut self, dir: &Inode, state: &mut State) -> Result<bool> {
        let (mine, rest) = self.pending.drain(..).partition::<SmallVec<[_; 2]>, _>(|one| one.dir == dir.ino);
        self.pending = rest;
        let any = !mine.is_empty();
        for one in mine {
            let slots = dentry_slots(one.name.len());
            let mut bytes = [0; 5 * ENTRY as usize];
            let bytes = &mut bytes[..(slots * ENTRY) as usize];
            let mut dentry = Dentry::new_zeroed();
            dentry.head = EntryHead { kind: DENTRY, slots: slots as u8, ..EntryHead::new_zeroed() };
            dentry.ino = if one.stands { one.child.ino.0 } else { 0 }.into();
            (dentry.mtime, dentry.nlink) = (state.mtime.into(), state.nlink.into());
            dentry.cookie = one.cookie.unwrap_or_else(|| state.part.next_cookie()).into();
            (dentry.code, dentry.name_bytes) = (TYPES.code(one.child.file_type), one.name.len() as u8);
            let head = size_of::<Dentry>();
            bytes[..head].copy_from_slice(dentry.as_bytes());
            bytes[head..head + one.name.len()].copy_from_slice(&one.name);
            let at = self.append(dir.ino, &mut state.part, bytes, Structure::Dentry)?;
            // With its checksum.
            dentry.head.as_mut_bytes().copy_from_slice(&bytes[..8]);
            state.part.apply_dentry(at, &dentry, one.stands.then_some(one.child), &one.name);
        }
        Ok(any)
    }

    /// Takes a name out of a directory in memory, and has its entry marked.
    fn forget(&mut self, dir: Ino, state: &mut State, name: &[u8]) -> Result<(Child, u64)> {
        self.touch(dir, &mut state.part)?;
        let named = state.part.forget(name);
        let named = named.ok_or_else(|| Error::corrupt("directory", dir.0, "it lost a name"))?;
        if !planted::has(Bug::EntryNotMarked) {
            self.set_word(named.entry, named.word, named.word | u64::from(INVALID) << 8);
        }
        Ok((named.child, named.cookie))
    }

    fn store_new(&mut self, inode: &Inode, state: &mut State) -> Result<()> {
        if inode.is_dir() {
            // NOVA begins a directory's log with `.` and `..`; here its attributes name the parent.
            self.write_attr(inode, state, false)?;
        }
        let mut head = InodeHead::new_zeroed();
        head.head = state.part.log.pages.first().map_or(0, |page| page * PAGE).into();
        head.tail = state.part.log.tail.into();
        head.rdev = state.rdev.into();
        head.crc = head_checksum(inode.ino.0, state.rdev).into();
        head.first = attr_of(inode, state);
        seal(inode.ino.0, head.first.as_mut_bytes());
        let at = self.fs.layout.inode(inode.ino.0);
        self.fs.medium.store(at, head.as_bytes(), Structure::Inode)?;
        if state.part.attr_at == 0 {
            state.part.attr = head.first;
        }
        state.part.fresh = false;
        state.part.touched = self.taken.number;
        self.set_word(at, 0, valid_word(inode.file_type, state.generation));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        debug_assert!(self.pending.is_empty(), "a directory whose names changed is written");
        let (medium, layout) = (&self.fs.medium, &self.fs.layout);
        match &self.words[..] {
            [] => medium.barrier(),
            [word] => {
                if !planted::has(Bug::TailBeforeEntries) {
                    medium.barrier()?;
                }
                medium.store_word(word.at, word.new, Structure::Inode)?;
                if planted::has(Bug::TailNotDurable) { Ok(()) } else { medium.barrier() }
            }
            words => self.fs.log.commit(medium, layout, words),
        }
    }
}

/// An inode's attributes as its log has them.
fn attr_of(inode: &Inode, state: &State) -> Attr {
    let known = &state.part.attr;
    Attr {
        head: EntryHead { kind: ATTR, slots: 1, ..EntryHead::new_zeroed() },
        mode: state.mode.into(),
        attributes_bytes: known.attributes_bytes,
        nlink: state.nlink.into(),
        uid: state.uid.into(),
        gid: state.gid.into(),
        size: state.size.into(),
        atime: state.atime.into(),
        mtime: state.mtime.into(),
        ctime: state.ctime.into(),
        attributes_page: known.attributes_page,
        parent: if inode.is_dir() { inode.parent().0 as u32 } else { 0 }.into(),
    }
}

impl<D: PageView + 'static> Change<NovaLike<D>> for Tx<'_, D> {
    fn new_inode(&mut self, _: &Inode, new: &NewInode<'_>) -> Result<(Ino, Part)> {
        let ino = self.fs.numbers.take().ok_or(Error::NoInodes)?;
        self.taken.make(ino);
        let mut part = Part::new(Attr::new_zeroed());
        (part.fresh, part.touched) = (true, self.taken.number);
        if new.file_type == FileType::Symlink {
            let (page, _) = self.taken.take(1);
            self.fs.medium.store(page * PAGE, new.target, Structure::Data)?;
            let mut write = Write::new_zeroed();
            write.head.flags = MADE;
            (write.page, write.count) = (page.into(), 1.into());
            self.map_part(ino, &mut part, write)?;
            part.target = new.target.to_vec();
        }
        Ok((ino, part))
    }

    fn insert(&mut self, dir: &Inode, state: &mut State, (): (), name: Name<'_>, child: Child) -> Result<()> {
        self.touch(dir.ino, &mut state.part)?;
        self.pending.push(Pending {
            dir: dir.ino,
            name: name.bytes().to_vec(),
            child,
            stands: true,
            cookie: None,
        });
        Ok(())
    }

    fn remove(&mut self, dir: &Inode, state: &mut State, (): (), name: Name<'_>) -> Result<()> {
        let name = name.bytes().to_vec();
        let (child, cookie) = self.forget(dir.ino, state, &name)?;
        self.pending.push(Pending { dir: dir.ino, name, child, stands: false, cookie: Some(cookie) });
        Ok(())
    }

    fn replace(
        &mut self,
        dir: &Inode,
        state: &mut State,
        (): (),
        name: Name<'_>,
        child: Child,
    ) -> Result<()> {
        let name = name.bytes().to_vec();
        let (_, cookie) = self.forget(dir.ino, state, &name)?;
        self.pending.push(Pending { dir: dir.ino, name, child, stands: true, cookie: Some(cookie) });
        Ok(())
    }

    fn reparent(&mut self, _: &Inode, _: &mut State) -> Result<()> {
        // It is in the attributes, which are written.
        Ok(())
    }

    fn set_attributes(&mut self, ino: Ino, state: &mut State, attributes: &Attributes) -> Result<()> {
        self.touch(ino, &mut state.part)?;
        let old = state.part.attr.attributes_page.get();
        self.taken.freed.extend((old != 0).then_some((u64::from(old), 1)));
        let bytes = encode_attributes(attributes);
        let page = if attributes.is_empty() { 0 } else { self.taken.take(1).0 };
        if page != 0 {
            self.fs.medium.store(page * PAGE, &bytes, Structure::Inode)?;
        }
        let attr = &mut state.part.attr;
        attr.attributes_page = (page as u32).into();
        attr.attributes_bytes = (if page == 0 { 0 } else { bytes.len() as u16 }).into();
        Ok(())
    }

    fn write_inode(&mut self, inode: &Inode, state: &mut State, changed: Changed) -> Result<()> {
        let lately_read = std::mem::take(&mut state.atime_dirty);
        match changed {
            Changed::New => self.store_new(inode, state),
            // Names carry the directory's times and links.
            Changed::Entries if self.write_pending(inode, state)? && !lately_read => Ok(()),
            _ => self.write_attr(inode, state, false),
        }
    }

    fn set_orphan(&mut self, _: &Inode, _: &mut State, _: bool) -> Result<()> {
        // It is one if it has no links; the next mount reads all logs.
        Ok(())
    }

    fn free_step(&mut self, inode: &Inode, state: &mut State) -> Result<bool> {
        let valid = valid_word(inode.file_type, state.generation);
        self.set_word(self.fs.layout.inode(inode.ino.0), valid, 0);
        self.taken.freed.extend(state.part.pages());
        self.taken.delete(inode.ino);
        Ok(true)
    }

    fn commit(mut self) -> Result<()> {
        let reached = self.taken.sound().and_then(|()| self.finish());
        self.taken.settle(reached)
    }
}
