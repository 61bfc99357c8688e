//! After a checkpoint that failed the file system is read-only, and readers see what it has in memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use amphi_fs_f2fslike::F2fsLike;
use amphi_memory_device::Memory;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name};
use amphi_volume::{FormatOptions, MountOptions, Volume};

const NAMES: u32 = 700;

fn text(number: u32) -> String {
    format!("a-name-of-some-length-{number:05}")
}

/// Makes a directory of several blocks.
fn fill(fs: &F2fsLike<Memory>, dir: &str) -> Ino {
    let dir = Name::new(dir.as_bytes()).expect("a name");
    let dir = fs.mkdir(Ino::ROOT, dir, 0o755, &Cred::ROOT).expect("there is room").attr.ino;
    for number in 0..NAMES {
        let text = text(number);
        let name = Name::new(text.as_bytes()).expect("a name");
        fs.create(dir, name, FileType::Regular, 0o644, 0, &Cred::ROOT).expect("there is room");
    }
    dir
}

/// A directory that is on the device and one that is in memory, of which nothing stays there without a
/// reason.
fn filled() -> (F2fsLike<Memory>, [Ino; 2]) {
    let device = Arc::new(Memory::without_transactions(vec![0; 32 << 20]));
    <F2fsLike<Memory> as Volume<Memory>>::format(&device, &FormatOptions::default()).expect("large enough");
    let options = MountOptions {
        inode_cache: Some(3),
        page_cache_pages: Some(3),
        background_interval_ns: Some(0),
        ..MountOptions::default()
    };
    let fs: F2fsLike<Memory> = Volume::mount(&device, &options).expect("it was made");
    let written = fill(&fs, "written");
    fs.sync().expect("the device works");
    let unwritten = fill(&fs, "unwritten");
    (fs, [written, unwritten])
}

fn list(fs: &F2fsLike<Memory>, dir: Ino) -> amphi_vfs::Result<BTreeSet<String>> {
    let mut listed = BTreeSet::new();
    fs.readdir(dir, 0, &mut |entry| listed.insert(String::from_utf8_lossy(entry.name).into_owned()))?;
    Ok(listed)
}

#[test]
fn names_that_could_not_be_written_are_still_read() {
    let due: BTreeSet<_> =
        [".".to_owned(), "..".to_owned()].into_iter().chain((0..NAMES).map(text)).collect();
    for commands in 0..12 {
        let (fs, dirs) = filled();
        fs.device().lose_power_after(commands);
        assert!(fs.sync().is_err(), "the device fails the command after {commands}");
        fs.device().power_on();
        for round in 0..2 {
            for dir in dirs {
                assert_eq!(list(&fs, dir).as_ref(), Ok(&due), "{commands} commands, round {round}, {dir:?}");
            }
        }
    }
}
