//! The power fails at any command of the device while tasks make, write, cut, move and remove files, with so
//! little room that segments are collected all the time: what was acknowledged is there, nothing comes from
//! nowhere. Planted bugs show that the test sees.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_fs_augefs::{AugeFs, FormatOptions, MountOptions, fsck};
use amphi_rt::{Schedule, Sim, task};
use amphi_ssd::{Firmware, Profile, Ssd};
use amphi_vfs::{Cred, Error, FileSystem, FileType, Ino, RenameMode, Result, SetAttr, WriteMode};

use crate::small::{self, name};

const TASKS: u8 = 3;
const ROUNDS: u32 = 48;
const PAGE: usize = 4096;

/// Files of one task, by name.
type Files = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a task does in one step.
#[derive(Clone, Debug)]
enum Step {
    Create(String),
    /// Writes so many bytes of one value and syncs the file.
    Write(String, usize, usize, u8),
    Resize(String, usize),
    Rename(String, String),
    Unlink(String),
    Link(String, String),
    /// Syncs all.
    Sync,
}

/// Steps of a task, one behind the other.
fn step(task: u8, round: u32) -> Step {
    let name = |number: u32| format!("file-{task}-{}", number % 3);
    let file = name(round / 8);
    let value = (round * 3 + u32::from(task) + 1) as u8;
    match round % 8 {
        0 => Step::Create(file),
        1 => Step::Write(file, 0, 3 * PAGE, value),
        2 => Step::Write(file, 2 * PAGE + 100, 2 * PAGE, value),
        3 => Step::Resize(file, 5000),
        4 => Step::Resize(file, 20_000),
        5 => Step::Write(file, 300, PAGE, value),
        6 if round % 16 == 6 => Step::Link(file, format!("other-{task}-{round}")),
        6 => Step::Sync,
        _ if round % 16 == 7 => Step::Unlink(file),
        _ => Step::Rename(file, format!("other-{task}-{round}")),
    }
}

fn apply(files: &mut Files, step: &Step) {
    let bytes = |name: &String| name.as_bytes().to_vec();
    match step {
        Step::Create(name) => drop(files.insert(bytes(name), Vec::new())),
        Step::Write(name, at, len, value) => {
            let file = files.get_mut(name.as_bytes()).expect("it was made");
            file.resize(file.len().max(at + len), 0);
            file[*at..at + len].fill(*value);
        }
        Step::Resize(name, size) => files.get_mut(name.as_bytes()).expect("it was made").resize(*size, 0),
        Step::Rename(name, new) => {
            let file = files.remove(name.as_bytes()).expect("it was made");
            files.insert(bytes(new), file);
        }
        Step::Unlink(name) => drop(files.remove(name.as_bytes())),
        Step::Link(name, new) => drop(files.insert(bytes(new), files[name.as_bytes()].clone())),
        Step::Sync => {}
    }
}

/// What there is after so many steps. Two names of one file go apart when it is written; no step writes it
/// then.
fn after(task: u8, rounds: u32) -> Files {
    let mut files = Files::new();
    (0..rounds).for_each(|round| apply(&mut files, &step(task, round)));
    files
}

fn perform(fs: &AugeFs<Ssd>, dir: Ino, step: &Step) -> Result<()> {
    let find = |text: &str| fs.lookup(dir, name(text)).map(|found| found.attr.ino);
    let forget = |ino| fs.forget(ino, 1);
    match step {
        Step::Create(text) => {
            forget(fs.create(dir, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT)?.attr.ino);
        }
        Step::Write(text, at, len, value) => {
            let ino = find(text)?;
            fs.write(ino, *at as u64, &vec![*value; *len], WriteMode::default(), &Cred::ROOT)?;
            fs.fsync(ino, false)?;
            forget(ino);
        }
        Step::Resize(text, size) => {
            let ino = find(text)?;
            let change = SetAttr { size: Some(*size as u64), ..SetAttr::default() };
            fs.setattr(ino, &change, &Cred::ROOT)?;
            forget(ino);
        }
        Step::Rename(text, new) => drop(fs.rename(dir, name(text), dir, name(new), RenameMode::Replace)?),
        Step::Unlink(text) => drop(fs.unlink(dir, name(text))?),
        Step::Link(text, new) => {
            let ino = find(text)?;
            fs.link(ino, dir, name(new))?;
            fs.forget(ino, 2);
        }
        Step::Sync => fs.sync()?,
    }
    Ok(())
}

