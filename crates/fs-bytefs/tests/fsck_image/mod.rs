//! ByteFS images built by hand, straight from `format`, so that the check is tested against the format and
//! not against the file system's idea of it.
//!
//! [`Image::sample`] holds one of everything. The `edit_…` methods change a structure and renew its checksum.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod corrupt;
pub mod usage;

use std::collections::BTreeMap;

use amphi_fs_bytefs::format::*;
use amphi_fs_bytefs::fsck::{self, FindingKind, Report};
use amphi_memory_device::Memory;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Pages and inodes of most images made here.
pub const PAGES: u64 = 640;
pub const INODES: u32 = 512;
/// Pages of their data journal.
pub const JOURNAL: u32 = 12;

/// Inode numbers in [`Image::sample`].
pub const DOCS: u32 = 2;
pub const FILE: u32 = 3;
pub const BIG: u32 = 4;
pub const INLINE_LINK: u32 = 5;
pub const LONG_LINK: u32 = 6;
pub const PIPE: u32 = 7;
pub const SUB: u32 = 8;
pub const LEAF: u32 = 9;
pub const DELETED: u32 = 10;
pub const DEEP: u32 = 11;
pub const FIRST_SMALL: u32 = 100;
pub const SMALL_FILES: u32 = 70;
/// An inode number and a page that nothing in the sample uses.
pub const FREE_INODE: u32 = 250;

/// An image under construction.
#[derive(Clone)]
pub struct Image {
    pub bytes: Vec<u8>,
    pub layout: Layout,
    next_page: u32,
    dirs: BTreeMap<u32, Vec<(Vec<u8>, u32, u8)>>,
}

/// The same extent, with blocks that hold nothing yet.
pub fn reserved(extent: Extent) -> Extent {
    Extent::new(extent.file_page.get(), extent.lba.get(), extent.len(), true)
}

/// An extent, or with 0 pages a child pointer.
pub fn extent(file_page: u64, lba: u32, pages: u32) -> Extent {
    Extent { file_page: file_page.into(), lba: lba.into(), pages: pages.into() }
}

/// Breaks the sample and expects exactly these findings, which are given the sound sample.
#[track_caller]
pub fn expect(corrupt: impl FnOnce(&mut Image), findings: impl FnOnce(&Image) -> Vec<FindingKind>) {
    let sound = Image::sample();
    let mut image = sound.clone();
    corrupt(&mut image);
    assert_eq!(image.findings(), findings(&sound));
}

impl Image {
    /// An empty file system: the superblock, metadata marked used, no inode.
    pub fn empty() -> Self {
        Self::empty_of(PAGES, INODES)
    }

    /// The same with `pages` pages and `inodes` inodes.
    pub fn empty_of(pages: u64, inodes: u32) -> Self {
        let layout = Layout::plan(
            pages,
            inodes.div_ceil(pages.div_ceil(AG_PAGES) as u32).next_multiple_of(512),
            JOURNAL,
        );
        let mut image = Self {
            bytes: vec![0; pages as usize * PAGE],
            layout,
            next_page: layout.ag_data(0) as u32,
            dirs: BTreeMap::new(),
        };
        let mut sb = Superblock::new_zeroed();
        sb.magic = MAGIC;
        sb.version = VERSION.into();
        sb.page_bytes = (PAGE as u32).into();
        sb.set_layout(&layout);
        sb.label[..6].copy_from_slice(b"sample");
        sb.crc = sb.checksum().into();
        image.bytes[..size_of::<Superblock>()].copy_from_slice(sb.as_bytes());
        let mut state = SuperState::new_zeroed();
        state.clean = 1.into();
        image.bytes[SUPER_STATE_OFFSET..SUPER_STATE_OFFSET + LINE].copy_from_slice(&state.encode());
        image.set_inode_bit(0, true);
        for ag in 0..layout.ags() {
            (ag * AG_PAGES..layout.ag_data(ag)).for_each(|page| image.set_block_bit(page as u32, true));
        }
        image
    }

