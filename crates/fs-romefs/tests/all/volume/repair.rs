//! Every finding of a check by planted damage: what it is called, how bad it is, and what a repair makes of
//! it.

use std::sync::Arc;

use amphi_device::{BytePort, BytePortExt, Structure};
use amphi_fs_romefs::format::{
    EntryHead, InodeHead, LEAF_ENTRIES_AT, Layout, LeafHead, Map, Slot, Superblock,
};
use amphi_fs_romefs::fsck::{self, Finding, Severity};
use amphi_fs_romefs::{FormatOptions, RomeFs};
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, Error, FileSystem, FileType, Ino, WriteMode};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::small::{name, roomy, ssd};

const MEMORY: u64 = 1 << 20;
const BYTES: u64 = 16 << 20;
const BLOCK: usize = 16 << 10;

/// A file system, unmounted: `small` with a log, `large` with blocks and logs, `dir/inner`, `dir/deep/leaf`.
struct Rig {
    ssd: Arc<Ssd>,
    layout: Layout,
    small: u64,
    large: u64,
    dir: u64,
    inner: u64,
    deep: u64,
}

fn write(fs: &RomeFs<Ssd>, ino: Ino, offset: usize, bytes: &[u8]) {
    let written = fs.write(ino, offset as u64, bytes, WriteMode::default(), &Cred::ROOT);
    assert_eq!(written, Ok(bytes.len()));
}

fn read(fs: &RomeFs<Ssd>, ino: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert_eq!(fs.read(Ino(ino), 0, &mut bytes, false), Ok(len));
    bytes
}