/// Does step after step until the device fails; returns how many were acknowledged.
fn work(fs: &AugeFs<Ssd>, dir: Ino, task: u8) -> std::result::Result<u32, String> {
    for round in 0..ROUNDS {
        match perform(fs, dir, &step(task, round)) {
            Ok(()) => {}
            Err(Error::Io(_) | Error::ReadOnly) if !fs.device().has_power() => return Ok(round),
            Err(error) => return Err(format!("task {task}, {:?}: {error}", step(task, round))),
        }
    }
    Ok(ROUNDS)
}

fn read_all(fs: &AugeFs<Ssd>, dir: Ino) -> Result<Files> {
    let mut entries = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        if entry.file_type == FileType::Regular {
            entries.push((entry.ino, entry.name.to_vec()));
        }
        true
    })?;
    let mut files = Files::new();
    for (ino, text) in entries {
        let size = fs.getattr(ino)?.size as usize;
        let mut bytes = vec![0; size];
        fs.read(ino, 0, &mut bytes, false)?;
        files.insert(text, bytes);
    }
    Ok(files)
}

/// Whether these files can be there while a step is on its way. Only a write may have arrived in part.
fn may_be(found: &Files, before: &Files, now: &Step) -> bool {
    let mut then = before.clone();
    apply(&mut then, now);
    if found == before || *found == then {
        return true;
    }
    let Step::Write(text, ..) = now else { return false };
    let at = |bytes: &Vec<u8>, at: usize| bytes.get(at).copied().unwrap_or(0);
    found.len() == before.len()
        && found.iter().all(|(name, bytes)| {
            let (Some(old), Some(new)) = (before.get(name), then.get(name)) else { return false };
            if name != text.as_bytes() {
                return bytes == old;
            }
            // Data come before the size that shows them.
            if bytes.len() != old.len() {
                return bytes == new;
            }
            (0..bytes.len()).all(|byte| bytes[byte] == at(old, byte) || bytes[byte] == at(new, byte))
        })
}

fn judge(fs: &AugeFs<Ssd>, dirs: &[Ino], acknowledged: &[u32]) -> std::result::Result<Vec<Files>, String> {
    let mut all = Vec::new();
    for (task, (dir, rounds)) in (0..).zip(dirs.iter().zip(acknowledged)) {
        let found = read_all(fs, *dir).map_err(|error| format!("task {task}: {error}"))?;
        if !may_be(&found, &after(task, *rounds), &step(task, *rounds)) {
            let brief: Vec<_> = found
                .iter()
                .map(|(name, bytes)| {
                    let mut runs: Vec<(usize, u8)> = Vec::new();
                    for (at, byte) in bytes.iter().enumerate() {
                        if runs.last().is_none_or(|(_, last)| last != byte) {
                            runs.push((at, *byte));
                        }
                    }
                    (String::from_utf8_lossy(name).into_owned(), bytes.len(), runs)
                })
                .collect();
            return Err(format!("task {task} after {rounds} steps: {brief:?}"));
        }
        all.push(found);
    }
    Ok(all)
}

fn mount_options() -> MountOptions {
    let meta = amphi_lsm::Options { memtable_bytes: 16 << 10, ..amphi_lsm::Options::default() };
    MountOptions { meta, ..small::cramped() }
}

/// Blocks that are left for the tasks.
const BLOCKS_LEFT: u64 = 150;

/// Fills the file system, and writes some of it over, so that segments are valid in part.
fn fill(fs: &AugeFs<Ssd>) -> Result<()> {
    let made = fs.create(Ino::ROOT, name("filler"), FileType::Regular, 0o644, 0, &Cred::ROOT)?;
    let put = |page: u64, value: u8| {
        let written =
            fs.write(made.attr.ino, page * PAGE as u64, &[value; PAGE], WriteMode::default(), &Cred::ROOT);
        written.and_then(|_| fs.fsync(made.attr.ino, true))
    };
    let mut pages = 0;
    while fs.statfs()?.blocks_free > BLOCKS_LEFT {
        put(pages, 1)?;
        pages += 1;
    }
    (0..pages).step_by(5).try_for_each(|page| put(page, 2))
}