    /// A small tree with one of everything.
    pub fn sample() -> Self {
        let mut image = Self::empty();
        image.put_dir(ROOT_INO, ROOT_INO, 4);
        image.put_dir(DOCS, ROOT_INO, 3);
        image.put_dir(SUB, DOCS, 2);
        let (a, b) = (image.take(2), image.take(1));
        image.put_file(FILE, 2, 2 * PAGE as u64 + 5, 0, &[extent(0, a, 2), extent(2, b, 1)], 3);
        let big = image.tree(BIG, 300);
        image.put_file(BIG, 1, 600 * PAGE as u64, 1, &big, 302);
        let leaves = image.tree(DEEP, 4);
        let middle = image.node(DEEP, 1, &leaves);
        image.put_file(DEEP, 1, 8 * PAGE as u64, 2, &[extent(0, middle, 0)], 7);
        image.put_inline_link(INLINE_LINK, b"docs/sub/leaf");
        let target = image.take(1);
        image.page_mut(target)[..100].fill(b't');
        image.put_file(LONG_LINK, 1, 100, 0, &[extent(0, target, 1)], 1);
        image.edit_lower(LONG_LINK, |l| l.mode = (mode::SYMLINK | 0o777).into());
        image.put_file(PIPE, 1, 0, 0, &[], 0);
        image.edit_lower(PIPE, |l| l.mode = (mode::FIFO | 0o600).into());
        image.put_file(LEAF, 1, 0, 0, &[], 0);
        let page = image.take(1);
        image.put_file(DELETED, 0, 9, 0, &[extent(0, page, 1)], 1);
        image.set_orphan(3, DELETED);
        for ino in FIRST_SMALL..FIRST_SMALL + SMALL_FILES {
            image.put_file(ino, 1, 0, 0, &[], 0);
            image.name(DOCS, &format!("small-{ino}"), ino, mode::REGULAR);
        }
        image.put_attributes(FILE, &[("user.colour", "blue"), ("user.empty", "")]);
        image.put_attributes(INLINE_LINK, &[("trusted.x", "y")]);
        image.name(ROOT_INO, "docs", DOCS, mode::DIRECTORY);
        image.name(ROOT_INO, "file", FILE, mode::REGULAR);
        image.name(ROOT_INO, "second-name", FILE, mode::REGULAR);
        image.name(ROOT_INO, "big", BIG, mode::REGULAR);
        image.name(ROOT_INO, "deep", DEEP, mode::REGULAR);
        image.name(ROOT_INO, "link", INLINE_LINK, mode::SYMLINK);
        image.name(ROOT_INO, "long", LONG_LINK, mode::SYMLINK);
        image.name(ROOT_INO, &"n".repeat(255), PIPE, mode::FIFO);
        image.name(ROOT_INO, "empty", 12, mode::DIRECTORY);
        image.put_dir(12, ROOT_INO, 2);
        image.name(DOCS, "sub", SUB, mode::DIRECTORY);
        image.name(SUB, "leaf", LEAF, mode::REGULAR);
        image.write_dirs();
        image
    }

    /// Checks the image.
    pub fn check(&self) -> Report {
        fsck::check(&self.device(), &mut |_| ()).expect("the device does not fail")
    }

    /// A device with a copy of the image.
    pub fn device(&self) -> Memory {
        Memory::new(self.bytes.clone())
    }

    /// Every finding but information, without its severity.
    pub fn findings(&self) -> Vec<FindingKind> {
        let report = self.check();
        assert_eq!(report.findings.len() as u64, report.errors + report.warnings, "{:?}", report.findings);
        report.findings.into_iter().map(|finding| finding.kind).collect()
    }

    /// Takes `pages` consecutive free pages.
    pub fn take(&mut self, pages: u32) -> u32 {
        let ag = u64::from(self.next_page) / AG_PAGES;
        let places = [self.next_page, self.layout.ag_data(ag) as u32, self.layout.ag_data(ag + 1) as u32];
        let first = places
            .into_iter()
            .find(|first| *first >= self.next_page && self.layout.holds_data(*first, pages));
        let first = first.expect("the image has room");
        self.next_page = first + pages;
        (first..first + pages).for_each(|page| self.set_block_bit(page, true));
        first
    }

    /// A page that nothing uses.
    pub fn free_page(&self) -> u32 {
        PAGES as u32 - 1
    }

    /// Leaves of 255 and fewer one-page extents at every second file page; returns the pointers to them.
    fn tree(&mut self, ino: u32, extents: u64) -> Vec<Extent> {
        let data = self.take(extents as u32);
        let all: Vec<Extent> = (0..extents).map(|i| extent(2 * i, data + i as u32, 1)).collect();
        let per_leaf = if extents > 255 { 255 } else { 3 };
        all.chunks(per_leaf).map(|leaf| extent(leaf[0].file_page.get(), self.node(ino, 0, leaf), 0)).collect()
    }

    fn node(&mut self, ino: u32, depth: u16, entries: &[Extent]) -> u32 {
        let page = self.take(1);
        NodeHeader::encode(self.page_mut(page), ino, depth, entries);
        page
    }

