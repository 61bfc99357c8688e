//! The toy as a store of names: an inode, an entry and a page are values of the map, a change is a batch of
//! updates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{BlockPort, Lpa, PAGE_BYTES, Structure};
use amphi_names::{Change, Changed, Child, FIRST_COOKIE, Found, Names, Need, NewInode, Options, Store};
use amphi_rt::sync::Mutex;
use amphi_vfs::acl::Attributes;
use amphi_vfs::{DirEntry, DirSink, Error, FileType, Ino, Name, Result};

use crate::format::Superblock;
use crate::log::Log;
use crate::map::{Key, Map, PAGE, Record, Update, Value};

/// Inodes that there can be.
pub const INODES: u64 = 10_000;
/// Longest file in bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 42;
/// Most bytes of one inode's extended attributes.
const ATTRIBUTE_BYTES_MAX: usize = PAGE;
/// Pages freed by one change: so few that most files take several.
const STEP_PAGES: usize = 4;

/// Bytes that a change may add to the map beside pages: an inode with its attributes, two names.
const CHANGE_BYTES: u64 = 8 << 10;

/// A mounted toy.
pub struct Toy<D: BlockPort + 'static> {
    pub(crate) names: Names<Part>,
    device: Arc<D>,
    pub(crate) map: Map<D>,
    /// Pages and inodes in use.
    pub(crate) pages: AtomicU64,
    pub(crate) inodes: AtomicU64,
    free: Mutex<Vec<Ino>>,
    next_ino: AtomicU64,
    next_cookie: AtomicU64,
}

/// A cached inode.
pub type Inode = amphi_names::Inode<Part>;
/// What its lock protects.
pub type State = amphi_names::State<Part>;

/// What the toy keeps in an inode.
#[derive(Default)]
pub struct Part {
    pub pages: u64,
    entries: u64,
    target: Vec<u8>,
}

impl amphi_names::Part for Part {
    type Beside = ();

    fn sectors(state: &State) -> u64 {
        state.pages * (PAGE / 512) as u64
    }
}

/// Reads the superblock.
///
/// # Errors
/// As [`Superblock::decode`]; the device fails.
pub fn read_super<D: BlockPort>(device: &D) -> amphi_volume::Result<Superblock> {
    let mut page = Box::new([0; PAGE_BYTES]);
    device.read(Lpa(0), &mut page[..], Structure::Superblock)?;
    Superblock::decode(&page, device.capacity_pages())
}

/// A directory without entries, the root.
pub fn root() -> Update {
    let root = Record {
        file_type: FileType::Directory,
        parent: Ino::ROOT,
        mode: 0o755,
        uid: 0,
        gid: 0,
        nlink: 2,
        size: 0,
        times: [amphi_rt::time::wall_ns(); 3],
        generation: 0,
        rdev: 0,
        pages: 0,
        entries: 0,
        target: Vec::new(),
        attributes: Vec::new(),
    };
    (Key::Inode(Ino::ROOT), Some(Value::Inode(Box::new(root))))
}

