//! One thread of a workload: goes through its group's steps again and again until the run is over.

use std::sync::atomic::Ordering;

use amphi_rt::random::Generator;
use amphi_rt::{cpu, time};
use hdrhistogram::Histogram;

use super::fileset::Set;
use super::outcome::empty;
use super::personality::Operation;
use super::plan::{FDS, PlannedStep, Target};
use super::shared::Shared;
use crate::files::{Creation, Files, Handle, OpenMode, Result};

/// What one step of one thread came to.
pub(super) struct Tally {
    pub(super) bytes: u64,
    /// How often it was done, warm-up included.
    pub(super) done: u64,
    pub(super) latency: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self { bytes: 0, done: 0, latency: empty() }
    }
}

/// An open file of a thread.
#[derive(Clone, Copy)]
struct Opened {
    file: Handle,
    set: usize,
    member: u32,
    /// Where the next sequential transfer goes.
    position: u64,
}

/// What came of a step.
enum Done {
    /// So many bytes were moved.
    Moved(u64),
    /// Nothing could be done this time: all files were in use, or none was open.
    Skipped,
    /// There is nothing left to do, ever.
    Exhausted,
}

pub(super) struct Thread<'a> {
    shared: &'a Shared<'a>,
    group: usize,
    number: usize,
    chance: Generator,
    opened: [Option<Opened>; FDS],
    /// What each of them was last: set and member.
    last: [Option<(usize, u32)>; FDS],
    /// Open files of sets that are gone through, and which is next; by set.
    rotations: Vec<(Vec<Option<Opened>>, usize)>,
    path: String,
    second_path: String,
    buffer: Vec<u8>,
}

impl<'a> Thread<'a> {
    pub(super) fn new(shared: &'a Shared<'a>, group: usize, number: usize, seed: u64) -> Self {
        let steps = &shared.plan.groups[group].steps;
        let reads = steps.iter().filter(|step| matches!(step.op, Operation::Read | Operation::ReadWhole));
        let longest = reads.map(|step| step.size.longest().next_multiple_of(step.aligned.max(1)));
        let longest = longest.max().unwrap_or(0);
        Self {
            shared,
            group,
            number,
            chance: Generator::new(seed),
            opened: [None; FDS],
            last: [None; FDS],
            rotations: shared.prepared.sets.iter().map(|_| (Vec::new(), 0)).collect(),
            path: String::new(),
            second_path: String::new(),
            buffer: vec![0; longest as usize],
        }
    }

