//! What is done on both file systems: single operations made durable one by one, many operations and then one
//! `sync`, and whole workloads.

use std::sync::Arc;

use amphi_rt::time;
use anyhow::{Context, Result};

use crate::files::{Files, Handle, OpenMode};
use crate::operation::contents;
use crate::workload::{self, Group, Operation, Personality, Plan};
use crate::ycsb::{self, Ycsb};

/// What is to be done besides single operations.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Workloads, scaled, each of a certain number of operations.
    pub workloads: Vec<Personality>,
    /// Workloads of the store, as well.
    pub ycsb: Vec<Ycsb>,
    /// Decides what the workloads leave to chance.
    pub seed: u64,
}

/// A step: what it is called, how often, and what is done.
pub(super) struct Step {
    pub(super) name: String,
    /// Operations, for figures per operation.
    pub(super) operations: u64,
    /// Makes what the step needs; its traffic does not count.
    pub(super) prepare: Action,
    /// What counts.
    pub(super) act: Action,
}

impl Step {
    /// Makes what it needs, and a `sync`, since what the step before has left to be written is not this
    /// one's.
    ///
    /// # Errors
    /// What the file system answers.
    pub(super) fn make_ready(&self, bench: &mut Bench<'_>) -> Result<()> {
        (self.prepare)(bench).with_context(|| format!("{}, preparing", self.name))?;
        Ok(bench.files.sync()?)
    }
}

/// All that is asked for.
///
/// # Errors
/// A workload is impossible.
pub(super) fn steps(asked: &Asked) -> Result<Vec<Step>> {
    let mut steps = micro();
    for personality in &asked.workloads {
        steps.extend(macro_steps(personality, asked.seed)?);
    }
    steps.extend(asked.ycsb.iter().map(|workload| ycsb_step(workload, asked.seed)));
    Ok(steps)
}

type Action = Box<dyn Fn(&mut Bench<'_>) -> Result<()>>;

/// A file system at work.
pub(super) struct Bench<'a> {
    pub(super) files: &'a Arc<dyn Files>,
    /// What is written.
    contents: Vec<u8>,
    /// The file that grows and is overwritten.
    file: Option<Handle>,
    /// The files of the workload that is next.
    prepared: Option<workload::Prepared>,
    /// The store of the workload that is next.
    loaded: Option<ycsb::Loaded>,
}

/// Where the single operations take place.
const DIRECTORY: &str = "d";

/// Operations that are made durable one by one.
const SINGLE: u64 = 50;
/// Operations before one `sync`.
const MANY: u64 = 1000;

/// Files that a round makes more than the one before, each with some blocks of the log.
const ADVANCE: u64 = 60;

/// The kernel's time stamps move at each tick; a change within one tick is none to an inode that has it
/// already.
const TICK_NS: u64 = 12_000_000;

impl<'a> Bench<'a> {
    /// # Errors
    /// What the file system answers.
    pub(super) fn new(files: &'a Arc<dyn Files>) -> Result<Self> {
        files.mkdir(DIRECTORY)?;
        files.sync()?;
        Ok(Self { files, contents: contents(1), file: None, prepared: None, loaded: None })
    }

    /// Begins a round where no other did: in which step a third of the log is full, so that the journal's
    /// superblock is written and the device flushed once more, is a matter of where the log begins.
    ///
    /// # Errors
    /// What the file system answers.
    pub(super) fn advance_log(&self, round: usize) -> Result<()> {
        for number in 0..round as u64 * ADVANCE {
            self.create(number, 0, true)?;
        }
        (0..round as u64 * ADVANCE).try_for_each(|number| Ok(self.files.unlink(&name(number))?))
    }

    fn create(&self, number: u64, bytes: usize, is_synced: bool) -> Result<()> {
        let file = self.files.open(&name(number), OpenMode::NEW)?;
        if bytes > 0 {
            self.files.write(file, 0, &self.contents[..bytes])?;
        }
        if is_synced {
            self.files.fsync(file, false)?;
        }
        Ok(self.files.close(file)?)
    }

    fn opened(&mut self) -> Result<Handle> {
        if let Some(file) = self.file {
            return Ok(file);
        }
        let file = self.files.open("d/data", OpenMode::NEW)?;
        self.file = Some(file);
        Ok(file)
    }

    fn sync_directory(&self) -> Result<()> {
        Ok(self.files.sync_directory(DIRECTORY)?)
    }
}

