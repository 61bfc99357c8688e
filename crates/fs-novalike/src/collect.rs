//! Collection of a log (NOVA §4.7): pages of which no entry says anything any more are unlinked, without
//! copying; if less than half of what is left says something, the log is written anew, shorter.

use amphi_device::{PageView, Structure};
use amphi_direct_access::PAGE;
use amphi_vfs::{Ino, Result};
use zerocopy::{FromZeros, IntoBytes};

use crate::format::{
    ATTR, Attr, DENTRY, Dentry, ENTRY, EntryHead, FOOTER, HEAD_AT, NEXT_PAGE, TAIL_AT, TYPES, WRITE, Write,
    dentry_slots, seal,
};
use crate::fs::NovaLike;
use crate::journal::Word;
use crate::log::{Log, Part};
use crate::planted::{self, Bug};

/// Pages from which on a log is written anew if it is worth it.
const REWRITTEN_FROM: usize = 3;

/// Collects the log of an inode, of which all changes count.
///
/// # Errors
/// [`amphi_vfs::Error::Io`].
pub fn collect<D: PageView>(fs: &NovaLike<D>, ino: Ino, part: &mut Part) -> Result<()> {
    let outcome = unlink(fs, ino, part).and_then(|()| {
        let entries = part.log.pages.len() as u64 * (FOOTER / ENTRY);
        let worth = part.log.pages.len() >= REWRITTEN_FROM && 2 * part.log.live() < entries;
        if worth { rewrite(fs, ino, part) } else { Ok(()) }
    });
    outcome.inspect_err(|error| fs.names.health.fail(error))
}

/// Unlinks the pages, but for the last, of which no entry says anything. Each is one store of 8 B.
fn unlink<D: PageView>(fs: &NovaLike<D>, ino: Ino, part: &mut Part) -> Result<()> {
    let Some((last, _)) = part.log.pages.split_last() else { return Ok(()) };
    let is_live = |page: u64| part.log.live_in(page) > 0 && !planted::has(Bug::LivePageCollected);
    let (stay, go): (Vec<u64>, Vec<u64>) =
        part.log.pages.iter().partition(|page| *page == last || is_live(**page));
    if go.is_empty() {
        return Ok(());
    }
    let give = |go: &[u64]| go.iter().for_each(|page| fs.space.give(*page, 1));
    if planted::has(Bug::PagesFreedEarly) {
        give(&go);
    }
    let mut link = fs.layout.inode(ino.0) + HEAD_AT;
    let mut before = None;
    for page in &part.log.pages {
        if stay.contains(page) {
            if before.is_some_and(|before| go.contains(&before)) && !planted::has(Bug::PagesFreedEarly) {
                fs.medium.store_word(link, page * PAGE, Structure::Pointer)?;
            }
            link = page * PAGE + FOOTER;
        }
        before = Some(*page);
    }
    fs.medium.barrier()?;
    go.iter().for_each(|page| part.log.drop_page(*page));
    if !planted::has(Bug::PagesFreedEarly) {
        give(&go);
    }
    part.log.pages = stay;
    fs.collected(go.len() as u64, false);
    Ok(())
}

/// Writes what the log says into new pages, and has the inode's head and tail lead to them.
fn rewrite<D: PageView>(fs: &NovaLike<D>, ino: Ino, part: &mut Part) -> Result<()> {
    // As many as the live entries fill, with what long names leave at the end of pages.
    let most = part.log.live() * 5 / 4 / (FOOTER / ENTRY) + 2;
    if most >= part.log.pages.len() as u64 || !fs.space.reserve(most, 0) {
        return Ok(());
    }
    let mut new = New { fs, ino, log: Log::default() };
    let mut attr: Attr = part.attr;
    attr.head = EntryHead { kind: ATTR, slots: 1, ..EntryHead::new_zeroed() };
    let mut runs = Vec::new();
    for (block, page, count) in part.runs() {
        let mut write = Write::new_zeroed();
        write.head = EntryHead { kind: WRITE, slots: 1, ..EntryHead::new_zeroed() };
        (write.block, write.page, write.count) = (block.into(), page.into(), (count as u32).into());
        (write.mode, write.size, write.mtime) = (attr.mode, attr.size, attr.mtime);
        runs.push((block, page, count, new.append(write.as_mut_bytes())?));
    }
    let mut names = Vec::new();
    for (name, named) in &part.names.by_name {
        let slots = dentry_slots(name.len());
        let mut bytes = vec![0; (slots * ENTRY) as usize];
        let mut dentry = Dentry::new_zeroed();
        dentry.head = EntryHead { kind: DENTRY, slots: slots as u8, ..EntryHead::new_zeroed() };
        (dentry.ino, dentry.cookie) = (named.child.ino.0.into(), named.cookie.into());
        (dentry.mtime, dentry.nlink) = (attr.mtime, attr.nlink);
        (dentry.code, dentry.name_bytes) = (TYPES.code(named.child.file_type), name.len() as u8);
        bytes[..size_of::<Dentry>()].copy_from_slice(dentry.as_bytes());
        bytes[size_of::<Dentry>()..][..name.len()].copy_from_slice(name);
        let at = new.append(&mut bytes)?;
        let word = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        names.push((name.clone(), at, word));
    }
    // Last, since what is before it sets some of the attributes.
    let attr_at = new.append(attr.as_mut_bytes())?;
    let log = new.log;
    fs.space.unreserve(most - log.pages.len() as u64);
    let inode = fs.layout.inode(ino.0);
    let head = |log: &Log| log.pages.first().map_or(0, |page| page * PAGE);
    let words = [
        Word { at: inode + HEAD_AT, old: head(&part.log), new: head(&log) },
        Word { at: inode + TAIL_AT, old: part.log.tail, new: log.tail },
    ];
    fs.log.commit(&fs.medium, &fs.layout, &words)?;
    part.log.pages.iter().for_each(|page| fs.space.give(*page, 1));
    fs.collected(part.log.pages.len() as u64, true);
    part.moved(log, attr_at, &runs, &names);
    Ok(())
}

/// A log under construction.
struct New<'a, D: PageView + 'static> {
    fs: &'a NovaLike<D>,
    ino: Ino,
    log: Log,
}

impl<D: PageView> New<'_, D> {
    fn append(&mut self, entry: &mut [u8]) -> Result<u64> {
        seal(self.ino.0, entry);
        let medium = &self.fs.medium;
        let room = if self.log.tail == 0 { 0 } else { FOOTER - self.log.tail % PAGE };
        if room < entry.len() as u64 {
            let (page, _) = self.fs.space.take(1);
            if let Some(last) = self.log.pages.last() {
                if room > 0 {
                    let mut word = [NEXT_PAGE, 0, 0, 0, 0, 0, 0, 0];
                    seal(self.ino.0, &mut word);
                    medium.store(self.log.tail, &word, Structure::Pointer)?;
                }
                medium.store_word(last * PAGE + FOOTER, page * PAGE, Structure::Pointer)?;
            }
            self.log.pages.push(page);
            self.log.tail = page * PAGE;
        }
        let at = self.log.tail;
        medium.store(at, entry, Structure::Pointer)?;
        self.log.enliven(at, entry.len() as u64 / ENTRY);
        self.log.tail += entry.len() as u64;
        Ok(at)
    }
}
