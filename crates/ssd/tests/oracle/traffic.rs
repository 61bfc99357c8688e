//! Random traffic for one to three tasks, and the cuts in it, against the oracle.

use std::sync::Arc;

use super::{CELL, CELLS, Dice, Oracle, Staged, Value, bytes_of, values_of};
use amphi_device::{BlockPort, ByteDurability, BytePort, Device, Error, Lpa, Structure, TxId, WriteLog};
use amphi_ssd::{BlockDurabilityName, ByteDurabilityName, Firmware, Profile, Ssd};

const PAGES: usize = 24;
const SECTOR: usize = 512 / CELL;

/// The command that the cut interrupted.
enum Interrupted {
    Nothing,
    Commit(u32),
    Write { page: usize, values: Vec<Value> },
    Trim { page: usize, pages: usize },
}

fn small_device(dice: &mut Dice) -> Profile {
    // With time, cleaning and block commands overlap with what other tasks do.
    let mut profile = Profile::named(["free", "mssd-pcie3"][dice.below(2)]).expect("built in");
    profile.media.planes = 1 + dice.below(2) as u64;
    profile.flash.channels = 2;
    profile.flash.ways = 1;
    profile.flash.pages_per_block = 4;
    profile.flash.checkpoint_pages = [16, 1 << 20][dice.below(2)];
    profile.log.region_bytes = 64 << 10;
    profile.log.txlog_bytes = 4096;
    profile.log.partition_bytes = 64 << 10;
    profile.log.clean_at_percent = [10, 50, 85][dice.below(3)];
    if dice.below(3) == 0 {
        profile.media.seed = dice.next();
        profile.media.program_failure_ppb = 1_000_000;
        profile.media.erase_failure_ppb = 1_000_000;
    }
    profile.persistence.block_atomic_bytes = [512, 4096][dice.below(2)];
    if dice.below(3) == 0 {
        profile.persistence.byte_durability = ByteDurabilityName::Fence;
    }
    if dice.below(3) == 0 {
        profile.persistence.block_durability = BlockDurabilityName::Flush;
        profile.flash.write_buffer_pages = [4, 1024][dice.below(2)];
    }
    profile
}

/// The same with other firmware: a page cache smaller than what the tasks use, or a memory area with pages
/// for each of them.
fn with_firmware(mut profile: Profile, firmware: Firmware) -> Profile {
    profile.firmware.kind = firmware;
    match firmware {
        Firmware::Log => return profile,
        Firmware::PageCache => profile.firmware.memory_bytes = 64 << 10,
        Firmware::Memory | Firmware::FileSystem => profile.firmware.memory_bytes = 3 * (PAGES * 4096) as u64,
        Firmware::BaBuffer => unreachable!("pins have traffic of their own"),
    }
    profile.persistence.block_durability = BlockDurabilityName::Completion;
    profile
}

/// One host task: what it does, and what its pages must hold.
struct Run {
    seed: u64,
    /// This task and how many there are.
    task: u32,
    tasks: u32,
    dice: Dice,
    ssd: Option<Arc<Ssd>>,
    oracle: Oracle,
    /// Whether block writes need a flush.
    volatile: bool,
    /// Whether the firmware has transactions.
    transactions: bool,
    /// Pages of the oracle that stores go to: those of block writes, or as many more where the window is a
    /// memory area.
    window: std::ops::Range<usize>,
    value: Value,
    next_tx: u32,
    open: Vec<u32>,
    replays: bool,
    log: Vec<String>,
}

impl Run {
    fn new(seed: u64, task: u32, tasks: u32, profile: &Profile) -> Self {
        let volatile = profile.persistence.block_durability == BlockDurabilityName::Flush;
        let window = if profile.firmware.kind == Firmware::Memory { PAGES..2 * PAGES } else { 0..PAGES };
        Self {
            seed,
            task,
            tasks,
            dice: Dice(seed ^ u64::from(task) << 48),
            ssd: None,
            oracle: Oracle::new(window.end, volatile),
            volatile,
            transactions: profile.firmware.kind == Firmware::Log,
            window,
            value: 0,
            next_tx: 1 + task,
            open: Vec::new(),
            replays: std::env::var_os("AMPHI_SEEDS").is_some(),
            log: Vec::new(),
        }
    }

    fn ssd(&self) -> &Ssd {
        self.ssd.as_ref().expect("a device")
    }