    pub fn put_inode(&mut self, ino: u32, lower: InodeLower, upper: InodeUpper) {
        let at = self.layout.inode_address(ino) as usize;
        self.bytes[at..at + LINE].copy_from_slice(&lower.encode(ino));
        self.bytes[at + LINE..at + 2 * LINE].copy_from_slice(&upper.encode(ino));
        self.set_inode_bit(ino, true);
    }

    pub fn put_file(&mut self, ino: u32, nlink: u32, size: u64, depth: u16, root: &[Extent], pages: u32) {
        let mut lower = InodeLower::new_zeroed();
        lower.mode = (mode::REGULAR | 0o644).into();
        lower.nlink = nlink.into();
        lower.size = size.into();
        lower.pages = pages.into();
        let mut upper = InodeUpper::new_zeroed();
        upper.depth = depth.into();
        upper.count = (root.len() as u16).into();
        upper.root[..root.len()].copy_from_slice(root);
        self.put_inode(ino, lower, upper);
    }

    pub fn put_dir(&mut self, ino: u32, parent: u32, nlink: u32) {
        self.put_file(ino, nlink, 0, 0, &[], 0);
        self.edit_lower(ino, |l| l.mode = (mode::DIRECTORY | 0o755).into());
        self.edit_upper(ino, |u| u.parent_or_rdev = parent.into());
        self.dirs.entry(ino).or_default();
    }

    pub fn put_inline_link(&mut self, ino: u32, target: &[u8]) {
        self.put_file(ino, 1, target.len() as u64, 0, &[], 0);
        self.edit_lower(ino, |l| {
            l.mode = (mode::SYMLINK | 0o777).into();
            l.flags = FLAG_INLINE_TARGET.into();
        });
        self.edit_upper(ino, |u| {
            u.count = (target.len() as u16).into();
            u.root.as_mut_bytes()[..target.len()].copy_from_slice(target);
        });
    }

    /// Gives an inode extended attributes.
    pub fn put_attributes(&mut self, ino: u32, attributes: &[(&str, &str)]) {
        let page = self.take(1);
        self.write_attributes(page, ino, attributes);
        self.edit_upper(ino, |u| u.xattr = page.into());
        self.edit_lower(ino, |l| l.pages = (l.pages.get() + 1).into());
    }

    /// Writes a page of extended attributes that says it is inode `ino`'s.
    pub fn write_attributes(&mut self, page: u32, ino: u32, attributes: &[(&str, &str)]) {
        let attributes: Vec<_> = attributes.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        XattrHeader::encode(self.page_mut(page), ino, &attributes).expect("they fit");
    }

    /// Adds a name to a directory; [`write_dirs`](Self::write_dirs) writes it.
    pub fn name(&mut self, dir: u32, name: &str, ino: u32, kind: u16) {
        self.dirs.get_mut(&dir).expect("a directory").push((name.into(), ino, (kind >> 12) as u8));
    }

    /// Writes every directory's entries: pages are consecutive, entries do not cross them, gaps are free
    /// entries.
    pub fn write_dirs(&mut self) {
        for (dir, names) in std::mem::take(&mut self.dirs) {
            let mut contents: Vec<u8> = Vec::new();
            for (name, ino, kind) in names {
                let lines = dirent_lines(name.len());
                let left = (PAGE - contents.len() % PAGE) / LINE;
                if left < lines {
                    let free =
                        DirentHeader { ino: 0.into(), file_type: 0, lines: left as u8, name_bytes: 0.into() };
                    contents.extend_from_slice(free.as_bytes());
                    contents.resize(contents.len().next_multiple_of(PAGE), 0);
                }
                let header = DirentHeader {
                    ino: ino.into(),
                    file_type: kind,
                    lines: lines as u8,
                    name_bytes: (name.len() as u16).into(),
                };
                contents.extend_from_slice(header.as_bytes());
                contents.extend_from_slice(&name);
                contents.resize(contents.len().next_multiple_of(LINE), 0);
            }
            let pages = contents.len().div_ceil(PAGE) as u32;
            if pages > 0 {
                let first = self.take(pages);
                self.bytes[first as usize * PAGE..][..contents.len()].copy_from_slice(&contents);
                self.edit_upper(dir, |u| {
                    u.count = 1.into();
                    u.root[0] = extent(0, first, pages);
                });
            }
            self.edit_lower(dir, |l| {
                l.size = (contents.len() as u64).into();
                l.pages = pages.into();
            });
        }
    }

    pub fn lower(&self, ino: u32) -> InodeLower {
        let at = self.layout.inode_address(ino) as usize;
        InodeLower::read_from_bytes(&self.bytes[at..at + LINE]).expect("64 bytes")
    }

    pub fn upper(&self, ino: u32) -> InodeUpper {
        let at = self.layout.inode_address(ino) as usize + LINE;
        InodeUpper::read_from_bytes(&self.bytes[at..at + LINE]).expect("64 bytes")
    }