impl<D: BlockPort + 'static> Toy<D> {
    /// Mounts the one on a device: reads its log, and deletes the orphans of the last mount.
    ///
    /// # Errors
    /// As `read_super`; [`amphi_volume::Error::Damaged`].
    pub fn open(device: &Arc<D>, options: Options) -> amphi_volume::Result<Self> {
        let map = Map::recover(Log::new(Arc::clone(device), read_super(&**device)?))?;
        let read_only = options.read_only;
        let (mut used, mut last, mut pages, mut cookie, mut orphans) = (0, 0, 0, FIRST_COOKIE, Vec::new());
        map.scan(Key::Inode(Ino(0)), Key::Orphan(Ino(u64::MAX)), |key, _| {
            match key {
                Key::Inode(ino) => (used, last) = (used + 1, ino.0),
                Key::Page(..) => pages += 1,
                Key::Entry(_, at) => cookie = cookie.max(at + 1),
                Key::Orphan(ino) => orphans.push(*ino),
                Key::Name(..) => {}
            }
            true
        });
        let toy = Self {
            names: Names::new(options),
            device: Arc::clone(device),
            map,
            pages: AtomicU64::new(pages),
            inodes: AtomicU64::new(used),
            free: Mutex::default(),
            next_ino: AtomicU64::new(last + 1),
            next_cookie: AtomicU64::new(cookie),
        };
        if !read_only {
            toy.map.with_superblock(|log| {
                log.superblock.mounts = log.superblock.mounts.get().saturating_add(1).into();
                log.superblock.clean = 0.into();
                log.write_superblock()
            })?;
            for ino in orphans {
                amphi_names::delete_orphan(&toy, &amphi_names::inode(&toy, ino)?)?;
            }
        }
        Ok(toy)
    }

    /// Notes that the mount has ended.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn close(self) -> Result<()> {
        if self.names.health.writable().is_err() {
            return Ok(());
        }
        amphi_names::write_all_atimes(&self)?;
        self.map.with_superblock(|log| {
            log.superblock.clean = 1.into();
            log.write_superblock()
        })
    }

    /// The device.
    pub fn device(&self) -> &Arc<D> {
        &self.device
    }

    /// What the superblock says.
    pub(crate) fn superblock(&self) -> Result<Superblock> {
        self.map.with_superblock(|log| Ok(log.superblock))
    }

    /// Takes `count` pages.
    pub fn take_pages(&self, count: u64) -> Result<()> {
        let most = self.map.pages_max();
        let take = |used| Some(used + count).filter(|used| *used <= most);
        if !self.map.has_room_for(count * PAGE as u64) {
            return Err(Error::NoSpace);
        }
        self.pages
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, take)
            .map(drop)
            .map_err(|_| Error::NoSpace)
    }

    pub(crate) fn batch(&self) -> Batch<'_, D> {
        Batch { toy: self, updates: Vec::new(), made: None, freed: None, pages_freed: 0 }
    }
}

impl<D: BlockPort + 'static> Store for Toy<D> {
    type Part = Part;
    type Slot = u64;
    type Place = ();
    type Change<'a> = Batch<'a, D>;

    fn names(&self) -> &Names<Part> {
        &self.names
    }

    fn inodes_max(&self) -> u64 {
        INODES
    }

    fn load(&self, ino: Ino) -> Result<Inode> {
        let inode = self.map.get(&Key::Inode(ino), |value| {
            let Value::Inode(record) = value else { unreachable!("an inode's key has an inode") };
            let record = Record::clone(record);
            let [atime, mtime, ctime] = record.times;
            let state = State {
                file_type: record.file_type,
                mode: record.mode,
                uid: record.uid,
                gid: record.gid,
                nlink: record.nlink,
                size: record.size,
                atime,
                mtime,
                ctime,
                generation: record.generation,
                rdev: record.rdev,
                attributes: None,
                orphan: false,
                unnamed: false,
                gone: false,
                atime_dirty: false,
                part: Part { pages: record.pages, entries: record.entries, target: record.target },
            };
            Inode::new(ino, record.parent, state)
        });
        inode.ok_or(Error::Stale(ino))
    }

    fn find(&self, dir: &Inode, _: &State, name: Name<'_>) -> Result<Option<Found<u64>>> {
        let cookie = self.map.get(&Key::Name(dir.ino, name.bytes().to_vec()), |value| match value {
            Value::Name(cookie) => *cookie,
            _ => unreachable!("a name's key has a cookie"),
        });
        let found = |cookie| {
            self.map.get(&Key::Entry(dir.ino, cookie), |value| match value {
                Value::Entry(_, child) => Found { slot: cookie, child: *child },
                _ => unreachable!("an entry's key has an entry"),
            })
        };
        Ok(cookie.and_then(found))
    }

    fn place(&self, _: &Inode, _: &State, _: Name<'_>) -> Result<()> {
        Ok(())
    }

    fn is_empty(&self, _: &Inode, state: &State) -> Result<bool> {
        Ok(state.entries == 0)
    }

    fn list(&self, dir: &Inode, _: &State, cookie: u64, sink: &mut DirSink<'_>) -> Result<()> {
        self.map.scan(Key::Entry(dir.ino, cookie), Key::Entry(dir.ino, u64::MAX), |key, value| {
            let (Key::Entry(_, at), Value::Entry(name, Child { ino, file_type })) = (key, value) else {
                unreachable!("an entry's key has an entry")
            };
            sink(DirEntry { ino: *ino, file_type: *file_type, name, next_cookie: at + 1 })
        });
        Ok(())
    }

    fn target(link: &State) -> &[u8] {
        &link.target
    }

    fn attributes(&self, ino: Ino, _: &mut State) -> Result<Attributes> {
        let kept = self.map.get(&Key::Inode(ino), |value| match value {
            Value::Inode(record) => record.attributes.clone(),
            _ => unreachable!("an inode's key has an inode"),
        });
        kept.ok_or(Error::Stale(ino))
    }

    fn resize(
        &self,
        inode: &Arc<Inode>,
        state: &mut State,
        size: u64,
        apply: impl FnOnce(&mut Batch<'_, D>, &mut State) -> Result<()>,
    ) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        let mut change = self.begin(&Need::NOTHING)?;
        apply(&mut change, state)?;
        if size < state.size {
            change.cut(inode.ino, state, size);
        }
        state.size = size;
        change.write_inode(inode, state, Changed::Contents)?;
        change.commit()
    }

    fn deletes_at_once(&self, state: &State) -> bool {
        state.pages <= STEP_PAGES as u64
    }

    fn begin(&self, need: &Need<'_, Self>) -> Result<Batch<'_, D>> {
        self.names.health.writable()?;
        let bytes =
            |list: &Attributes| list.iter().map(|(name, value)| name.len() + value.len() + 8).sum::<usize>();
        if need.attributes.is_some_and(|(list, _)| bytes(list) > ATTRIBUTE_BYTES_MAX) {
            return Err(Error::NoSpace);
        }
        let grows = need.new.is_some() || need.place.is_some() || need.attributes.is_some();
        if grows && !self.map.has_room_for(CHANGE_BYTES) {
            return Err(Error::NoSpace);
        }
        Ok(self.batch())
    }
}

