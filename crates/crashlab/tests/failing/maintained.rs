//! Tuning, growing and repairing a file system, cut off by a loss of power or by a command that fails:
//! nothing is lost, what is there is what was or what was to be, and another attempt brings it to its end.

use std::collections::BTreeSet;
use std::sync::Arc;

use amphi_crashlab::judge;
use amphi_crashlab::rig::Rig;
use amphi_crashlab::subject::{self, Subject};
use amphi_device::{BlockPort, BytePort, BytePortExt, Device, Lpa, MemoryArea, PAGE_BYTES, Structure};
use amphi_rt::random::Generator;
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, Error, FileSystem, FileType, Ino, Name, WriteMode, XattrMode};
use amphi_volume::{About, Changes, Repair};

use crate::interrupted::{interrupt, into_ssd, used};
use crate::long;
use crate::others::{name, read, write};

/// A device whose power comes back, with what its superblock says and with the file that was there.
fn restarted(subject: &Subject, ssd: Ssd) -> Result<(Arc<Rig>, About), String> {
    let rig = Arc::new(Rig::plain(ssd.restart().map_err(|error| error.to_string())?));
    let fs = subject.mount(&rig)?;
    let old = read(&*fs, "old").map_err(|error| format!("the old file: {error}"))?;
    if old != [0xab; 8192] {
        return Err("the old file holds something else".to_owned());
    }
    write(&*fs, "later", 0xcd).map_err(|error| format!("nothing can be written: {error}"))?;
    drop(fs);
    judge::clean(subject, &rig)?;
    let about = subject.about(&rig)?;
    Ok((rig, about))
}

const LABEL: &str = "another";

/// All but the ext4-like baseline and the toy, and ByteFS where the firmware has no transactions.
fn can_be_tuned(subject: &&Subject) -> bool {
    subject.name != "toy" && subject.name != "bytefs-dual" && !subject.name.starts_with("ext4like")
}

fn can_grow(subject: &&Subject) -> bool {
    can_be_tuned(subject) && (subject.name.starts_with("bytefs") || subject.name.starts_with("romefs"))
}

#[test]
fn a_label_is_the_old_or_the_new_one() {
    let changes = Changes { label: Some(LABEL.to_owned()), ..Changes::default() };
    let tune = |subject: &Subject| {
        let used = used(subject, |rig| subject.format(rig))?;
        let tune = |rig: &Arc<Rig>| subject.tune(rig, &changes).map(drop);
        let mut seen = [0, 0];
        interrupt(&used, &tune, |outcome, ssd| {
            let (rig, about) = restarted(subject, ssd)?;
            let is_new = about.label == LABEL;
            if !is_new && (outcome.is_ok() || !about.label.is_empty()) {
                return Err(format!("it ended with {outcome:?}, and the label is '{}'", about.label));
            }
            seen[usize::from(is_new)] += 1;
            tune(&rig)?;
            let (_, about) = restarted(subject, into_ssd(rig)?)?;
            if about.label == LABEL { Ok(()) } else { Err("another attempt changes nothing".to_owned()) }
        })?;
        Ok::<_, String>(seen)
    };
    for subject in subject::ALL.iter().filter(can_be_tuned) {
        let seen = tune(subject).unwrap_or_else(|wrong| panic!("{}: {wrong}", subject.name));
        println!("{}: old, new: {seen:?}", subject.name);
        assert!(seen.iter().all(|times| *times > 0), "{}: {seen:?}", subject.name);
    }
}

#[test]
fn a_file_system_that_grows_has_its_old_or_its_new_size() {
    let grow = |subject: &Subject| {
        let used = used(subject, |rig| {
            let half = rig.capacity_pages() * PAGE_BYTES as u64 / 2;
            subject.format_some(rig, Some(half))
        })?;
        let grow = |rig: &Arc<Rig>| subject.grow(rig).map(drop);
        let (rig, about) = restarted(subject, used.fork().map_err(|error| error.to_string())?)?;
        let before = about.size_bytes;
        let (_, after) = subject.grow(&rig)?;
        assert!(after > before, "{}: {before}, {after}", subject.name);
        let mut seen = [0, 0];
        interrupt(&used, &grow, |outcome, ssd| {
            let (rig, about) = restarted(subject, ssd)?;
            let is_new = about.size_bytes == after;
            if !is_new && (outcome.is_ok() || about.size_bytes != before) {
                return Err(format!("it ended with {outcome:?}, and has {} bytes", about.size_bytes));
            }
            seen[usize::from(is_new)] += 1;
            grow(&rig)?;
            let (_, about) = restarted(subject, into_ssd(rig)?)?;
            if about.size_bytes == after { Ok(()) } else { Err("another attempt changes nothing".to_owned()) }
        })?;
        Ok::<_, String>(seen)
    };
    for subject in subject::ALL.iter().filter(can_grow) {
        let seen = grow(subject).unwrap_or_else(|wrong| panic!("{}: {wrong}", subject.name));
        println!("{}: old, new: {seen:?}", subject.name);
        assert!(seen.iter().all(|times| *times > 0), "{}: {seen:?}", subject.name);
    }
}