    pub fn edit_lower(&mut self, ino: u32, edit: impl FnOnce(&mut InodeLower)) {
        let mut lower = self.lower(ino);
        edit(&mut lower);
        let at = self.layout.inode_address(ino) as usize;
        self.bytes[at..at + LINE].copy_from_slice(&lower.encode(ino));
    }

    pub fn edit_upper(&mut self, ino: u32, edit: impl FnOnce(&mut InodeUpper)) {
        let mut upper = self.upper(ino);
        edit(&mut upper);
        let at = self.layout.inode_address(ino) as usize + LINE;
        self.bytes[at..at + LINE].copy_from_slice(&upper.encode(ino));
    }

    pub fn page(&self, page: u32) -> &[u8; PAGE] {
        self.bytes[page as usize * PAGE..][..PAGE].try_into().expect("a page")
    }

    pub fn page_mut(&mut self, page: u32) -> &mut [u8; PAGE] {
        (&mut self.bytes[page as usize * PAGE..][..PAGE]).try_into().expect("a page")
    }

    /// Changes the entries of the extent node at `page`.
    pub fn edit_node(&mut self, page: u32, edit: impl FnOnce(&mut Vec<Extent>)) {
        let mut entries = Vec::new();
        let (ino, depth) = self.read_node(page, &mut entries).expect("a sound node");
        edit(&mut entries);
        NodeHeader::encode(self.page_mut(page), ino, depth, &entries);
    }

    /// Whether a page starts as an extent node does.
    pub fn is_node(&self, page: u32) -> bool {
        self.page(page)[..4] == NODE_MAGIC.to_le_bytes()
    }

    /// Reads the node at `page` into `entries` and returns its owner and depth; `None` if it is not sound.
    pub fn read_node(&self, page: u32, entries: &mut Vec<Extent>) -> Option<(u32, u16)> {
        let (header, _) = NodeHeader::read_from_prefix(self.page(page)).ok()?;
        let (ino, depth) = (header.ino.get(), header.depth.get());
        entries.extend_from_slice(NodeHeader::decode(self.page(page), ino, depth).ok()?);
        Some((ino, depth))
    }

    /// Byte address of the entry called `name` in `dir`, whose contents are one extent.
    pub fn entry(&self, dir: u32, name: &str) -> usize {
        let first = self.upper(dir).root[0].lba.get() as usize * PAGE;
        let mut at = first;
        while at < first + self.lower(dir).size.get() as usize {
            let (header, rest) = DirentHeader::read_from_prefix(&self.bytes[at..]).expect("in the image");
            if header.ino.get() != 0 && &rest[..usize::from(header.name_bytes.get())] == name.as_bytes() {
                return at;
            }
            at += usize::from(header.lines) * LINE;
        }
        panic!("no entry {name}");
    }

    pub fn edit_entry(&mut self, dir: u32, name: &str, edit: impl FnOnce(&mut DirentHeader, &mut [u8])) {
        let at = self.entry(dir, name);
        let (header, rest) = DirentHeader::mut_from_prefix(&mut self.bytes[at..]).expect("in the image");
        let len = usize::from(header.lines) * LINE - DIRENT_HEADER;
        edit(header, &mut rest[..len]);
    }

    fn set_bit(&mut self, (page, bit): (u64, u64), on: bool) {
        let byte = &mut self.bytes[page as usize * PAGE + bit as usize / 8];
        *byte = if on { *byte | 1 << (bit % 8) } else { *byte & !(1 << (bit % 8)) };
    }

    pub fn inode_bit(&self, ino: u32) -> bool {
        let (page, bit) = self.layout.inode_bit(ino);
        self.bytes[page as usize * PAGE + bit as usize / 8] >> (bit % 8) & 1 == 1
    }

    pub fn set_inode_bit(&mut self, ino: u32, on: bool) {
        self.set_bit(self.layout.inode_bit(ino), on);
    }

    pub fn set_block_bit(&mut self, page: u32, on: bool) {
        self.set_bit(self.layout.block_bit(u64::from(page)), on);
    }

    /// First page that a file may use.
    pub fn data(&self) -> u32 {
        self.layout.ag_data(0) as u32
    }

    pub fn set_orphan(&mut self, slot: u32, ino: u32) {
        let at = self.layout.orphans as usize * PAGE + slot as usize * 4;
        self.bytes[at..at + 4].copy_from_slice(&ino.to_le_bytes());
    }
}

/// The seeds that the environment asks for.
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    match number("AMPHI_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("AMPHI_SEEDS").unwrap_or(usual),
    }
}