/// A change: updates that take effect together.
pub struct Batch<'a, D: BlockPort + 'static> {
    toy: &'a Toy<D>,
    updates: Vec<Update>,
    made: Option<Ino>,
    freed: Option<Ino>,
    pages_freed: u64,
}

impl<D: BlockPort + 'static> Batch<'_, D> {
    /// Changes the bytes of a page, which may be a hole.
    pub fn edit(&mut self, ino: Ino, page: u64, body: impl FnOnce(&mut [u8; PAGE])) {
        let there = self.toy.map.get(&Key::Page(ino, page), |value| match value {
            Value::Page(bytes) => bytes.clone(),
            _ => unreachable!("a page's key has a page"),
        });
        let mut bytes = there.unwrap_or_else(|| Box::new([0; PAGE]));
        body(&mut bytes);
        self.updates.push((Key::Page(ino, page), Some(Value::Page(bytes))));
    }

    /// Frees the pages of a file behind `size`, and clears what is behind it in its page.
    pub fn cut(&mut self, ino: Ino, state: &mut State, size: u64) {
        let (page, within) = (size / PAGE as u64, (size % PAGE as u64) as usize);
        let first = size.div_ceil(PAGE as u64);
        if within > 0 && self.toy.map.get(&Key::Page(ino, page), |_| ()).is_some() {
            self.edit(ino, page, |bytes| bytes[within..].fill(0));
        }
        self.free_pages(ino, state, first, u64::MAX);
    }

    /// Frees the pages `first ..= last` of a file.
    pub fn free_pages(&mut self, ino: Ino, state: &mut State, first: u64, last: u64) {
        let mut keys = Vec::new();
        self.toy.map.scan(Key::Page(ino, first), Key::Page(ino, last), |key, _| {
            keys.push(key.clone());
            true
        });
        self.free_keys(state, keys);
    }

    fn free_keys(&mut self, state: &mut State, keys: Vec<Key>) {
        state.pages -= keys.len() as u64;
        self.pages_freed += keys.len() as u64;
        self.updates.extend(keys.into_iter().map(|key| (key, None)));
    }

    fn entry(&mut self, dir: &Inode, name: Name<'_>, child: Child, cookie: u64) {
        let value = Value::Entry(name.bytes().to_vec(), child);
        self.updates.push((Key::Entry(dir.ino, cookie), Some(value)));
    }
}