/// Of a file with holes: so many that its map needs pages of its own.
const PARTS: u64 = 24;

/// A device with a file system that has directories and files, and was unmounted.
fn furnished(subject: &Subject) -> Result<Ssd, String> {
    let rig = Arc::new(Rig::plain(used(subject, |rig| subject.format(rig))?));
    let fs = subject.mount(&rig)?;
    let furnish = || {
        for file in 0..6 {
            write(&*fs, &format!("file{file}"), file)?;
        }
        for dir in ["dir", "empty"] {
            let dir = fs.mkdir(Ino::ROOT, name(dir), 0o755, &Cred::ROOT)?.attr.ino;
            fs.symlink(dir, name("link"), b"target", &Cred::ROOT)?;
            let file = fs.lookup(Ino::ROOT, name("file1"))?.attr.ino;
            fs.link(file, dir, name("file"))?;
            fs.setxattr(file, b"user.of", b"a file", XattrMode::Set)?;
        }
        let made = fs.create(Ino::ROOT, name("holes"), FileType::Regular, 0o644, 0, &Cred::ROOT)?;
        for part in 0..PARTS {
            let at = 2 * part * PAGE_BYTES as u64;
            fs.write(made.attr.ino, at, &part.to_le_bytes(), WriteMode::default(), &Cred::ROOT)?;
        }
        fs.sync()
    };
    furnish().map_err(|error: Error| error.to_string())?;
    drop(fs);
    subject.unmount(&rig)?;
    into_ssd(rig)
}

/// Changes a byte of it: `false` where that is not to be.
fn damage(ssd: &Ssd, dice: &mut Generator) -> bool {
    let pages = ssd.capacity_pages();
    let memory = if ssd.memory().is_ok() { ssd.bytes() } else { 0 };
    let at = dice.below(2 * memory.min(64 << 10) + 256 * PAGE_BYTES as u64);
    let bit = 1 << dice.below(8);
    if at < 2 * memory.min(64 << 10) {
        let mut byte = [0];
        let loaded = ssd.load(at / 2, &mut byte, Structure::Other);
        let byte = [byte[0] ^ bit];
        return loaded.is_ok() && ssd.persist(at / 2, &byte, None, Structure::Other).is_ok();
    }
    let at = at % (pages * PAGE_BYTES as u64);
    let (page, within) = (Lpa(at / PAGE_BYTES as u64), at as usize % PAGE_BYTES);
    let mut bytes = [0; PAGE_BYTES];
    if ssd.read(page, &mut bytes, Structure::Other).is_err() || bytes == [0; PAGE_BYTES] {
        return false;
    }
    bytes[within] ^= bit;
    ssd.write(page, &bytes, Structure::Other).is_ok() && ssd.flush().is_ok()
}

/// Bytes that no file has here: a damaged size may be any.
const SIZE_MAX: u64 = 1 << 20;

/// What is in a directory and below it: paths, with what files hold and links name.
fn contents(fs: &dyn FileSystem, dir: Ino, path: &str, into: &mut Contents) -> amphi_vfs::Result<()> {
    let mut names = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        true
    })?;
    for bytes in names.iter().filter(|bytes| ***bytes != *b"." && ***bytes != *b"..") {
        let attr = fs.lookup(dir, Name::new(bytes)?)?.attr;
        let path = format!("{path}/{}", String::from_utf8_lossy(bytes));
        let data = match attr.file_type {
            FileType::Regular if attr.size > SIZE_MAX => return Err(Error::TooLarge),
            FileType::Regular => {
                let mut data = vec![0; attr.size as usize];
                fs.read(attr.ino, 0, &mut data, false)?;
                data
            }
            FileType::Symlink => fs.readlink(attr.ino)?,
            _ => Vec::new(),
        };
        if attr.file_type == FileType::Directory {
            contents(fs, attr.ino, &path, into)?;
        }
        fs.forget(attr.ino, 1);
        into.insert((path, data));
    }
    Ok(())
}