    /// The device's page for one of this task's.
    fn lpa(&self, page: usize) -> Lpa {
        Lpa((self.task as usize * PAGES + page) as u64)
    }

    /// The window's byte for one of the oracle's cells that stores go to.
    fn byte(&self, cell: usize) -> u64 {
        self.lpa(0).byte(cell * CELL - self.window.start * 4096)
    }

    /// Notes what is done, in a replay: with a million cuts, notes that nobody reads would be a tenth of the
    /// time.
    fn say(&mut self, what: impl FnOnce() -> String) {
        if !self.replays {
            return;
        }
        if self.log.len() > 4000 {
            self.log.drain(..2000);
        }
        self.log.push(what());
    }

    fn fail(&self, what: &str) -> ! {
        let tail = self.log.len().saturating_sub(60);
        panic!(
            "seed {} task {}: {what}\nreplay: AMPHI_SEEDS={}..{} cargo test -p amphi-ssd --test power_cuts\n{}",
            self.seed,
            self.task,
            self.seed,
            self.seed + 1,
            self.log[tail..].join("\n")
        );
    }

    fn values(&mut self, count: usize) -> Vec<Value> {
        (0..count)
            .map(|_| {
                self.value += 1;
                // Both halves differ from any other value's, so that half a cell is never taken for a whole
                // one.
                self.value * 0x1_0000_0001
            })
            .collect()
    }

    fn page(&mut self) -> usize {
        // Half the traffic goes to three pages, so that versions pile up.
        if self.dice.below(2) == 0 { self.dice.below(3) } else { self.dice.below(PAGES) }
    }

    /// One random command. Answers what was interrupted, if the power went.
    fn step(&mut self) -> Result<(), Interrupted> {
        let outcome = match self.dice.below(100) {
            0..40 => self.store(),
            40..60 => {
                for store in self.oracle.staged.clone() {
                    self.ssd().flush_lines(self.byte(store.cell), store.values.len() * CELL);
                }
                self.ssd().fence();
                if self.ssd().has_power() {
                    self.oracle.post();
                    if self.ssd().contract().byte_durability == ByteDurability::Fence {
                        self.oracle.drain();
                    }
                }
                self.say(|| "post".to_owned());
                (Ok(()), Interrupted::Nothing)
            }
            60..75 => {
                let outcome = self.ssd().verify_read();
                self.say(|| format!("verify {outcome:?}"));
                if outcome.is_ok() {
                    self.oracle.drain();
                }
                (outcome, Interrupted::Nothing)
            }
            75..82 if self.transactions => self.commit(),
            82..88 => self.write(),
            88..90 => self.trim(),
            90..96 => self.look(),
            96..97 if self.transactions => {
                let outcome = self.ssd().clean_log();
                self.say(|| format!("clean {outcome:?}"));
                (outcome, Interrupted::Nothing)
            }
            97..98 => {
                let outcome = self.ssd().flush();
                self.say(|| format!("flush {outcome:?}"));
                if outcome.is_ok() {
                    self.oracle.flush();
                }
                (outcome, Interrupted::Nothing)
            }
            _ => {
                amphi_rt::time::sleep_ns(1000);
                (Ok(()), Interrupted::Nothing)
            }
        };
        match outcome {
            (Ok(()), _) => Ok(()),
            (Err(Error::PowerLost), interrupted) => Err(interrupted),
            (Err(other), _) => self.fail(&format!("a command failed: {other}")),
        }
    }

    fn store(&mut self) -> (amphi_device::Result<()>, Interrupted) {
        let page = self.window.start + self.page();
        let count = [1, 1, 4, 8, 8, 32, 70][self.dice.below(7)];
        let first = [0, 8, 16, 64][self.dice.below(4)] + self.dice.below(2) * self.dice.below(20);
        let count = count.min(CELLS - first);
        if self.transactions && self.open.len() < 3 && self.dice.below(4) == 0 {
            self.open.push(self.next_tx);
            self.next_tx += self.tasks;
        }
        let tx = match self.dice.below(self.open.len() + 1) {
            0 => 0,
            open => self.open[open - 1],
        };
        let cell = page * CELLS + first;
        let values = self.values(count);
        let outcome = self.ssd().store(self.byte(cell), &bytes_of(&values), TxId::new(tx), Structure::Inode);
        self.say(|| format!("store {page}+{first} x{count} tx {tx} = {}.. {outcome:?}", values[0]));
        if outcome.is_ok() {
            self.oracle.staged.push(Staged { cell, values, tx, posted: false });
        }
        (outcome, Interrupted::Nothing)
    }