    /// Runs until the end; what its steps came to.
    pub(super) fn run(mut self) -> Result<Vec<Tally>> {
        let shared = self.shared;
        let group = &shared.plan.groups[self.group];
        let window = shared.window;
        let started = time::now_ns();
        let mut tallies: Vec<Tally> = group.steps.iter().map(|_| Tally::new()).collect();
        let mut round: u64 = 0;
        'run: loop {
            if let Some(round_ns) = group.round_ns {
                let turn = round as f64 * group.threads as f64 + self.number as f64;
                time::sleep_until_ns(started + (turn * round_ns) as u64);
            }
            round += 1;
            for (step, tally) in group.steps.iter().zip(&mut tallies) {
                if step.every > 1 && !round.is_multiple_of(step.every) {
                    continue;
                }
                for _ in 0..step.times {
                    let begun = time::now_ns();
                    if begun >= window.end_ns || shared.over.load(Ordering::Relaxed) {
                        break 'run;
                    }
                    if let (Some(left), true) = (&shared.left, step.op.counts()) {
                        if left.load(Ordering::Relaxed) == 0 {
                            break 'run;
                        }
                        left.fetch_sub(1, Ordering::Relaxed);
                    }
                    match self.step(step)? {
                        Done::Moved(bytes) => {
                            let ended = time::now_ns();
                            tally.done += 1;
                            if begun >= window.begin_ns && ended <= window.end_ns {
                                tally.bytes += bytes;
                                // The histogram grows as needed.
                                let _ = tally.latency.record(ended - begun);
                            }
                        }
                        Done::Skipped => {}
                        Done::Exhausted => {
                            shared.over.store(true, Ordering::Relaxed);
                            break 'run;
                        }
                    }
                }
            }
        }
        self.close_all()?;
        Ok(tallies)
    }

    fn close_all(&mut self) -> Result<()> {
        for opened in self.opened.into_iter().flatten() {
            self.close(opened)?;
        }
        for (rotation, _) in std::mem::take(&mut self.rotations) {
            for opened in rotation.into_iter().flatten() {
                self.close(opened)?;
            }
        }
        Ok(())
    }

    fn close(&self, opened: Opened) -> Result<()> {
        self.shared.files.close(opened.file)?;
        self.set(opened.set).stop_using(opened.member);
        Ok(())
    }

    fn set(&self, set: usize) -> &'a Set {
        &self.shared.prepared.sets[set]
    }

    fn step(&mut self, step: &PlannedStep) -> Result<Done> {
        match (step.op, step.target) {
            (Operation::Create, Target::Opened { set, fd }) => self.create(step, set, fd),
            (Operation::Open, Target::Opened { set, fd }) => self.open(step, set, fd),
            (Operation::Close, Target::Fd(fd)) => match self.opened[fd].take() {
                Some(opened) => self.close(opened).map(|()| Done::Moved(0)),
                None => Ok(Done::Skipped),
            },
            (Operation::Delete | Operation::Rmdir, Target::Set(set)) => self.remove(step, set),
            (Operation::Rename, Target::Set(set)) => self.rename(step, set),
            (Operation::Mkdir, Target::Set(set)) => {
                let set = self.set(set);
                let Some(member) = set.take_absent(self.number, &mut self.chance) else {
                    return Ok(Done::Exhausted);
                };
                set.path_named(member, false, &mut self.path);
                self.shared.files.mkdir(&self.path)?;
                self.settle(step)?;
                set.put_present(member, 0, false);
                Ok(Done::Moved(0))
            }
            (Operation::Stat, Target::Set(set)) => {
                self.look(set, |files, path, _| files.stat(path).map(drop))
            }
            (Operation::SetAttribute, Target::Set(set)) => {
                let set = self.set(set);
                set.path(0, &mut self.path);
                let value = self.chance.next().to_le_bytes();
                self.shared.files.set_attribute(&self.path, "user.mark", &[value, value].concat())?;
                Ok(Done::Moved(0))
            }
            (Operation::List, Target::Set(set)) => {
                self.look(set, |files, _, parent| files.list(parent, &mut |_| {}))
            }
            (Operation::Sync, _) => self.shared.files.sync().map(|()| Done::Moved(0)),
            (Operation::Think, _) => {
                cpu::charge_ns(step.ns);
                Ok(Done::Moved(0))
            }
            (Operation::Post, Target::Semaphore(index)) => {
                let posted = self.shared.semaphores[index].post(step.value, self.shared.window.end_ns);
                Ok(if posted { Done::Moved(0) } else { Done::Skipped })
            }
            (Operation::Wait, Target::Semaphore(index)) => {
                let semaphore = &self.shared.semaphores[index];
                let end_ns = self.shared.window.end_ns;
                let taken = semaphore.take(self.group, self.number, step.value, end_ns);
                Ok(if taken { Done::Moved(0) } else { Done::Skipped })
            }
            (_, target) => self.transfer(step, target),
        }
    }

    fn mode(step: &PlannedStep, create: Creation) -> OpenMode {
        OpenMode { write: true, create, truncate: false, direct: step.direct, sync_data: step.sync_data }
    }

    fn create(&mut self, step: &PlannedStep, set: usize, fd: usize) -> Result<Done> {
        if let Some(opened) = self.opened[fd].take() {
            self.close(opened)?;
        }
        let place = self.set(set);
        let Some(member) = place.take_absent(self.number, &mut self.chance) else {
            // Where others remove files there will be room again.
            let ends = self.shared.plan.run.until_exhausted;
            return Ok(if ends { Done::Exhausted } else { Done::Skipped });
        };
        place.path_named(member, false, &mut self.path);
        let file = self.shared.files.open(&self.path, Self::mode(step, Creation::New))?;
        place.put_present(member, 1, false);
        self.last[fd] = Some((set, member));
        self.opened[fd] = Some(Opened { file, set, member, position: 0 });
        Ok(Done::Moved(0))
    }

    fn open(&mut self, step: &PlannedStep, set: usize, fd: usize) -> Result<Done> {
        if let Some(opened) = self.opened[fd].take() {
            self.close(opened)?;
        }
        let place = self.set(set);
        let chosen = if step.again {
            let last = self.last[fd].filter(|(of, _)| *of == set);
            last.and_then(|(_, member)| Some((member, place.use_this(member)?)))
        } else {
            place.use_present(self.number, &mut self.chance)
        };
        let Some((member, renamed)) = chosen else { return Ok(Done::Skipped) };
        place.path_named(member, renamed, &mut self.path);
        let file = self.shared.files.open(&self.path, Self::mode(step, Creation::Never))?;
        self.last[fd] = Some((set, member));
        self.opened[fd] = Some(Opened { file, set, member, position: 0 });
        Ok(Done::Moved(0))
    }

    /// Has a change of the name at `path` be durable, where its step wants that.
    fn settle(&self, step: &PlannedStep) -> Result<()> {
        match (step.durable, self.path.rsplit_once('/')) {
            (true, Some((directory, _))) => self.shared.files.sync_directory(directory),
            _ => Ok(()),
        }
    }

    fn remove(&mut self, step: &PlannedStep, set: usize) -> Result<Done> {
        let set = self.set(set);
        let member = match set.take_present(self.number, &mut self.chance) {
            Ok(Some(member)) => member,
            Ok(None) if self.shared.plan.run.until_exhausted => return Ok(Done::Exhausted),
            _ => return Ok(Done::Skipped),
        };
        set.path(member, &mut self.path);
        match step.op {
            Operation::Rmdir => self.shared.files.rmdir(&self.path)?,
            _ => self.shared.files.unlink(&self.path)?,
        }
        self.settle(step)?;
        set.put_absent(member);
        Ok(Done::Moved(0))
    }

    fn rename(&mut self, step: &PlannedStep, set: usize) -> Result<Done> {
        let set = self.set(set);
        let Ok(Some(member)) = set.take_present(self.number, &mut self.chance) else {
            return Ok(Done::Skipped);
        };
        let renamed = set.is_renamed(member);
        set.path_named(member, renamed, &mut self.path);
        set.path_named(member, !renamed, &mut self.second_path);
        self.shared.files.rename(&self.path, &self.second_path)?;
        self.settle(step)?;
        set.put_present(member, 0, !renamed);
        Ok(Done::Moved(0))
    }

    /// Does something to a member by its path, and its directory's.
    fn look(&mut self, set: usize, look: impl FnOnce(&dyn Files, &str, &str) -> Result<()>) -> Result<Done> {
        let set = self.set(set);
        let Some((member, renamed)) = set.use_present(self.number, &mut self.chance) else {
            return Ok(Done::Skipped);
        };
        set.path_named(member, renamed, &mut self.path);
        set.parent(member, &mut self.second_path);
        let looked = look(self.shared.files, &self.path, &self.second_path);
        set.stop_using(member);
        looked.map(|()| Done::Moved(0))
    }

    /// Does what needs an open file: the thread's, or the next one of a set that the thread goes through.
    fn transfer(&mut self, step: &PlannedStep, target: Target) -> Result<Done> {
        match target {
            Target::Fd(fd) => {
                let Some(mut opened) = self.opened[fd] else { return Ok(Done::Skipped) };
                let done = self.transfer_to(step, &mut opened)?;
                self.opened[fd] = Some(opened);
                Ok(done)
            }
            Target::Set(set) => {
                let Some((at, mut opened)) = self.next_of(step, set)? else { return Ok(Done::Skipped) };
                let done = self.transfer_to(step, &mut opened)?;
                self.rotations[set].0[at] = Some(opened);
                Ok(done)
            }
            _ => Ok(Done::Skipped),
        }
    }

    /// The next file of a set, opened when its turn first comes. Each thread begins elsewhere.
    fn next_of(&mut self, step: &PlannedStep, set: usize) -> Result<Option<(usize, Opened)>> {
        let place = self.set(set);
        let length = place.len() as usize;
        let (files, next) = &mut self.rotations[set];
        if files.is_empty() {
            files.resize(length, None);
            *next = self.number % length;
        }
        let at = match step.op {
            _ if step.own => self.number % length,
            // A sync belongs to what was written before it.
            Operation::Fsync => (*next + length - 1) % length,
            _ => std::mem::replace(next, (*next + 1) % length),
        };
        if let Some(opened) = files[at] {
            return Ok(Some((at, opened)));
        }
        let Some(renamed) = place.use_this(at as u32) else { return Ok(None) };
        place.path_named(at as u32, renamed, &mut self.path);
        let file = self.shared.files.open(&self.path, Self::mode(step, Creation::Never))?;
        Ok(Some((at, Opened { file, set, member: at as u32, position: 0 })))
    }

    fn transfer_to(&mut self, step: &PlannedStep, opened: &mut Opened) -> Result<Done> {
        let files = self.shared.files;
        let file = opened.file;
        let moved = match step.op {
            Operation::ReadWhole => {
                let length = step.size.longest() as usize;
                files.read_whole(file, &mut self.buffer[..length])?
            }
            Operation::WriteWhole => {
                let whole = self.set(opened.set).size.draw(&mut self.chance);
                let most = step.size.longest();
                let mut offset = 0;
                while offset < whole {
                    let part = most.min(whole - offset);
                    files.write(file, offset, self.noise(part))?;
                    offset += part;
                }
                whole
            }
            Operation::Append => {
                let bytes = step.size.draw(&mut self.chance);
                files.append(file, self.noise(bytes))?;
                bytes
            }
            Operation::Fsync => {
                files.fsync(file, step.data_only)?;
                0
            }
            _ => {
                let mut bytes = step.size.draw(&mut self.chance);
                let size = files.size(file)?;
                let places = size / step.size.longest();
                let rounded = (bytes + step.aligned / 2).checked_div(step.aligned);
                let offset = if let Some(parts) = rounded {
                    bytes = parts.max(1) * step.aligned;
                    let places = size.saturating_sub(bytes) / step.aligned + 1;
                    self.chance.below(places) * step.aligned
                } else if step.random && step.unaligned {
                    self.chance.below(size.saturating_sub(bytes) + 1)
                } else if step.random {
                    if places == 0 { 0 } else { self.chance.below(places) * step.size.longest() }
                } else if step.op == Operation::Write && opened.position + bytes > size {
                    0
                } else {
                    opened.position
                };
                if step.op == Operation::Write {
                    files.write(file, offset, self.noise(bytes))?;
                    opened.position = offset + bytes;
                    bytes
                } else {
                    let read = files.read(file, offset, &mut self.buffer[..bytes as usize])?;
                    opened.position = if read < bytes as usize { 0 } else { offset + bytes };
                    read as u64
                }
            }
        };
        Ok(Done::Moved(moved))
    }

    /// So many bytes to be written, from a random place of the noise, aligned to lines so that no line stays
    /// as it was.
    fn noise(&mut self, bytes: u64) -> &'a [u8] {
        let room = self.shared.contents.len() as u64 - bytes;
        let at = self.chance.below(room / 64 + 1) as usize * 64;
        &self.shared.contents[at..][..bytes as usize]
    }
}