impl Rig {
    fn new() -> Self {
        let ssd = ssd(MEMORY, BYTES);
        let format =
            FormatOptions { inodes: Some(64), block_bytes: BLOCK as u64, ..FormatOptions::default() };
        RomeFs::format(&ssd, &format).expect("it can be formatted");
        let fs = RomeFs::mount(&ssd, roomy()).expect("it can be mounted");
        let file = |dir: Ino, text: &str| {
            let made = fs.create(dir, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
            made.expect("there is room").attr.ino
        };
        let mkdir = |dir: Ino, text: &str| {
            fs.mkdir(dir, name(text), 0o755, &Cred::ROOT).expect("there is room").attr.ino
        };
        let small = file(Ino::ROOT, "small");
        write(&fs, small, 10, &[1; 300]);
        let large = file(Ino::ROOT, "large");
        write(&fs, large, 0, &[2; 3 * BLOCK]);
        write(&fs, large, 100, &[3; 5000]);
        let dir = mkdir(Ino::ROOT, "dir");
        let inner = file(dir, "inner");
        write(&fs, inner, 0, &[4; 100]);
        let deep = mkdir(dir, "deep");
        file(deep, "leaf");
        fs.unmount().expect("it is idle");
        let mut bytes = [0; size_of::<Superblock>()];
        ssd.load(0, &mut bytes, Structure::Other).expect("it is inside");
        let superblock = Superblock::read_from_bytes(&bytes).expect("a superblock's bytes");
        let layout = Layout::of(&superblock, MEMORY, BYTES).expect("it is sound");
        let rig =
            Self { ssd, layout, small: small.0, large: large.0, dir: dir.0, inner: inner.0, deep: deep.0 };
        assert_eq!(rig.findings(), [], "nothing is wrong yet");
        rig
    }

    fn load<T: FromBytes + IntoBytes + Immutable>(&self, at: u64) -> T {
        let mut bytes = vec![0; size_of::<T>()];
        self.ssd.load(at, &mut bytes, Structure::Other).expect("it is inside");
        T::read_from_bytes(&bytes).expect("its bytes")
    }

    fn store(&self, at: u64, bytes: &[u8]) {
        self.ssd.persist(at, bytes, None, Structure::Other).expect("it is inside");
    }

    fn head(&self, ino: u64, change: impl FnOnce(&mut InodeHead)) {
        let at = self.layout.inode(ino);
        let mut head: InodeHead = self.load(at);
        change(&mut head);
        self.store(at, head.as_bytes());
    }

    fn slot_at(&self, ino: u64, index: u64) -> u64 {
        self.layout.inode(ino) + 128 + index * size_of::<Slot>() as u64
    }

    fn slot(&self, ino: u64, index: u64) -> Slot {
        self.load(self.slot_at(ino, index))
    }

    /// Sets or clears a bit.
    fn bit(&self, map: Map, number: u64, on: bool) {
        let at = self.layout.map(map).at + number / 8;
        let byte: u8 = self.load(at);
        let mask = 1 << (number % 8);
        self.store(at, &[if on { byte | mask } else { byte & !mask }]);
    }

    /// Where a directory's entry for an inode is.
    fn entry(&self, dir: u64, ino: u64) -> u64 {
        let page = self.layout.page(self.slot(dir, 0).block().expect("a directory with entries has a page"));
        (0..128)
            .map(|unit| page + unit * 32)
            .find(|at| u64::from(self.load::<EntryHead>(*at).ino.get()) == ino)
            .expect("the entry is there")
    }

    fn findings(&self) -> Vec<Finding> {
        fsck::check(&self.ssd).expect("it can be checked").findings
    }

    /// The damage is found, as bad as it is, and a repair leaves nothing wrong. Mounts what is left.
    fn mended(&self, severity: Severity, is_it: impl Fn(&Finding) -> bool) -> RomeFs<Ssd> {
        let found = self.findings();
        let it = found.iter().find(|finding| is_it(finding));
        let it = it.unwrap_or_else(|| panic!("it is not among what was found: {found:?}"));
        assert_eq!(it.severity(), severity, "{it}");
        let repaired = fsck::repair(&self.ssd).expect("it can be repaired");
        assert_eq!(repaired.before.findings, found, "a check changes nothing");
        assert_eq!(repaired.after.findings, []);
        assert_eq!(self.findings(), []);
        RomeFs::mount(&self.ssd, roomy()).expect("what was mended mounts")
    }
}

/// What nobody damaged is there.
fn assert_large(fs: &RomeFs<Ssd>) {
    let large = fs.lookup(Ino::ROOT, name("large")).expect("it is there").attr;
    let wanted = [vec![2; 100], vec![3; 5000], vec![2; 3 * BLOCK - 5100]].concat();
    assert!(read(fs, large.ino.0, 3 * BLOCK) == wanted);
}

#[test]
fn a_damaged_superblock_has_a_copy() {
    let rig = Rig::new();
    rig.store(100, &[0xff; 8]);
    drop(
        RomeFs::mount(&rig.ssd, amphi_fs_romefs::MountOptions { read_only: true, ..roomy() })
            .expect("the copy"),
    );
    assert_large(&rig.mended(Severity::Error, |found| *found == Finding::SuperblockDamaged));
    // Without a copy it is said.
    rig.store(100, &[0xff; 8]);
    rig.store(256 + 100, &[0xff; 8]);
    let error = fsck::check(&rig.ssd).expect_err("there is nothing to go by").to_string();
    assert_eq!(error, "the superblock of RomeFS is damaged: its checksum does not match");
}

#[test]
fn an_inode_that_is_none_is_let_go_with_its_name() {
    let rig = Rig::new();
    rig.head(rig.small, |head| head.kind = 99);
    let fs = rig.mended(
        Severity::Error,
        |found| matches!(found, Finding::InodeDamaged { ino, .. } if *ino == rig.small),
    );
    assert_eq!(fs.lookup(Ino::ROOT, name("small")).map(|_| ()), Err(Error::NotFound));
    assert_large(&fs);
}

#[test]
fn a_mapping_that_cannot_be_keeps_the_blocks_in_the_inode() {
    let rig = Rig::new();
    rig.head(rig.large, |head| (head.root, head.depth) = (77.into(), 9));
    let damaged = |found: &Finding| matches!(found, Finding::InodeDamaged { ino, .. } if *ino == rig.large);
    assert_large(&rig.mended(Severity::Error, damaged));
}

#[test]
fn a_root_that_is_none_is_made_and_what_it_had_is_found() {
    let rig = Rig::new();
    rig.head(1, |head| head.kind = 0);
    let fs = rig.mended(Severity::Error, |found| matches!(found, Finding::InodeDamaged { ino: 1, .. }));
    let lost = fs.lookup(Ino::ROOT, name("lost+found")).expect("it was made").attr.ino;
    let small = fs.lookup(lost, name(&format!("#{}", rig.small))).expect("it was found").attr.ino;
    assert_eq!(read(&fs, small.0, 310)[10..], [1; 300]);
    let dir = fs.lookup(lost, name(&format!("#{}", rig.dir))).expect("it was found").attr.ino;
    fs.lookup(dir, name("inner")).expect("it has kept what it had");
}

#[test]
fn attributes_that_make_no_sense_are_let_go() {
    let rig = Rig::new();
    rig.head(rig.large, |head| head.attributes = 61.into());
    rig.store(rig.layout.page(60), &[0xff; 64]);
    let damaged = |found: &Finding| matches!(found, Finding::InodeDamaged { ino, .. } if *ino == rig.large);
    assert_large(&rig.mended(Severity::Error, damaged));
}

#[test]
fn an_inode_in_use_is_marked() {
    let rig = Rig::new();
    rig.bit(Map::Inodes, rig.large, false);
    let not_marked = |found: &Finding| *found == Finding::InodeNotMarked { ino: rig.large };
    assert_large(&rig.mended(Severity::Error, not_marked));
}

#[test]
fn a_block_of_two_files_stays_with_the_first() {
    let rig = Rig::new();
    let slot = Slot { leaf: 0.into(), ..rig.slot(rig.large, 1) };
    rig.store(rig.slot_at(rig.inner, 1), slot.as_bytes());
    let shared = |found: &Finding| matches!(found, Finding::Shared { ino, .. } if *ino == rig.inner);
    let fs = rig.mended(Severity::Error, shared);
    assert_large(&fs);
    assert_eq!(read(&fs, rig.inner, 100), [4; 100]);
}

#[test]
fn a_leaf_of_another_file_stays_there() {
    let rig = Rig::new();
    let leaf = rig.slot(rig.large, 0).leaf;
    rig.store(rig.slot_at(rig.inner, 2) + 8, leaf.as_bytes());
    let fs = rig.mended(Severity::Error, |found| matches!(found, Finding::Shared { map: "leaves", .. }));
    assert_large(&fs);
    drop(fs);
    let rig = Rig::new();
    let at = rig.layout.leaf(rig.slot(rig.small, 0).leaf().expect("it has logs"));
    let head: LeafHead = rig.load(at);
    rig.store(at, LeafHead { ino: 40.into(), ..head }.as_bytes());
    let of_another =
        |found: &Finding| matches!(found, Finding::LeafOfAnother { ino, block: 0 } if *ino == rig.small);
    assert_large(&rig.mended(Severity::Error, of_another));
}

#[test]
fn a_leaf_that_cannot_be_is_let_go() {
    let rig = Rig::new();
    let leaf = rig.layout.leaf(rig.slot(rig.small, 0).leaf().expect("it has logs"));
    // The size of its first log.
    rig.store(leaf + LEAF_ENTRIES_AT + 8, &u32::MAX.to_le_bytes());
    let damaged =
        |found: &Finding| matches!(found, Finding::LeafDamaged { ino, block: 0 } if *ino == rig.small);
    let fs = rig.mended(Severity::Error, damaged);
    assert_eq!(read(&fs, rig.small, 310), [0; 310], "a log that is gone reads as zeros");
    assert_large(&fs);
}

#[test]
fn counts_say_what_is_there() {
    type Damage = fn(&mut InodeHead);
    let damages: [(&str, Damage); 4] = [
        ("links", |head| head.nlink = 7.into()),
        ("entries", |head| head.entries = 9.into()),
        ("blocks", |head| head.blocks = 5.into()),
        ("log pages", |head| head.logs = 5.into()),
    ];
    for (wanted, damage) in damages {
        let rig = Rig::new();
        let ino = if wanted == "entries" { rig.dir } else { rig.large };
        rig.head(ino, damage);
        assert_large(&rig.mended(
            Severity::Error,
            |found| matches!(found, Finding::Count { ino: of, what, .. } if *of == ino && *what == wanted),
        ));
    }
}

#[test]
fn a_directory_keeps_the_entries_that_make_sense() {
    let rig = Rig::new();
    let at = rig.entry(rig.dir, rig.inner);
    let head: EntryHead = rig.load(at);
    rig.store(at, EntryHead { units: 77, ..head }.as_bytes());
    let fs = rig.mended(Severity::Error, |found| *found == Finding::DirectoryDamaged { ino: rig.dir });
    fs.lookup(Ino(rig.dir), name("deep")).expect("its entry makes sense");
    let lost = fs.lookup(Ino::ROOT, name("lost+found")).expect("it was made").attr.ino;
    fs.lookup(lost, name(&format!("#{}", rig.inner))).expect("it was found");
}

#[test]
fn an_entry_that_names_nothing_is_removed() {
    for (ino, kind) in [(60_u32, 1), (2, 2)] {
        let rig = Rig::new();
        let at = rig.entry(rig.dir, rig.inner);
        let head: EntryHead = rig.load(at);
        rig.store(at, EntryHead { ino: ino.into(), kind, ..head }.as_bytes());
        let fs = rig
            .mended(Severity::Error, |found| matches!(found, Finding::Entry { dir, .. } if *dir == rig.dir));
        assert_eq!(fs.lookup(Ino(rig.dir), name("inner")).map(|_| ()), Err(Error::NotFound));
        assert_large(&fs);
    }
}

#[test]
fn what_has_no_name_comes_to_lost_and_found() {
    for (of_dir, is_orphan) in [(false, false), (false, true), (true, false), (true, true)] {
        let rig = Rig::new();
        let (dir, ino) = if of_dir { (1, rig.dir) } else { (rig.dir, rig.inner) };
        rig.store(rig.entry(dir, ino), &[0; 32]);
        // It has links: a mount would not delete it.
        rig.bit(Map::Orphans, ino, is_orphan);
        let fs = rig.mended(Severity::Error, |found| *found == Finding::Unreachable { ino });
        let lost = fs.lookup(Ino::ROOT, name("lost+found")).expect("it was made").attr.ino;
        let found = fs.lookup(lost, name(&format!("#{ino}"))).expect("it was found").attr.ino;
        let inner =
            if of_dir { fs.lookup(found, name("inner")).expect("it is in there").attr.ino } else { found };
        assert_eq!(read(&fs, inner.0, 100), [4; 100]);
    }
}

#[test]
fn directories_in_a_ring_come_to_lost_and_found() {
    let rig = Rig::new();
    // `dir` is in `deep`, and `deep` in `dir`; the root has neither.
    rig.store(rig.entry(1, rig.dir), &[0; 32]);
    let leaf = rig.entry(rig.deep, rig.inner + 2);
    let head: EntryHead = rig.load(leaf);
    let to_dir = EntryHead { ino: (rig.dir as u32).into(), kind: 2, ..head };
    rig.store(leaf, to_dir.as_bytes());
    rig.head(rig.dir, |head| head.parent = rig.deep.into());
    let fs = rig.mended(Severity::Error, |found| matches!(found, Finding::Unreachable { .. }));
    let lost = fs.lookup(Ino::ROOT, name("lost+found")).expect("it was made").attr.ino;
    let mut names = Vec::new();
    fs.readdir(lost, 0, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    })
    .expect("it can be listed");
    assert!(names.iter().any(|name| name.starts_with('#')), "{names:?}");
}