impl<D: BlockPort + 'static> Change<Toy<D>> for Batch<'_, D> {
    fn new_inode(&mut self, _: &Inode, new: &NewInode<'_>) -> Result<(Ino, Part)> {
        let toy = self.toy;
        let take = |used| Some(used + 1).filter(|used| *used < INODES);
        toy.inodes.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).map_err(|_| Error::NoInodes)?;
        let free = toy.free.lock().pop();
        let ino = free.unwrap_or_else(|| Ino(toy.next_ino.fetch_add(1, Ordering::Relaxed)));
        self.made = Some(ino);
        Ok((ino, Part { target: new.target.to_vec(), ..Part::default() }))
    }

    fn insert(&mut self, dir: &Inode, state: &mut State, (): (), name: Name<'_>, child: Child) -> Result<()> {
        let cookie = self.toy.next_cookie.fetch_add(1, Ordering::Relaxed);
        self.entry(dir, name, child, cookie);
        self.updates.push((Key::Name(dir.ino, name.bytes().to_vec()), Some(Value::Name(cookie))));
        state.entries += 1;
        Ok(())
    }

    fn remove(&mut self, dir: &Inode, state: &mut State, slot: u64, name: Name<'_>) -> Result<()> {
        self.updates.push((Key::Name(dir.ino, name.bytes().to_vec()), None));
        self.updates.push((Key::Entry(dir.ino, slot), None));
        state.entries -= 1;
        Ok(())
    }

    fn replace(&mut self, dir: &Inode, _: &mut State, slot: u64, name: Name<'_>, child: Child) -> Result<()> {
        self.entry(dir, name, child, slot);
        Ok(())
    }

    fn reparent(&mut self, _: &Inode, _: &mut State) -> Result<()> {
        // It is in the inode, which is written.
        Ok(())
    }

    fn set_attributes(&mut self, _: Ino, _: &mut State, _: &Attributes) -> Result<()> {
        // They are in the inode, which is written.
        Ok(())
    }

    fn write_inode(&mut self, inode: &Inode, state: &mut State, _: Changed) -> Result<()> {
        state.atime_dirty = false;
        let attributes = match &state.attributes {
            Some(attributes) => attributes.clone(),
            None => self.toy.attributes(inode.ino, state)?,
        };
        let record = Record {
            file_type: state.file_type,
            parent: inode.parent(),
            mode: state.mode,
            uid: state.uid,
            gid: state.gid,
            nlink: state.nlink,
            size: state.size,
            times: [state.atime, state.mtime, state.ctime],
            generation: state.generation,
            rdev: state.rdev,
            pages: state.pages,
            entries: state.entries,
            target: state.target.clone(),
            attributes,
        };
        self.updates.push((Key::Inode(inode.ino), Some(Value::Inode(Box::new(record)))));
        Ok(())
    }

    fn set_orphan(&mut self, inode: &Inode, _: &mut State, orphan: bool) -> Result<()> {
        self.updates.push((Key::Orphan(inode.ino), orphan.then_some(Value::Orphan)));
        Ok(())
    }

    fn free_step(&mut self, inode: &Inode, state: &mut State) -> Result<bool> {
        let mut keys = Vec::new();
        self.toy.map.scan(Key::Page(inode.ino, 0), Key::Page(inode.ino, u64::MAX), |key, _| {
            keys.push(key.clone());
            keys.len() <= STEP_PAGES
        });
        let all = keys.len() <= STEP_PAGES;
        keys.truncate(STEP_PAGES);
        self.free_keys(state, keys);
        if all {
            self.updates.extend([(Key::Inode(inode.ino), None), (Key::Orphan(inode.ino), None)]);
            self.freed = Some(inode.ino);
        }
        Ok(all)
    }

    fn commit(mut self) -> Result<()> {
        let applied = self.toy.map.apply(std::mem::take(&mut self.updates));
        if let Err(error) = applied {
            self.toy.names.health.fail(&error);
            return Err(error);
        }
        self.made = None;
        self.toy.pages.fetch_sub(self.pages_freed, Ordering::AcqRel);
        if let Some(ino) = self.freed {
            self.toy.free.lock().push(ino);
            self.toy.inodes.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

impl<D: BlockPort + 'static> Drop for Batch<'_, D> {
    fn drop(&mut self) {
        if let Some(ino) = self.made {
            self.toy.free.lock().push(ino);
            self.toy.inodes.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