/// Repairs it; nothing that the check finds is left.
fn mend(subject: &Subject, rig: &Arc<Rig>) -> Result<Repair, String> {
    let repair = subject.repair(rig)?;
    let left = &repair.after;
    if left.is_clean() { Ok(repair) } else { Err(format!("not all is mended: {:?}", left.findings)) }
}

/// As [`mend`], with what is there then.
fn mended(subject: &Subject, rig: &Arc<Rig>) -> Result<(Repair, Contents), String> {
    let repair = mend(subject, rig)?;
    let fs = subject.mount(rig)?;
    let mut found = Contents::new();
    contents(&*fs, Ino::ROOT, "", &mut found).map_err(|error| error.to_string())?;
    Ok((repair, found))
}

/// Paths, and what is there.
type Contents = BTreeSet<(String, Vec<u8>)>;

/// Kinds of damage that are tried of each file system, and places at which it is sought.
const DAMAGES: usize = 2;
const PLACES: u64 = 300;

/// Damages, each repaired with something that goes wrong meanwhile. Returns how many.
fn repair(subject: &Subject, seed: u64) -> Result<usize, String> {
    let sound = furnished(subject)?;
    let mut known = BTreeSet::new();
    let mut dice = Generator::new(seed);
    for place in 0..PLACES * long() {
        if known.len() == DAMAGES * long() as usize {
            break;
        }
        let fork = |ssd: &Ssd| ssd.fork().map_err(|error| error.to_string());
        let damaged = fork(&sound)?;
        if !damage(&damaged, &mut dice) {
            continue;
        }
        let rig = Arc::new(Rig::plain(fork(&damaged)?));
        let Ok((repair, due)) = mended(subject, &rig) else { continue };
        let Some((_, first)) = repair.before.findings.first().filter(|_| repair.helped()) else { continue };
        let kind: String = first.chars().filter(|letter| !letter.is_ascii_digit()).collect();
        if !known.insert(kind) {
            continue;
        }
        let outcome = interrupt(&damaged, &|rig| mend(subject, rig).map(drop), |outcome, ssd| {
            let rig = Arc::new(Rig::plain(ssd.restart().map_err(|error| error.to_string())?));
            let (repair, found) = mended(subject, &rig)?;
            if outcome.is_ok() && repair.before.errors > 0 {
                return Err(format!("it succeeded, and left {:?}", repair.before.findings));
            }
            // What had lost its name may have got another one.
            let is_there = |(path, data): &&(String, Vec<u8>)| {
                let is_named = !path.starts_with("/lost+found");
                found.iter().any(|(at, holds)| holds == data && (at == path || !is_named))
            };
            if let Some((lost, _)) = due.iter().find(|one| !is_there(one)) {
                return Err(format!("{lost} is lost or has changed"));
            }
            Ok(())
        });
        outcome.map_err(|error| format!("place {place}, {first}: {error}"))?;
    }
    println!("{}: {known:?}", subject.name);
    Ok(known.len())
}

/// Seeds that have shown what was wrong once: 5, that ByteFS dropped what lay below a node that could not be
/// read for a moment; 9, that AugeFS took such a node for none, and ByteFS such an inode. With 1, RomeFS's
/// counts and its superblock are damaged.
const SEEDS: [u64; 3] = [1, 5, 9];

#[test]
fn a_repair_that_is_cut_off_loses_nothing() {
    let one = std::env::var("AMPHI_SEED").ok().map(|seed| seed.parse().expect("a number"));
    for name in ["bytefs", "romefs", "augefs", "devfs"] {
        let subject = subject::named(name).expect("the subject exists");
        let of_seed = |seed| {
            repair(subject, seed).unwrap_or_else(|wrong| {
                panic!(
                    "{name}: {wrong}; AMPHI_SEED={seed} cargo test -p amphi-crashlab --test failing repair"
                )
            })
        };
        let damages: usize = one.map_or_else(|| SEEDS.map(of_seed).iter().sum(), of_seed);
        assert!(damages > 0, "{name}: nothing that was damaged can be mended");
    }
}