    fn commit(&mut self) -> (amphi_device::Result<()>, Interrupted) {
        // Only a transaction whose stores have all been verified may be committed.
        let staged = &self.oracle.staged;
        let ready = self.open.iter().position(|&tx| staged.iter().all(|store| store.tx != tx));
        let Some(position) = ready else { return (Ok(()), Interrupted::Nothing) };
        let tx = self.open.remove(position);
        let outcome = self.ssd().commit(TxId::new(tx).expect("not zero"));
        self.say(|| format!("commit {tx} {outcome:?}"));
        if outcome.is_ok() {
            self.oracle.commit(tx);
        }
        (outcome, Interrupted::Commit(tx))
    }

    fn write(&mut self) -> (amphi_device::Result<()>, Interrupted) {
        let page = self.page();
        let pages = (1 + self.dice.below(3)).min(PAGES - page);
        let values = self.values(pages * CELLS);
        let bytes = bytes_of(&values);
        let outcome = self.ssd().write(self.lpa(page), &bytes, Structure::Data);
        self.say(|| format!("write {page} x{pages} = {}.. {outcome:?}", values[0]));
        if outcome.is_ok() {
            for (position, values) in values.chunks_exact(CELLS).enumerate() {
                self.oracle.write_page(page + position, values);
            }
        }
        (outcome, Interrupted::Write { page, values })
    }

    fn trim(&mut self) -> (amphi_device::Result<()>, Interrupted) {
        let page = self.page();
        let pages = (1 + self.dice.below(4)).min(PAGES - page);
        let outcome = self.ssd().trim(self.lpa(page), pages as u64);
        self.say(|| format!("trim {page} x{pages} {outcome:?}"));
        if outcome.is_ok() {
            for page in page..page + pages {
                self.oracle.trim_page(page);
            }
        }
        (outcome, Interrupted::Trim { page, pages })
    }

    fn look(&mut self) -> (amphi_device::Result<()>, Interrupted) {
        let mut page = self.page();
        let mut bytes = [0; 4096];
        let by_block = self.dice.below(2) == 0;
        let outcome = if by_block {
            self.ssd().read(self.lpa(page), &mut bytes, Structure::Data)
        } else {
            page += self.window.start;
            self.ssd().load(self.byte(page * CELLS), &mut bytes, Structure::Data)
        };
        if outcome.is_ok() {
            for (position, value) in values_of(&bytes).into_iter().enumerate() {
                let cell = page * CELLS + position;
                let expected = if by_block { self.oracle.on_device(cell) } else { self.oracle.seen(cell) };
                if value != expected {
                    self.fail(&format!("page {page} cell {position} reads {value}, not {expected}"));
                }
            }
        }
        (outcome, Interrupted::Nothing)
    }

    fn compare(&self, found: &[Value], interrupted: &Interrupted) {
        let lasting = self.oracle.lasting();
        if found == lasting {
            return;
        }
        let wrong = |cell: &usize| found[*cell] != lasting[*cell] && !self.oracle.may_be(*cell, found[*cell]);
        let all = || 0..self.window.end * CELLS;
        let first_wrong = match interrupted {
            Interrupted::Nothing => all().find(wrong),
            Interrupted::Commit(tx) => all().find(wrong).and_then(|cell| {
                let mut committed = self.oracle.clone();
                committed.commit(*tx);
                // All of it or nothing of it.
                all().any(|cell| !committed.may_be(cell, found[cell])).then_some(cell)
            }),
            Interrupted::Write { page, values } => {
                let first = page * CELLS;
                all()
                    .step_by(SECTOR)
                    .find(|&sector| {
                        let cells = || sector..sector + SECTOR;
                        let new = sector >= first
                            && sector < first + values.len()
                            && cells().all(|cell| {
                                found[cell] == values[cell - first]
                                || self.oracle.may_arrive(cell, found[cell])
                                // Over a volatile cache, parts of earlier writes may mix in.
                                || (self.volatile && self.oracle.may_be(cell, found[cell]))
                            });
                        !new && cells().any(|cell| wrong(&cell))
                    })
                    .and_then(|sector| (sector..sector + SECTOR).find(wrong))
            }
            Interrupted::Trim { page, pages } => {
                let trimmed = page * CELLS..(page + pages) * CELLS;
                all().find(|cell| wrong(cell) && !(trimmed.contains(cell) && found[*cell] == 0))
            }
        };
        if let Some(cell) = first_wrong {
            let (page, position) = (cell / CELLS, cell % CELLS);
            self.fail(&format!(
                "page {page} cell {position} holds {} after recovery, not {}",
                found[cell], lasting[cell]
            ));
        }
    }