#[test]
fn what_is_marked_and_nobodys_is_free_again() {
    for (map, number) in [(Map::Logs, 20), (Map::Blocks, 900), (Map::Leaves, 30), (Map::Pages, 60)] {
        let rig = Rig::new();
        rig.bit(map, number, true);
        assert_large(&rig.mended(Severity::Warning, |found| matches!(found, Finding::Leaked { .. })));
    }
}

#[test]
fn what_is_in_use_is_marked() {
    let rig = Rig::new();
    rig.bit(Map::Blocks, rig.slot(rig.large, 0).block().expect("it has one").into(), false);
    assert_large(&rig.mended(Severity::Error, |found| matches!(found, Finding::NotMarked { .. })));
}

#[test]
fn an_orphan_that_is_none_is_forgotten() {
    // No inode has number 0.
    for ino in [0, 50] {
        let rig = Rig::new();
        rig.bit(Map::Orphans, ino, true);
        let nothing = |found: &Finding| *found == Finding::OrphanOfNothing { ino };
        assert_large(&rig.mended(Severity::Warning, nothing));
    }
}

#[test]
fn a_directory_with_names_is_no_orphan() {
    let rig = Rig::new();
    rig.bit(Map::Orphans, rig.dir, true);
    let with_name = |found: &Finding| *found == Finding::OrphanWithName { ino: rig.dir };
    let fs = rig.mended(Severity::Warning, with_name);
    fs.lookup(Ino(rig.dir), name("inner")).expect("it has kept what it had");
}

