//! What a failed change was about to write may lie where others had their bytes: they are not to be read.

use std::sync::Arc;

use amphi_crashlab::rig::{Fault, Rig, Way};
use amphi_crashlab::subject::{self, Size, Subject};
use amphi_names::planted::{Bug, plant};
use amphi_vfs::{
    Allocate, Attr, Cred, Entry, Error, FileSystem, FileType, Ino, Name, Result, Seek, SetAttr, WriteMode,
};

pub fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a plain name")
}

/// Makes a file unless it is there, has it hold two pages of this byte, and syncs it.
pub fn write(fs: &dyn FileSystem, file: &str, byte: u8) -> Result<()> {
    let made = fs.create(Ino::ROOT, name(file), FileType::Regular, 0o644, 0, &Cred::ROOT);
    let ino = if made == Err(Error::Exists) { fs.lookup(Ino::ROOT, name(file)) } else { made }?.attr.ino;
    let written = fs.write(ino, 0, &[byte; 8192], WriteMode::default(), &Cred::ROOT);
    let synced = written.and_then(|_| fs.fsync(ino, false));
    fs.forget(ino, 1);
    synced
}

/// Writes a file and removes it: its inode and its pages are free, and hold what they did.
fn leave(fs: &dyn FileSystem, byte: u8) -> Result<()> {
    write(fs, "gone", byte)?;
    fs.unlink(Ino::ROOT, name("gone"))?;
    fs.sync()
}

pub fn read(fs: &dyn FileSystem, file: &str) -> Result<Vec<u8>> {
    let attr = fs.lookup(Ino::ROOT, name(file))?.attr;
    let mut bytes = vec![0; attr.size as usize];
    let read = fs.read(attr.ino, 0, &mut bytes, false);
    fs.forget(attr.ino, 1);
    bytes.truncate(read?);
    Ok(bytes)
}

/// Changes a file in every way. Where writing it has failed that may fail too, but comes to an end.
fn go_on(fs: &dyn FileSystem) {
    let Ok(Entry { attr: Attr { ino, .. } }) = fs.lookup(Ino::ROOT, name("file")) else { return };
    let whats =
        [Allocate::PunchHole, Allocate::Zero { keep_size: false }, Allocate::Reserve { keep_size: false }];
    for what in whats {
        let _any = fs.allocate(ino, 100, 6000, what, &Cred::ROOT);
    }
    for size in [5000, 9000] {
        let _any = fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }, &Cred::ROOT);
    }
    let _any = (write(fs, "file", 0xee), fs.seek(ino, 0, Seek::Hole), fs.sync());
    fs.forget(ino, 1);
}

/// Has a task write a file, each command of it failing in turn, after `before`. What others read of it then
/// are bytes of these.
fn others_read(
    subject: &Subject,
    before: fn(&dyn FileSystem) -> Result<()>,
    due: &[u8],
) -> std::result::Result<u64, String> {
    let mut command = 0;
    loop {
        for way in [Way::Refused, Way::Done] {
            let device = subject::device("free", subject.firmware, Size::Cramped)?;
            let rig = Arc::new(Rig::plain(device));
            subject.format(&rig)?;
            let fs: Arc<dyn FileSystem> = Arc::from(subject.mount_forgetful(&rig)?);
            before(&*fs).map_err(|error| error.to_string())?;
            rig.fail(Some(Fault { command, way }));
            let writer = Arc::clone(&fs);
            let answer = amphi_rt::task::spawn("writer", move || write(&*writer, "file", 0xcd)).join();
            if rig.failed().is_none() {
                return Ok(command);
            }
            rig.fail(None);
            match read(&*fs, "file") {
                Ok(bytes) if bytes.iter().all(|byte| due.contains(byte)) => {}
                Err(Error::NotFound | Error::Io(_)) => {}
                other => {
                    let other = other
                        .map(|bytes| bytes.chunk_by(|a, b| a == b).map(|run| run[0]).collect::<Vec<_>>());
                    let name = subject.name;
                    return Err(format!(
                        "{name}, command {command} {way:?}: {answer:?}, and then {other:x?}"
                    ));
                }
            }
            go_on(&*fs);
        }
        command += 1;
    }
}

#[test]
fn others_read_nothing_that_was_somebody_elses() {
    let made: fn(&dyn FileSystem) -> Result<()> = |fs| leave(fs, 0xab);
    let overwritten: fn(&dyn FileSystem) -> Result<()> = |fs| {
        leave(fs, 0xab)?;
        write(fs, "file", 0x11)?;
        fs.sync()
    };
    let both = |subject: &Subject| {
        let made = others_read(subject, made, &[0, 0xcd])?;
        Ok::<_, String>((made, others_read(subject, overwritten, &[0x11, 0xcd])?))
    };
    for subject in &subject::ALL {
        let commands = both(subject).unwrap_or_else(|wrong| panic!("{wrong}"));
        println!("{}: {commands:?} commands", subject.name);
    }
    for name in ["bytefs", "novalike"] {
        plant(Some(Bug::UnknownRead));
        let found = both(subject::named(name).expect("the subject exists"));
        plant(None);
        println!("{name}: {found:?}");
        assert!(found.is_err());
    }
}