    /// Works until the power goes, or for `length` commands. Answers what was interrupted.
    fn work(&mut self, length: usize) -> Interrupted {
        for _ in 0..length {
            if let Err(by) = self.step() {
                return by;
            }
        }
        Interrupted::Nothing
    }
}

/// Powers the device up again and recovers, through further cuts. Answers how many those were.
fn power_up(dice: &mut Dice, mut ssd: Ssd) -> (Ssd, u64) {
    let mut cuts = 0;
    loop {
        ssd = ssd.restart().expect("a whole image");
        if dice.below(3) == 0 {
            ssd.cut_after_steps(dice.below(60) as u64, dice.next());
        }
        if !ssd.contract().transactions {
            break;
        }
        match ssd.recover() {
            Ok(_) => break,
            Err(Error::PowerLost) => cuts += 1,
            Err(other) => panic!("recovery failed: {other}"),
        }
    }
    if !ssd.has_power() {
        ssd = ssd.restart().expect("a whole image");
    }
    ssd.cut_after_steps(u64::MAX, 0);
    (ssd, cuts)
}

/// Runs one seed of any firmware but the BA-buffer's. Answers how many cuts it made.
///
/// # Panics
/// If the device has lost or kept what it must not, with the seed and the last commands.
pub fn run(seed: u64, cuts: u64, firmware: Firmware) -> u64 {
    let mut dice = Dice(seed);
    let tasks = [1, 1, 2, 3][dice.below(4)];
    let profile = with_firmware(small_device(&mut dice), firmware);
    let mut ssd = Ssd::in_memory(&profile, (tasks as usize * PAGES * 4096) as u64);
    let mut runs: Vec<Run> = (0..tasks).map(|task| Run::new(seed, task, tasks, &profile)).collect();
    let mut made = 0;
    let mut bytes = vec![0; PAGES * 4096];
    while made < cuts {
        let cut_seed = dice.next();
        match dice.below(4) {
            0 => ssd.cut_after_commands(dice.next() % 100, cut_seed),
            1 | 2 => ssd.cut_after_steps(dice.next() % 300, cut_seed),
            _ => {}
        }
        let shared = Arc::new(ssd);
        let lengths: Vec<usize> = runs.iter().map(|_| 1 + dice.below(150)).collect();
        let work = |(mut run, length): (Run, usize)| {
            run.ssd = Some(Arc::clone(&shared));
            move || {
                let interrupted = run.work(length);
                run.ssd = None;
                (run, interrupted)
            }
        };
        let ended: Vec<(Run, Interrupted)> = if tasks == 1 {
            runs.drain(..).zip(lengths).map(|pair| work(pair)()).collect()
        } else {
            let started: Vec<_> =
                runs.drain(..).zip(lengths).map(|pair| amphi_rt::task::spawn("host", work(pair))).collect();
            started.into_iter().map(|task| task.join()).collect()
        };
        ssd = Arc::into_inner(shared).expect("the tasks have ended");
        let host_crash = ssd.has_power() && dice.below(3) == 0;
        if host_crash {
            ssd.host_crash(cut_seed);
        } else {
            ssd.power_cut(cut_seed);
        }
        let (up, more) = power_up(&mut dice, ssd);
        ssd = up;
        made += 1 + more;
        for (mut run, interrupted) in ended {
            run.say(|| if host_crash { "host crash" } else { "power cut" }.to_owned());
            if host_crash {
                run.oracle.drain();
                run.oracle.flush();
            }
            if ssd.read(run.lpa(0), &mut bytes, Structure::Data).is_err() {
                run.fail("the device does not answer after recovery");
            }
            let mut found = values_of(&bytes);
            if run.window.start > 0 {
                ssd.load(run.byte(run.window.start * CELLS), &mut bytes, Structure::Data)
                    .expect("a memory area answers");
                found.extend(values_of(&bytes));
            }
            run.compare(&found, &interrupted);
            run.oracle.settle(found);
            run.next_tx = 1 + run.task;
            run.open.clear();
            runs.push(run);
        }
    }
    made
}
