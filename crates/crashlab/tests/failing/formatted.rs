//! Formatting over a file system, cut off by a loss of power or by a command that fails: what is there then
//! is the old file system, the new one, or none, and another attempt makes the new one.

use std::sync::Arc;

use amphi_crashlab::judge;
use amphi_crashlab::rig::Rig;
use amphi_crashlab::subject::{self, Size, Subject};
use amphi_ssd::Ssd;
use amphi_vfs::Error;

use crate::interrupted::{interrupt, into_ssd, used};
use crate::others::{read, write};

/// What is found where a file system was and another was to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Old,
    New,
    /// Mounting it is refused.
    None,
}

/// What is on a device whose power comes back.
fn found(subject: &Subject, ssd: Ssd) -> Result<(Found, Arc<Rig>), String> {
    let rig = Arc::new(Rig::plain(ssd.restart().map_err(|error| error.to_string())?));
    let Ok(fs) = subject.mount(&rig) else { return Ok((Found::None, rig)) };
    let found = match read(&*fs, "old") {
        Ok(bytes) if bytes == [0xab; 8192] => Found::Old,
        Err(Error::NotFound) => Found::New,
        other => return Err(format!("the old file: {other:?}")),
    };
    write(&*fs, "later", 0xcd).map_err(|error| format!("{found:?} cannot be written: {error}"))?;
    drop(fs);
    judge::clean(subject, &rig)?;
    Ok((found, rig))
}

/// How often each was found.
fn each(subject: &Subject) -> Result<[usize; 3], String> {
    let of = |error: String| format!("{}: {error}", subject.name);
    let used = used(subject, |rig| subject.format(rig)).map_err(of)?;
    let mut seen = Vec::new();
    let format = |rig: &Arc<Rig>| subject.format(rig);
    let outcome = interrupt(&used, &format, |outcome, ssd| {
        let (there, rig) = found(subject, ssd)?;
        if outcome.is_ok() && there != Found::New {
            return Err(format!("formatting succeeds, and {there:?} is there"));
        }
        seen.push(there);
        subject.format(&rig)?;
        match found(subject, into_ssd(rig)?)? {
            (Found::New, _) => Ok(()),
            (other, _) => Err(format!("formatting it again leaves {other:?}")),
        }
    });
    outcome.map_err(of)?;
    let times = |one: Found| seen.iter().filter(|found| **found == one).count();
    let found = [Found::Old, Found::New, Found::None].map(times);
    println!("{}: old, new, none: {found:?}", subject.name);
    Ok(found)
}

#[test]
fn what_is_there_is_old_new_or_nothing() {
    let mut all = [0; 3];
    for subject in &subject::ALL {
        let found = each(subject).unwrap_or_else(|wrong| panic!("{wrong}"));
        all = std::array::from_fn(|at| all[at] + found[at]);
    }
    assert!(all.iter().all(|times| *times > 0), "{all:?}");
}

/// Files of the old file system, each a change of its own, and of the new one.
const OLD: u8 = 12;
const NEW: u8 = 5;

/// Uses a file system, which ends with a loss of power.
fn use_it(subject: &Subject, rig: Arc<Rig>, files: u8, byte: u8) -> Result<Arc<Rig>, String> {
    subject.format(&rig)?;
    let fs = subject.mount(&rig)?;
    let written = (0..files).try_for_each(|file| write(&*fs, &format!("file{file}"), byte + file));
    written.map_err(|error| error.to_string())?;
    drop(fs);
    rig.ssd().power_cut(0);
    Ok(Arc::new(Rig::plain(into_ssd(rig)?.restart().map_err(|error| error.to_string())?)))
}

/// Records of a journal, numbered from one on, may follow upon those of the journal that was there before.
#[test]
fn nothing_of_the_old_one_comes_back() {
    let comes_back = |subject: &Subject, files: u8| {
        let rig = Arc::new(Rig::plain(subject::device("free", subject.firmware, Size::Cramped)?));
        let rig = use_it(subject, use_it(subject, rig, OLD, 1)?, files, 0x80)?;
        let fs = subject.mount(&rig)?;
        for file in 0..OLD {
            let found = read(&*fs, &format!("file{file}"));
            let is_right = match &found {
                Err(Error::NotFound) => file >= files,
                Ok(bytes) => file < files && *bytes == [0x80 + file; 8192],
                Err(_) => false,
            };
            if !is_right {
                return Err(format!(
                    "file {file} of {files}: {:?}",
                    found.map(|bytes| bytes.first().copied())
                ));
            }
        }
        drop(fs);
        judge::clean(subject, &rig)
    };
    for subject in &subject::ALL {
        for files in 0..=NEW {
            comes_back(subject, files).unwrap_or_else(|wrong| panic!("{}: {wrong}", subject.name));
        }
    }
}
