//! What the check finds of planted damage, and what a repair makes of it: one test for each finding. And
//! that a check and a read-only mount write nothing.

use std::sync::Arc;

use amphi_device::{BlockPort, BytePort, Lpa, PAGE_BYTES, Structure};
use amphi_fs_augefs::format::{
    Address, EntryRecord, InodeRecord, Key, Layout, NatBlock, NodeBlock, SuperRecord, Superblock,
    decode_entry, encode_entry, key, name_hash,
};
use amphi_fs_augefs::{AugeFs, FormatOptions, MountOptions, fsck, info};
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, WriteMode, XattrMode};
use amphi_volume::{Repair, Severity, Volume};
use zerocopy::{FromBytes, IntoBytes};

use crate::small::{self, name, roomy};

/// Numbers of what [`made`] makes, and one that nobody has.
const FILE: u64 = 2;
const OTHER: u64 = 3;
const DIR: u64 = 4;
const SUB: u64 = 5;
const INNER: u64 = 6;
const NOBODY: u64 = 50;

const FILE_BYTES: usize = 20_000;
const ROOT: u64 = Ino::ROOT.0;
type Store = amphi_lsm::Store<Ssd>;

/// A file system with a file, another one with two names, and a file below two directories.
fn mounted() -> AugeFs<Ssd> {
    let ssd = small::ssd(128 << 10, 4 << 20);
    let format =
        FormatOptions { domains: 2, segment_blocks: 8, meta_pages: Some(256), ..FormatOptions::default() };
    AugeFs::format(&ssd, &format).expect("it can be formatted");
    let fs = AugeFs::mount(&ssd, roomy()).expect("it can be mounted");
    let dir = |parent, text, ino| {
        let made = fs.mkdir(Ino(parent), name(text), 0o755, &Cred::ROOT);
        assert_eq!(made.expect("there is room").attr.ino, Ino(ino));
    };
    let file = |dir, text, ino| {
        let made = fs.create(Ino(dir), name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
        assert_eq!(made.expect("there is room").attr.ino, Ino(ino));
        let bytes = [ino as u8; FILE_BYTES];
        assert_eq!(fs.write(Ino(ino), 0, &bytes, WriteMode::default(), &Cred::ROOT), Ok(FILE_BYTES));
        fs.fsync(Ino(ino), false).expect("the device works");
    };
    file(ROOT, "file", FILE);
    file(ROOT, "other", OTHER);
    fs.link(Ino(OTHER), Ino::ROOT, name("second")).expect("it can have another name");
    dir(ROOT, "dir", DIR);
    dir(DIR, "sub", SUB);
    file(SUB, "inner", INNER);
    fs
}

fn made() -> Arc<Ssd> {
    let fs = mounted();
    let ssd = Arc::clone(fs.device());
    fs.unmount().expect("it is idle");
    ssd
}

fn store(ssd: &Arc<Ssd>) -> Store {
    Store::open(Arc::clone(ssd), Lpa(Layout::META_FIRST), amphi_lsm::Options::default())
        .expect("it was a store")
}

fn put(ssd: &Arc<Ssd>, key: &[u8], value: &[u8]) {
    store(ssd).put(key, value).expect("it can be changed");
}

fn put_entry(ssd: &Arc<Ssd>, of: Key<'_>, entry: &EntryRecord) {
    put(ssd, &key(of), &encode_entry(entry));
}

fn delete(ssd: &Arc<Ssd>, of: Key<'_>) {
    store(ssd).delete(&key(of)).expect("it can be changed");
}

fn entry(ssd: &Arc<Ssd>, of: Key<'_>) -> EntryRecord {
    let value = store(ssd).get(&key(of)).expect("it can be read").expect("it is there");
    decode_entry(&value).expect("it has sense")
}

fn edit(ssd: &Arc<Ssd>, of: Key<'_>, change: impl FnOnce(&mut InodeRecord)) {
    let EntryRecord::Inode(mut record, target) = entry(ssd, of) else { panic!("{of:?} is no inode") };
    change(&mut record);
    put_entry(ssd, of, &EntryRecord::Inode(record, target));
}

/// Changes the only value under keys with a prefix that `is_it` knows.
fn edit_value(ssd: &Arc<Ssd>, prefix: &[u8], is_it: impl Fn(&[u8]) -> bool, change: impl FnOnce(&mut [u8])) {
    let store = store(ssd);
    let all = store.range(prefix, None).expect("it can be read").map(|found| found.expect("it can be read"));
    let (key, mut value) = all
        .take_while(|(key, _)| key.starts_with(prefix))
        .find(|(_, value)| is_it(value))
        .expect("there is one");
    change(&mut value);
    store.put(&key, &value).expect("it can be changed");
}

const FILE_ENTRY: Key<'_> = Key::Entry(ROOT, b"file");
const DIR_ENTRY: Key<'_> = Key::Entry(ROOT, b"dir");

fn page(ssd: &Ssd, at: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    ssd.read(Lpa(at), &mut page, Structure::Other).expect("it is inside");
    page
}

/// The block of the first node of `file`, and the file system's mark.
fn node_block(ssd: &Arc<Ssd>) -> (u64, u32, u64) {
    let EntryRecord::Inode(record, _) = entry(ssd, FILE_ENTRY) else { panic!("it is a file") };
    let nid = record.nodes[0].get();
    let layout = info(&**ssd).expect("it is an AugeFS").layout;
    let superblock = page(ssd, 0);
    let (superblock, _) = Superblock::read_from_prefix(&superblock).expect("a page is larger");
    let salt = superblock.origin.salt.get();
    let number = nid / amphi_fs_augefs::format::NAT_ENTRIES as u32;
    let copies = [0, 1].map(|copy| page(ssd, layout.nat_first + 2 * u64::from(number) + copy));
    let nat = copies.iter().filter_map(|page| NatBlock::decode(page, salt, number));
    let (.., nat) = nat.max_by_key(|(_, version, _)| *version).expect("the domain has a NAT block");
    let block = nat.entries[nid as usize % nat.entries.len()].block().expect("it has a node");
    (layout.main_first() + u64::from(block), block, salt)
}

fn edit_node(ssd: &Arc<Ssd>, change: impl FnOnce(&mut NodeBlock, u32)) {
    let (at, block, salt) = node_block(ssd);
    let mut node = NodeBlock::decode(&page(ssd, at), salt).expect("it is a node");
    change(&mut node, block);
    node.seal(salt);
    ssd.write(Lpa(at), node.as_bytes(), Structure::Other).expect("it is inside");
}

fn repaired(ssd: &Arc<Ssd>) -> Repair {
    <AugeFs<Ssd> as Volume<Ssd>>::repair(ssd, &mut |_| ()).expect("the SSD works")
}

/// Whether `path` holds what [`made`] wrote to `ino`.
fn holds(ssd: &Arc<Ssd>, path: &[&str], ino: u64) -> bool {
    let fs = AugeFs::mount(ssd, roomy()).expect("what was mended mounts");
    let found = path.iter().try_fold(Ino::ROOT, |dir, text| Some(fs.lookup(dir, name(text)).ok()?.attr.ino));
    let mut bytes = vec![0; FILE_BYTES + 1];
    let is_there = found.is_some_and(|found| {
        fs.read(found, 0, &mut bytes, false) == Ok(FILE_BYTES)
            && bytes[..FILE_BYTES] == [ino as u8; FILE_BYTES]
    });
    fs.unmount().expect("it is idle");
    is_there
}

/// Damages a file system; the check must say `sentence`, and a repair leave nothing wrong and all files
/// whole but `hurt`.
fn mends(severity: Severity, sentence: &str, hurt: u64, damage: impl FnOnce(&Arc<Ssd>)) -> Arc<Ssd> {
    let ssd = made();
    damage(&ssd);
    let Repair { before, after } = repaired(&ssd);
    let found = before.findings.iter().any(|(bad, says)| *bad == severity && says.contains(sentence));
    assert!(found, "{sentence}: {:?}", before.findings);
    assert!(after.is_clean() && after.cleanly_unmounted, "{sentence}: {:?}", after.findings);
    assert!(repaired(&ssd).before.is_clean(), "it stays so");
    let paths: [(&[&str], u64); 4] =
        [(&["file"], FILE), (&["other"], OTHER), (&["second"], OTHER), (&["dir", "sub", "inner"], INNER)];
    for (path, ino) in paths.iter().filter(|(_, ino)| *ino != hurt) {
        assert!(holds(&ssd, path, *ino), "{sentence}: {path:?}");
    }
    ssd
}

fn mends_error(sentence: &str, hurt: u64, damage: impl FnOnce(&Arc<Ssd>)) -> Arc<Ssd> {
    mends(Severity::Error, sentence, hurt, damage)
}

#[test]
fn keys_that_are_too_short_go() {
    mends_error("a key is too short", NOBODY, |ssd| put(ssd, b"m:abc", b"?"));
    mends_error("a key of directory 1 is too short", NOBODY, |ssd| {
        put(ssd, &[b"m:", &ROOT.to_be_bytes()[..]].concat(), b"?");
    });
}

#[test]
fn an_entry_under_another_hash_comes_under_its_own() {
    mends_error("stands under another hash", NOBODY, |ssd| {
        let right = key(FILE_ENTRY);
        let value = store(ssd).get(&right).expect("it can be read").expect("it is there");
        delete(ssd, FILE_ENTRY);
        let wrong = (name_hash(b"file") ^ 256).to_be_bytes();
        put(ssd, &[&right[..11], &wrong, b"file"].concat(), &value);
    });
}

#[test]
fn names_that_no_file_can_have_go() {
    for text in [&b".."[..], b"a/b"] {
        mends_error("directory 1 has a name that no file can have", 0, |ssd| {
            let EntryRecord::Inode(mut record, target) = entry(ssd, FILE_ENTRY) else { panic!("an inode") };
            record.ino = NOBODY.into();
            (record.nodes, record.blocks, record.entries) = (<_>::default(), 0.into(), 0.into());
            put_entry(ssd, Key::Entry(ROOT, text), &EntryRecord::Inode(record, target));
        });
    }
}

#[test]
fn an_entry_without_sense_goes_with_what_stood_there() {
    let ssd = mends_error("an entry of directory 1 has no sense", FILE, |ssd| {
        put(ssd, &key(FILE_ENTRY), &[9]);
    });
    assert!(!holds(&ssd, &["file"], FILE));
}

#[test]
fn an_inode_that_stands_twice_stands_once() {
    let ssd = mends_error("inode 2 stands under two names", NOBODY, |ssd| {
        let twice = entry(ssd, FILE_ENTRY);
        put_entry(ssd, Key::Entry(ROOT, b"again"), &twice);
    });
    assert!(holds(&ssd, &["again"], FILE), "no name is lost");
    mends_error("inode 2 stands under a name and by its number", NOBODY, |ssd| {
        let twice = entry(ssd, FILE_ENTRY);
        put_entry(ssd, Key::Inode(FILE), &twice);
    });
}

#[test]
fn what_stands_by_a_number_is_written_anew() {
    mends_error("what stands by number 2 has no sense", NOBODY, |ssd| put(ssd, &key(Key::Inode(FILE)), &[9]));
    mends_error("inode 2 is not where its locator says", NOBODY, |ssd| {
        put_entry(ssd, Key::Inode(FILE), &EntryRecord::Locator(Ino(ROOT), b"elsewhere".to_vec()));
    });
}

#[test]
fn a_name_of_nothing_goes() {
    let ghost = EntryRecord::Reference(Ino(NOBODY), FileType::Regular);
    mends_error("inode 50 is named or has entries, and is not there", NOBODY, |ssd| {
        put_entry(ssd, Key::Entry(ROOT, b"ghost"), &ghost);
    });
}

#[test]
fn what_directories_and_files_count_is_counted() {
    mends_error("directory 4 is not where it says that it is", NOBODY, |ssd| {
        edit(ssd, DIR_ENTRY, |dir| dir.parent = NOBODY.into());
    });
    mends_error("directory 4 has 1 entries and says 7", NOBODY, |ssd| {
        edit(ssd, DIR_ENTRY, |dir| dir.entries = 7.into());
    });
    mends_error("directory 4 has 9 links, and should have 3", NOBODY, |ssd| {
        edit(ssd, DIR_ENTRY, |dir| dir.head.nlink = 9.into());
    });
    mends_error("inode 2 has 1 names and 9 links", NOBODY, |ssd| {
        edit(ssd, FILE_ENTRY, |file| file.head.nlink = 9.into());
    });
    mends_error("inode 2 has 5 blocks and says that it has 77", NOBODY, |ssd| {
        edit(ssd, FILE_ENTRY, |file| file.blocks = 77.into());
    });
}

#[test]
fn what_no_inode_can_be_becomes_what_one_can() {
    mends_error("the size of inode 2 makes no sense", FILE, |ssd| {
        edit(ssd, FILE_ENTRY, |record| record.head.size = u64::MAX.into());
    });
    mends_error("a count of inode 4 makes no sense", 0, |ssd| {
        edit(ssd, DIR_ENTRY, |record| record.blocks = u64::MAX.into());
    });
}

#[test]
fn attributes_without_sense_go() {
    mends_error("the attributes of inode 2 make no sense", 0, |ssd| {
        put(ssd, &key(Key::Attributes(FILE)), &[7; 5]);
    });
    mends(Severity::Warning, "there are attributes of inode 50, which is not there", 0, |ssd| {
        put(ssd, &key(Key::Attributes(NOBODY)), &[]);
    });
}

#[test]
fn entries_below_a_file_go() {
    mends_error("inode 2 is no directory and has entries", NOBODY, |ssd| {
        let inner = EntryRecord::Reference(Ino(OTHER), FileType::Regular);
        put_entry(ssd, Key::Entry(FILE, b"x"), &inner);
    });
}

#[test]
fn what_has_no_name_comes_to_lost_and_found() {
    let without = "inode 3 has no name, and is not among the orphans";
    let ssd = mends(Severity::Warning, without, OTHER, |ssd| {
        delete(ssd, Key::Entry(ROOT, b"other"));
        delete(ssd, Key::Entry(ROOT, b"second"));
    });
    assert!(holds(&ssd, &["lost+found", "#3"], OTHER));
    // A directory that has come below itself.
    let ssd = mends_error("inode 4 cannot be reached from the root", INNER, |ssd| {
        edit(ssd, DIR_ENTRY, |dir| dir.parent = SUB.into());
        let dir = entry(ssd, DIR_ENTRY);
        put_entry(ssd, Key::Entry(SUB, b"dir"), &dir);
        delete(ssd, DIR_ENTRY);
        put_entry(ssd, Key::Inode(DIR), &EntryRecord::Locator(Ino(SUB), b"dir".to_vec()));
    });
    assert!(holds(&ssd, &["lost+found", "#4", "sub", "inner"], INNER));
}

#[test]
fn what_has_a_name_is_no_orphan() {
    mends_error("inode 2 has a name, and is among the orphans", NOBODY, |ssd| {
        put(ssd, &key(Key::Orphan(FILE)), &[]);
    });
}

#[test]
fn inodes_are_counted() {
    mends(Severity::Warning, "there are 6 inodes, and 77 are counted", NOBODY, |ssd| {
        let value = store(ssd).get(&key(Key::Super)).expect("it can be read").expect("it is there");
        let mut record = SuperRecord::read_from_bytes(&value).expect("it has sense");
        record.inodes = 77.into();
        put(ssd, &key(Key::Super), record.as_bytes());
    });
}

#[test]
fn nodes_that_are_not_a_files_go() {
    mends_error("of inode 2 is another's", FILE, |ssd| edit_node(ssd, |node, _| node.head.index = 5.into()));
    mends_error("node", FILE, |ssd| {
        let (at, ..) = node_block(ssd);
        ssd.write(Lpa(at), &[7; PAGE_BYTES], Structure::Other).expect("it is inside");
    });
    mends(Severity::Warning, "is nobody's", FILE, |ssd| {
        edit(ssd, FILE_ENTRY, |file| (file.nodes[0], file.entries) = (0.into(), 0.into()));
    });
}

#[test]
fn pages_of_a_file_are_its_own_and_before_its_end() {
    mends_error("inode 2 has page 4 behind its end", FILE, |ssd| {
        edit(ssd, FILE_ENTRY, |file| file.head.size = 100.into());
    });
    mends_error("is used twice, by inode 2 too", FILE, |ssd| {
        edit_node(ssd, |node, _| node.addresses[1] = node.addresses[0]);
    });
    mends_error("is used twice", FILE, |ssd| {
        edit_node(ssd, |node, block| node.addresses[1] = Address::at(block));
    });
}

#[test]
fn sit_and_held_blocks_are_as_files_use_them() {
    let of_data = |value: &[u8]| value[2] == 0 && value[4..].iter().any(|byte| *byte != 0);
    mends_error("is used and invalid in the SIT of domain", NOBODY, |ssd| {
        edit_value(ssd, b"sit:", of_data, |value| value[4..].fill(0));
    });
    mends(Severity::Warning, "are valid in the SIT, and nobody's", NOBODY, |ssd| {
        edit_value(ssd, b"sit:", |value| of_data(value) && value[4] != 255, |value| value[4] = 255);
    });
    mends(Severity::Warning, "holds 99 blocks, and its files 0", NOBODY, |ssd| {
        edit_value(ssd, b"cp:", |_| true, |value| value[16] = 99);
    });
}

#[test]
fn what_cannot_be_mounted_stays_as_it_is() {
    let ssd = made();
    delete(&ssd, Key::Super);
    let Repair { before, after } = repaired(&ssd);
    assert!(before.errors == 1 && after.errors == 1, "{:?}", after.findings);
}

/// All that a host sees of a device.
fn image(ssd: &Ssd) -> Vec<u8> {
    use amphi_device::Device;
    let (pages, bytes) = (ssd.capacity_pages() as usize * PAGE_BYTES, ssd.bytes() as usize);
    let mut image = vec![0; pages + bytes];
    let (blocks, memory) = image.split_at_mut(pages);
    ssd.read(Lpa(0), blocks, Structure::Other).expect("it is inside");
    for (at, part) in (0..).step_by(PAGE_BYTES).zip(memory.chunks_mut(PAGE_BYTES)) {
        ssd.load(at, part, Structure::Other).expect("it is inside");
    }
    image
}

#[test]
fn a_check_and_a_read_only_mount_write_nothing() {
    for crashed in [false, true] {
        let fs = mounted();
        let ssd = Arc::clone(fs.device());
        // Something that recovery deletes and rolls forward.
        fs.unlink(Ino(SUB), name("inner")).expect("it is there");
        fs.setxattr(Ino(FILE), b"user.a", &[1; 4000], XattrMode::Set).expect("there is room");
        fs.write(Ino(FILE), 9000, &[9; 9000], WriteMode::default(), &Cred::ROOT).expect("there is room");
        fs.fsync(Ino(FILE), false).expect("the device works");
        if crashed {
            drop(fs)
        } else {
            fs.unmount().expect("it is idle")
        }
        let before = image(&ssd);
        let report = fsck::check(&ssd).expect("the device works");
        assert!(report.is_clean() && report.cleanly_unmounted != crashed, "{:?}", report.findings);
        assert!(image(&ssd) == before, "a check wrote something");
        let fs = AugeFs::mount(&ssd, MountOptions { read_only: true, ..roomy() }).expect("it mounts");
        let mut bytes = [0; 4096];
        assert_eq!(fs.read(Ino(FILE), 9000, &mut bytes, false), Ok(4096));
        assert!(bytes == [9; 4096] && fs.lookup(Ino(SUB), name("inner")).is_err());
        assert!(fs.create(Ino::ROOT, name("new"), FileType::Regular, 0o644, 0, &Cred::ROOT).is_err());
        fs.unmount().expect("it is idle");
        assert!(image(&ssd) == before, "a read-only mount wrote something");
    }
}