#[test]
fn counts_that_cannot_be_are_counted_anew() {
    let rig = Rig::new();
    rig.head(rig.large, |head| head.logs = u64::MAX.into());
    rig.head(rig.dir, |head| head.entries = u64::MAX.into());
    let damaged = |found: &Finding| matches!(found, Finding::InodeDamaged { ino, .. } if *ino == rig.large);
    let fs = rig.mended(Severity::Error, damaged);
    assert_large(&fs);
    fs.lookup(Ino(rig.dir), name("inner")).expect("it has kept what it had");
}

#[test]
fn an_orphan_is_no_error_and_goes_with_the_next_mount() {
    let rig = Rig::new();
    let fs = RomeFs::mount(&rig.ssd, roomy()).expect("it can be mounted");
    let small = fs.lookup(Ino::ROOT, name("small")).expect("it is there").attr.ino;
    fs.unlink(Ino::ROOT, name("small")).expect("it is there");
    drop(fs);
    let report = fsck::check(&rig.ssd).expect("it can be checked");
    assert_eq!(report.findings, [Finding::Orphan { ino: small.0 }]);
    assert_eq!(report.findings[0].severity(), Severity::Info);
    assert!(report.is_clean());
    assert_eq!(fsck::repair(&rig.ssd).expect("it can be repaired").after.findings, []);
}
