//! Formatting over a file system, cut off by a loss of power or by a command that fails: what is there then
//! is the old file system, the new one, or none, and another attempt makes the new one.

use std::sync::Arc;

use amphi_crashlab::judge;
use amphi_crashlab::rig::{Fault, Rig, Way};
use amphi_crashlab::subject::{self, Size, Subject};
use amphi_ssd::Ssd;
use amphi_vfs::Error;

use crate::others::{read, write};

/// Steps to which a cut is armed that is never to come, so that steps are counted.
const NEVER: u64 = 1 << 40;
/// Cuts at the beginning of the formatting, and at its end, that are all tried, and others between them.
const ENDS: u64 = 24;

/// What is found where a file system was and another was to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Old,
    New,
    /// Mounting it is refused.
    None,
}

/// The device that nobody uses any more.
fn into_ssd(rig: Arc<Rig>) -> Result<Ssd, String> {
    Ok(Arc::into_inner(rig).ok_or("what is done still holds the device")?.into_ssd())
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

/// A device with a file system that has a file.
fn used(subject: &Subject) -> Result<Ssd, String> {
    let rig =
        Arc::new(Rig::plain(subject::device("nvme", subject.firmware, Size::Cramped).or_else(|_| {
            // This firmware has no volatile write buffer.
            subject::device("free", subject.firmware, Size::Cramped)
        })?));
    subject.format(&rig)?;
    let fs = subject.mount(&rig)?;
    write(&*fs, "old", 0xab).and_then(|()| fs.sync()).map_err(|error| error.to_string())?;
    drop(fs);
    into_ssd(rig)
}

/// Formats a copy of `used`, on which something goes wrong, and returns what is there then; `None`: nothing
/// has gone wrong.
fn interrupted(
    subject: &Subject,
    used: &Ssd,
    what: &str,
    arm: &dyn Fn(&Rig),
    has_happened: &dyn Fn(&Rig) -> bool,
) -> Result<Option<Found>, String> {
    let of = |error: String| format!("{}, {what}: {error}", subject.name);
    let rig = Arc::new(Rig::plain(used.fork().map_err(|error| of(error.to_string()))?));
    arm(&rig);
    let outcome = subject.format(&rig);
    if !has_happened(&rig) {
        return outcome.map(|()| None).map_err(of);
    }
    rig.fail(None);
    rig.ssd().power_cut(1);
    let (there, rig) = into_ssd(rig).and_then(|ssd| found(subject, ssd)).map_err(of)?;
    if outcome.is_ok() && there != Found::New {
        return Err(of(format!("formatting succeeds, and {there:?} is there")));
    }
    subject.format(&rig).map_err(of)?;
    match into_ssd(rig).and_then(|ssd| found(subject, ssd)).map_err(of)? {
        (Found::New, _) => Ok(Some(there)),
        (other, _) => Err(of(format!("formatting it again leaves {other:?}"))),
    }
}

/// How often each was found.
fn each(subject: &Subject) -> Result<[usize; 3], String> {
    let used = used(subject)?;
    let rig = Arc::new(Rig::plain(used.fork().map_err(|error| error.to_string())?));
    rig.ssd().cut_after_steps(NEVER, 0);
    subject.format(&rig)?;
    let steps = NEVER - rig.ssd().steps_before_cut().unwrap_or(NEVER);
    let some =
        |all: u64| (0..all).filter(move |at| *at < ENDS || *at + ENDS > all || at % (all / ENDS).max(1) == 0);
    let mut seen = Vec::new();
    for step in some(steps) {
        let cut = |rig: &Rig| rig.ssd().cut_after_steps(step, step);
        let what = format!("power lost after {step} of {steps} steps");
        seen.extend(interrupted(subject, &used, &what, &cut, &|rig| !rig.ssd().has_power())?);
    }
    for way in Way::ALL {
        for command in 0.. {
            let fail = |rig: &Rig| rig.fail(Some(Fault { command, way }));
            let what = format!("command {command} fails: {way:?}");
            let Some(found) = interrupted(subject, &used, &what, &fail, &|rig| rig.failed().is_some())?
            else {
                break;
            };
            seen.push(found);
        }
    }
    let times = |one: Found| seen.iter().filter(|found| **found == one).count();
    let found = [Found::Old, Found::New, Found::None].map(times);
    println!("{}: {steps} steps; old, new, none: {found:?}", subject.name);
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