fn name(number: u64) -> String {
    format!("{DIRECTORY}/file-{number:06}")
}

fn other(number: u64) -> String {
    format!("{DIRECTORY}/moved-{number:06}")
}

/// Each of `times` operations for itself.
fn each(times: u64, act: impl Fn(&mut Bench<'_>, u64) -> Result<()> + 'static) -> Action {
    Box::new(move |bench| (0..times).try_for_each(|number| act(bench, number)))
}

/// A step of single operations that needs nothing but what the one before left.
fn single(name: &str, act: impl Fn(&mut Bench<'_>, u64) -> Result<()> + 'static) -> Step {
    Step { name: name.to_owned(), operations: SINGLE, prepare: Box::new(|_| Ok(())), act: each(SINGLE, act) }
}

/// A step of many operations and one `sync`.
fn many(name: &str, act: impl Fn(&mut Bench<'_>, u64) -> Result<()> + 'static) -> Step {
    let all = each(MANY, act);
    Step {
        name: format!("{MANY} x {name}, one sync"),
        operations: MANY,
        prepare: Box::new(|_| Ok(())),
        act: Box::new(move |bench| {
            all(bench)?;
            Ok(bench.files.sync()?)
        }),
    }
}

/// Writes `bytes` at the end, or over page `number`, and syncs.
fn write(append: bool, bytes: usize, data_only: bool) -> impl Fn(&mut Bench<'_>, u64) -> Result<()> {
    move |bench, number| {
        let file = bench.opened()?;
        let data = &bench.contents[number as usize % 64 * 64..];
        let data = &data[..bytes.min(data.len())];
        if append {
            bench.files.append(file, data)?;
        } else {
            time::sleep_ns(TICK_NS);
            bench.files.write(file, number * 4096, data)?;
        }
        Ok(bench.files.fsync(file, data_only)?)
    }
}

/// Single operations and many, in an order in which each leaves what the next one needs.
fn micro() -> Vec<Step> {
    let mut steps = vec![
        single("create, fsync", |bench, number| bench.create(number, 0, true)),
        single("unlink, fsync directory", |bench, number| {
            bench.files.unlink(&name(number))?;
            bench.sync_directory()
        }),
        single("create, fsync directory", |bench, number| {
            bench.create(number, 0, false)?;
            bench.sync_directory()
        }),
        single("rename, fsync directory", |bench, number| {
            bench.files.rename(&name(number), &other(number))?;
            bench.sync_directory()
        }),
        single("unlink the renamed, fsync directory", |bench, number| {
            bench.files.unlink(&other(number))?;
            bench.sync_directory()
        }),
        single("mkdir, fsync directory", |bench, number| {
            bench.files.mkdir(&name(number))?;
            bench.sync_directory()
        }),
        single("rmdir, fsync directory", |bench, number| {
            bench.files.rmdir(&name(number))?;
            bench.sync_directory()
        }),
        single("create, write 4 KiB, fsync", |bench, number| bench.create(number, 4096, true)),
        single("unlink of 4 KiB, fsync directory", |bench, number| {
            bench.files.unlink(&name(number))?;
            bench.sync_directory()
        }),
        single("create, write 64 KiB, fsync", |bench, number| bench.create(number, 65_536, true)),
        single("unlink of 64 KiB, fsync directory", |bench, number| {
            bench.files.unlink(&name(number))?;
            bench.sync_directory()
        }),
        single("append 4 KiB, fsync", write(true, 4096, false)),
        single("append 4 KiB, fdatasync", write(true, 4096, true)),
        single("append 64 B, fsync", write(true, 64, false)),
        single("overwrite 4 KiB, fsync", write(false, 4096, false)),
        single("overwrite 4 KiB, fdatasync", write(false, 4096, true)),
        single("overwrite 64 B, fsync", write(false, 64, false)),
        single("append 512 KiB, fsync", write(true, 512 << 10, false)),
        single("fsync of a clean file", |bench, _| {
            let file = bench.opened()?;
            Ok(bench.files.fsync(file, false)?)
        }),
        many("create", |bench, number| bench.create(number, 0, false)),
        many("rename", |bench, number| Ok(bench.files.rename(&name(number), &other(number))?)),
        many("unlink", |bench, number| Ok(bench.files.unlink(&other(number))?)),
        many("mkdir", |bench, number| Ok(bench.files.mkdir(&name(number))?)),
        many("rmdir", |bench, number| Ok(bench.files.rmdir(&name(number))?)),
        many("create, write 4 KiB", |bench, number| bench.create(number, 4096, false)),
        many("unlink of 4 KiB", |bench, number| Ok(bench.files.unlink(&name(number))?)),
        many("create, write 16 KiB", |bench, number| bench.create(number, 16_384, false)),
        many("unlink of 16 KiB", |bench, number| Ok(bench.files.unlink(&name(number))?)),
        many("append 4 KiB", |bench, number| {
            let file = bench.opened()?;
            let data = &bench.contents[number as usize % 64 * 64..][..4096];
            Ok(bench.files.append(file, data)?)
        }),
    ];
    steps.push(Step {
        name: "unlink of a large file, sync".to_owned(),
        operations: 1,
        prepare: Box::new(|_| Ok(())),
        act: Box::new(|bench| {
            if let Some(file) = bench.file.take() {
                bench.files.close(file)?;
                bench.files.unlink("d/data")?;
            }
            Ok(bench.files.sync()?)
        }),
    });
    steps
}

/// A workload with one thread, so that both do the same in the same order, and a `sync`. One of several
/// groups of threads becomes as many steps, a group each, with nobody to wait for: how often each of them
/// comes would be a matter of time. Groups that write nothing are left out.
///
/// # Errors
/// It is impossible.
fn macro_steps(personality: &Personality, seed: u64) -> Result<Vec<Step>> {
    let reads = |op: Operation| {
        use Operation::{Close, List, Open, Read, ReadWhole, Stat, Think};
        matches!(op, Close | List | Open | Read | ReadWhole | Stat | Think)
    };
    let mut groups = personality.groups.clone();
    for group in &mut groups {
        group.threads = 1;
        if personality.groups.len() > 1 {
            group.steps.retain(|step| !matches!(step.op, Operation::Post | Operation::Wait));
        }
    }
    groups.retain(|group| personality.groups.len() == 1 || group.steps.iter().any(|step| !reads(step.op)));
    let alone = groups.len() == 1;
    let step = |group: Group| {
        let name = if alone { String::new() } else { format!(", {}", group.name) };
        let name = format!("{}{name}, one thread, sync", personality.name);
        let mut only = Personality { groups: vec![group], ..personality.clone() };
        only.filesets
            .retain(|set| only.groups[0].steps.iter().any(|s| s.fileset.as_ref() == Some(&set.name)));
        // Each has trees of its own: two workloads may call theirs `log`.
        let own = |name: &mut String| *name = format!("{}-{name}", personality.name);
        only.filesets.iter_mut().for_each(|set| own(&mut set.name));
        only.groups[0].steps.iter_mut().filter_map(|step| step.fileset.as_mut()).for_each(own);
        macro_step(name, &only, seed)
    };
    groups.into_iter().map(step).collect()
}

fn macro_step(name: String, personality: &Personality, seed: u64) -> Result<Step> {
    let plan = Plan::new(personality)?;
    let for_prepare = plan.clone();
    let settings = workload::Settings { seed };
    Ok(Step {
        name,
        operations: personality.run.operations.context("a workload of some operations is needed")?,
        prepare: Box::new(move |bench| {
            bench.prepared = Some(workload::prepare(&**bench.files, &for_prepare, settings)?);
            Ok(())
        }),
        act: Box::new(move |bench| {
            let prepared = bench.prepared.take().context("the workload was not prepared")?;
            workload::run(&**bench.files, &prepared, &plan, settings, &|| {})?;
            Ok(bench.files.sync()?)
        }),
    })
}

/// A workload of the store with one client, and a `sync`.
fn ycsb_step(workload: &Ycsb, seed: u64) -> Step {
    let (workload, settings) = (workload.with_clients(1), workload::Settings { seed });
    let for_prepare = workload.clone();
    Step {
        name: format!("{}, one client, sync", workload.name),
        operations: workload.store.operations,
        prepare: Box::new(move |bench| {
            let files = Arc::clone(bench.files);
            bench.loaded = Some(ycsb::load(files, &for_prepare.name, &for_prepare, settings)?);
            Ok(())
        }),
        act: Box::new(move |bench| {
            let loaded = bench.loaded.take().context("the store was not loaded")?;
            ycsb::run(&loaded, &workload, settings, &|| {})?;
            Ok(bench.files.sync()?)
        }),
    }
}