fn check_filler(fs: &AugeFs<Ssd>) -> Result<bool> {
    let ino = fs.lookup(Ino::ROOT, name("filler"))?.attr.ino;
    let mut page = [0; PAGE];
    for number in 0..fs.getattr(ino)?.size / PAGE as u64 {
        fs.read(ino, number * PAGE as u64, &mut page, false)?;
        if page != [if number % 5 == 0 { 2 } else { 1 }; PAGE] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Some forty segments of 64 KB.
fn device() -> Arc<Ssd> {
    let mut profile = Profile::named("p4800x-pmr").expect("built in");
    (profile.flash.channels, profile.flash.ways, profile.flash.pages_per_block) = (2, 1, 16);
    profile.log.region_bytes = 64 << 10;
    profile.log.txlog_bytes = 4096;
    profile.firmware.kind = Firmware::Memory;
    profile.firmware.memory_bytes = 160 << 10;
    Arc::new(Ssd::in_memory(&profile, 5 << 20))
}

fn restart(device: Arc<Ssd>) -> Arc<Ssd> {
    Arc::new(Arc::into_inner(device).expect("nobody else has it").restart().expect("powers up"))
}

fn check(device: &Arc<Ssd>) -> std::result::Result<(), String> {
    let report = fsck::check(device).map_err(|error| format!("checking: {error}"))?;
    if report.findings.is_empty() { Ok(()) } else { Err(format!("the check finds {:?}", report.findings)) }
}

/// With an AugeFS of two domains on it.
fn formatted() -> std::result::Result<Arc<Ssd>, String> {
    let device = device();
    let format =
        FormatOptions { domains: 2, segment_blocks: 16, meta_pages: Some(512), ..FormatOptions::default() };
    AugeFs::format(&device, &format).map_err(|error| format!("formatting: {error}"))?;
    Ok(device)
}

/// One run with a cut after `commands` commands. `Ok(false)`: the run ended before it.
fn cut(commands: u64, seed: u64) -> std::result::Result<bool, String> {
    let schedule = Schedule::Random { per_mille: 100, delay_ns: 20_000 };
    Sim::new(seed).schedule(schedule).run(|| {
        let device = formatted()?;
        let fs = Arc::new(AugeFs::mount(&device, mount_options()).map_err(|error| error.to_string())?);
        let dirs: Vec<_> = (0..TASKS)
            .map(|task| {
                let made = fs.mkdir(Ino::ROOT, name(&format!("dir-{task}")), 0o755, &Cred::ROOT);
                made.expect("there is room").attr.ino
            })
            .collect();
        fill(&fs).map_err(|error| format!("filling: {error}"))?;
        device.cut_after_commands(commands, seed);
        let workers: Vec<_> = (0..TASKS)
            .map(|task| {
                let (fs, dir) = (Arc::clone(&fs), dirs[usize::from(task)]);
                task::spawn("worker", move || work(&fs, dir, task))
            })
            .collect();
        let outcomes: Vec<_> = workers.into_iter().map(task::JoinHandle::join).collect();
        let acknowledged = outcomes.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
        let collected = fs.stats().collected;
        drop(fs);
        let was_cut = !device.has_power();
        if !was_cut {
            if collected == 0 {
                return Err("nothing was collected".to_owned());
            }
            device.power_cut(seed);
        }
        // Recovery is cut, too.
        let device = restart(device);
        device.cut_after_commands(commands % 60, seed);
        drop(AugeFs::mount(&device, mount_options()));
        if device.has_power() {
            device.power_cut(seed);
        }
        let device = restart(device);
        if seed.is_multiple_of(2) {
            check(&device)?;
        }
        let mount = || AugeFs::mount(&device, mount_options()).map_err(|error| format!("mounting: {error}"));
        let fs = mount()?;
        let found = judge(&fs, &dirs, &acknowledged)?;
        if check_filler(&fs) != Ok(true) {
            return Err(format!("the filler: {:?}", check_filler(&fs)));
        }
        let made = fs.create(Ino::ROOT, name("after"), FileType::Regular, 0o644, 0, &Cred::ROOT);
        let ino = made.map_err(|error| format!("creating: {error}"))?.attr.ino;
        fs.write(ino, 0, &[9; 9000], WriteMode::default(), &Cred::ROOT).map_err(|error| error.to_string())?;
        fs.unmount().map_err(|error| format!("unmounting: {error}"))?;
        let fs = mount()?;
        if judge(&fs, &dirs, &acknowledged)? != found {
            return Err("it is another after a remount".to_owned());
        }
        let mut bytes = [0; 9000];
        fs.read(ino, 0, &mut bytes, false).map_err(|error| error.to_string())?;
        if bytes != [9; 9000] {
            return Err("what was written after recovery is lost".to_owned());
        }
        fs.unmount().map_err(|error| format!("unmounting: {error}"))?;
        check(&device)?;
        Ok(was_cut)
    })
}

/// Cuts one run at each of its commands, in steps. Returns the first that is judged wrong.
fn cut_everywhere(seed: u64, first: usize, step: usize) -> Option<String> {
    for commands in (first..).step_by(step) {
        match cut(commands as u64, seed) {
            Ok(true) => {}
            Ok(false) => {
                assert!(commands > 300, "the run ended after {commands} commands");
                return None;
            }
            Err(why) => return Some(format!("seed {seed}, cut after {commands} commands: {why}")),
        }
    }
    unreachable!("every run ends")
}

/// One run with a cut after `commands` commands, in which one file alone is written, over and over: segments
/// of what nobody has touched since the last checkpoint are collected for it, also those of the other domain,
/// which recovery has no other reason to look at. `Ok(false)`: the run ended before the cut.
fn cut_alone(commands: u64) -> std::result::Result<bool, String> {
    Sim::new(1).run(|| {
        let device = formatted()?;
        let fs = AugeFs::mount(&device, mount_options()).map_err(|error| error.to_string())?;
        fill(&fs).map_err(|error| format!("filling: {error}"))?;
        let made = fs.create(Ino::ROOT, name("alone"), FileType::Regular, 0o644, 0, &Cred::ROOT);
        let ino = made.map_err(|error| format!("creating: {error}"))?.attr.ino;
        fs.sync().map_err(|error| format!("syncing: {error}"))?;
        device.cut_after_commands(commands, 1);
        let worked = (0..2 * BLOCKS_LEFT).try_for_each(|round| {
            let at = round % (BLOCKS_LEFT - 30) * PAGE as u64;
            fs.write(ino, at, &[3; PAGE], WriteMode::default(), &Cred::ROOT)?;
            fs.fsync(ino, true)
        });
        drop(fs);
        let was_cut = !device.has_power();
        if !was_cut {
            worked.map_err(|error| format!("writing: {error}"))?;
            device.power_cut(1);
        }
        let device = restart(device);
        let fs = AugeFs::mount(&device, mount_options()).map_err(|error| format!("mounting: {error}"))?;
        if check_filler(&fs) != Ok(true) {
            return Err(format!("the filler: {:?}", check_filler(&fs)));
        }
        fs.unmount().map_err(|error| format!("unmounting: {error}"))?;
        check(&device)?;
        Ok(was_cut)
    })
}

/// Cuts that run at each of its commands, in steps. Returns the first cut that is judged wrong.
fn cut_alone_everywhere(step: usize) -> Option<String> {
    for commands in (1..).step_by(step) {
        match cut_alone(commands) {
            Ok(true) => {}
            Ok(false) => {
                assert!(commands > 300, "the run ended after {commands} commands");
                return None;
            }
            Err(why) => return Some(format!("cut after {commands} commands: {why}")),
        }
    }
    unreachable!("every run ends")
}

#[test]
fn a_cut_while_another_domain_is_collected_loses_nothing() {
    assert_eq!(cut_alone_everywhere(7), None);
}

#[test]
fn a_cut_at_any_command_loses_nothing_acknowledged() {
    for seed in [0, 1, 2, 10] {
        assert_eq!(cut_everywhere(seed, seed as usize, 7), None);
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn the_cuts_find_planted_bugs() {
    use amphi_fs_augefs::planted::{BUGS, plant};
    let found_by = |seeds: std::ops::Range<u64>| {
        seeds.into_iter().any(|seed| cut_everywhere(seed, seed as usize % 5, 5).is_some())
    };
    let mut missed = Vec::new();
    for bug in BUGS {
        plant(Some(bug));
        let found = found_by(0..4) || cut_alone_everywhere(4).is_some() || found_by(4..24);
        plant(None);
        if !found {
            missed.push(bug);
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
