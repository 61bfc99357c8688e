//! What happens when the orphan table is full: what needs a slot is refused before it changed anything.

use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{
    Allocate, Cred, Error, FileSystem, FileType, Ino, Name, OpenFlags, Result, SetAttr, WriteMode,
};

/// Slots of the table, as docs/format/bytefs.md has it.
const SLOTS: usize = 16_384;
/// More than one transaction frees.
const LONG: u64 = 300 << 20;

fn create(fs: &dyn FileSystem, name: &str) -> Ino {
    let name = Name::new(name.as_bytes()).expect("a plain name");
    let entry = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
    let ino = entry.expect("there is room for a file").attr.ino;
    fs.forget(ino, 1);
    ino
}

fn unlink_open(fs: &dyn FileSystem, ino: Ino, name: &str) -> Result<()> {
    fs.open(ino, OpenFlags { write: true, ..OpenFlags::default() })?;
    fs.unlink(Ino::ROOT, Name::new(name.as_bytes())?).map(drop)
}

#[test]
fn a_cut_that_finds_no_slot_changes_nothing() {
    let profile = Profile::named("free").expect("the profile is built in");
    let device = Arc::new(Ssd::in_memory(&profile, 512 << 20));
    ByteFs::format(&*device, &FormatOptions::default()).expect("it can be formatted");
    let options = MountOptions { write_back_interval_ns: 0, ..MountOptions::default() };
    let fs = ByteFs::mount(device, options).expect("it can be mounted");
    let long = create(&fs, "long");
    fs.allocate(long, 0, LONG, Allocate::Reserve { keep_size: false }, &Cred::ROOT).expect("there is room");
    fs.write(long, 8192, b"kept", WriteMode::default(), &Cred::ROOT).expect("it can be written");
    for n in 0..SLOTS {
        let name = format!("o{n}");
        let ino = create(&fs, &name);
        unlink_open(&fs, ino, &name).expect("the table has room");
    }
    let cut = SetAttr { size: Some(5000), ..SetAttr::default() };
    assert_eq!(fs.setattr(long, &cut, &Cred::ROOT).map(|attr| attr.size), Err(Error::NoSpace));
    assert_eq!(fs.getattr(long).map(|attr| attr.size), Ok(LONG), "the size is as it was");
    let mut bytes = [0; 4];
    assert_eq!(fs.read(long, 8192, &mut bytes, false), Ok(4));
    assert_eq!(&bytes, b"kept", "and so are the contents");
    fs.release(Ino(long.0 + 1));
    assert_eq!(fs.setattr(long, &cut, &Cred::ROOT).map(|attr| attr.size), Ok(5000), "a slot came free");
}
