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

/// A directory of several blocks, none of which may stay in memory but for a reason.
fn filled() -> (F2fsLike<Memory>, Ino) {
    let device = Arc::new(Memory::without_transactions(vec![0; 32 << 20]));
    <F2fsLike<Memory> as Volume<Memory>>::format(&device, &FormatOptions::default()).expect("large enough");
    let options = MountOptions {
        inode_cache: Some(3),
        page_cache_pages: Some(3),
        background_interval_ns: Some(0),
        ..MountOptions::default()
    };
    let fs: F2fsLike<Memory> = Volume::mount(&device, &options).expect("it was made");
    let dir = Name::new(b"dir").expect("a name");
    let dir = fs.mkdir(Ino::ROOT, dir, 0o755, &Cred::ROOT).expect("there is room").attr.ino;
    for number in 0..NAMES {
        let text = text(number);
        let name = Name::new(text.as_bytes()).expect("a name");
        fs.create(dir, name, FileType::Regular, 0o644, 0, &Cred::ROOT).expect("there is room");
    }
    (fs, dir)
}

#[test]
fn names_that_could_not_be_written_are_still_read() {
    for commands in 0..12 {
        let (fs, dir) = filled();
        fs.device().lose_power_after(commands);
        assert!(fs.sync().is_err(), "the device fails the command after {commands}");
        fs.device().power_on();
        for round in 0..2 {
            let mut listed = BTreeSet::new();
            let mut cookie = 0;
            loop {
                let before = cookie;
                let read = fs.readdir(dir, cookie, &mut |entry| {
                    cookie = entry.next_cookie;
                    listed.insert(String::from_utf8_lossy(entry.name).into_owned());
                    true
                });
                read.unwrap_or_else(|error| panic!("{commands} commands, round {round}: {error}"));
                if cookie == before {
                    break;
                }
            }
            let due: BTreeSet<_> =
                [".".to_owned(), "..".to_owned()].into_iter().chain((0..NAMES).map(text)).collect();
            assert_eq!(listed, due, "{commands} commands, round {round}");
        }
    }
}
