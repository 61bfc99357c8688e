//! Random traffic, random cuts: what was durable is there, what was not obeys the contract.
//!
//! Each seed makes a small device in virtual time, drives it with random stores, commits, block writes and trims, takes the power away at
//! a random command, at a random step inside the firmware, or between commands, recovers (often interrupted too), and compares
//! every cell with the oracle. `AMPHI_SEEDS=from..to` chooses other seeds.

mod oracle;

use amphi_device::{BlockPort, BytePort, Error, Lpa, Structure, TxId, WriteLog};
use amphi_rt::Sim;
use amphi_ssd::{Profile, Ssd};
use oracle::{CELL, CELLS, Oracle, Staged, Value};

const PAGES: usize = 24;
const SECTOR: usize = 512 / CELL;

/// A stream of numbers from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// The command that the cut interrupted.
enum Interrupted {
    Nothing,
    Commit(u32),
    Write { page: usize, values: Vec<Value> },
    Trim { page: usize, pages: usize },
}

fn small_device(dice: &mut Dice) -> Profile {
    let mut profile = Profile::named("free").expect("built in");
    profile.flash.channels = 2;
    profile.flash.ways = 1;
    profile.flash.pages_per_block = 4;
    profile.log.region_bytes = 64 << 10;
    profile.log.txlog_bytes = 4096;
    profile.log.partition_bytes = 64 << 10;
    profile.log.clean_at_percent = [10, 50, 85][dice.below(3)];
    profile.persistence.block_atomic_bytes = [512, 4096][dice.below(2)];
    profile
}

fn bytes_of(values: &[Value]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn values_of(bytes: &[u8]) -> Vec<Value> {
    bytes.chunks_exact(CELL).map(|cell| Value::from_le_bytes(cell.try_into().expect("8 bytes"))).collect()
}

struct Run {
    seed: u64,
    dice: Dice,
    ssd: Option<Ssd>,
    oracle: Oracle,
    value: Value,
    next_tx: u32,
    open: Vec<u32>,
    cuts: u64,
    log: Vec<String>,
}

impl Run {
    fn ssd(&self) -> &Ssd {
        self.ssd.as_ref().expect("a device")
    }

    fn say(&mut self, what: String) {
        if self.log.len() > 4000 {
            self.log.drain(..2000);
        }
        self.log.push(what);
    }

    fn fail(&self, what: &str) -> ! {
        let tail = self.log.len().saturating_sub(60);
        panic!(
            "seed {} after {} cuts: {what}\nreplay: AMPHI_SEEDS={}..{} cargo test -p amphi-ssd --test power_cuts\n{}",
            self.seed,
            self.cuts,
            self.seed,
            self.seed + 1,
            self.log[tail..].join("\n")
        );
    }

    fn values(&mut self, count: usize) -> Vec<Value> {
        (0..count)
            .map(|_| {
                self.value += 1;
                self.value
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
                    self.ssd().flush_lines((store.cell * CELL) as u64, store.values.len() * CELL);
                }
                self.ssd().fence();
                if self.ssd().has_power() {
                    self.oracle.post();
                }
                self.say("post".to_owned());
                (Ok(()), Interrupted::Nothing)
            }
            60..75 => {
                let outcome = self.ssd().verify_read();
                self.say(format!("verify {outcome:?}"));
                if outcome.is_ok() {
                    self.oracle.drain();
                }
                (outcome, Interrupted::Nothing)
            }
            75..82 => self.commit(),
            82..88 => self.write(),
            88..90 => self.trim(),
            90..96 => self.look(),
            96..97 => {
                let outcome = self.ssd().clean_log();
                self.say(format!("clean {outcome:?}"));
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
        let page = self.page();
        let count = [1, 1, 4, 8, 8, 32, 70][self.dice.below(7)];
        let first = [0, 8, 16, 64][self.dice.below(4)] + self.dice.below(2) * self.dice.below(20);
        let count = count.min(CELLS - first);
        if self.open.len() < 3 && self.dice.below(4) == 0 {
            self.open.push(self.next_tx);
            self.next_tx += 1;
        }
        let tx = match self.dice.below(self.open.len() + 1) {
            0 => 0,
            open => self.open[open - 1],
        };
        let cell = page * CELLS + first;
        let values = self.values(count);
        let outcome =
            self.ssd().store((cell * CELL) as u64, &bytes_of(&values), TxId::new(tx), Structure::Inode);
        self.say(format!("store {page}+{first} x{count} tx {tx} = {}.. {outcome:?}", values[0]));
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
        self.say(format!("commit {tx} {outcome:?}"));
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
        let outcome = self.ssd().write(Lpa(page as u64), &bytes, Structure::Data);
        self.say(format!("write {page} x{pages} = {}.. {outcome:?}", values[0]));
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
        let outcome = self.ssd().trim(Lpa(page as u64), pages as u64);
        self.say(format!("trim {page} x{pages} {outcome:?}"));
        if outcome.is_ok() {
            for page in page..page + pages {
                self.oracle.write_page(page, &[0; CELLS]);
            }
        }
        (outcome, Interrupted::Trim { page, pages })
    }

    fn look(&mut self) -> (amphi_device::Result<()>, Interrupted) {
        let page = self.page();
        let mut bytes = [0; 4096];
        let by_block = self.dice.below(2) == 0;
        let outcome = if by_block {
            self.ssd().read(Lpa(page as u64), &mut bytes, Structure::Data)
        } else {
            self.ssd().load(Lpa(page as u64).byte(0), &mut bytes, Structure::Data)
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

    /// Powers the device up again, recovers, and compares every cell with what the cut may have left.
    fn power_up(&mut self, interrupted: &Interrupted) {
        self.cuts += 1;
        let mut ssd = self.ssd.take().expect("a device").restart().expect("a whole image");
        loop {
            if self.dice.below(3) == 0 {
                ssd.cut_after_steps(self.dice.below(60) as u64, self.dice.next());
            }
            match ssd.recover() {
                Ok(report) => {
                    self.say(format!("recovered {report:?}"));
                    break;
                }
                Err(Error::PowerLost) => self.say("recovery interrupted".to_owned()),
                Err(other) => self.fail(&format!("recovery failed: {other}")),
            }
            self.cuts += 1;
            ssd = ssd.restart().expect("a whole image");
        }
        if !ssd.has_power() {
            ssd = ssd.restart().expect("a whole image");
        }
        ssd.cut_after_steps(u64::MAX, 0);
        let mut bytes = vec![0; PAGES * 4096];
        if ssd.read(Lpa(0), &mut bytes, Structure::Data).is_err() {
            self.fail("the device does not answer after recovery");
        }
        let found = values_of(&bytes);
        self.compare(&found, interrupted);
        self.oracle.settle(found);
        self.ssd = Some(ssd);
        self.next_tx = 1;
        self.open.clear();
    }

    fn compare(&self, found: &[Value], interrupted: &Interrupted) {
        let wrong = |oracle: &Oracle, cell: &usize| !oracle.may_be(*cell, found[*cell]);
        let all = || 0..PAGES * CELLS;
        let first_wrong = match interrupted {
            Interrupted::Nothing => all().find(|cell| wrong(&self.oracle, cell)),
            Interrupted::Commit(tx) => all().find(|cell| wrong(&self.oracle, cell)).and_then(|cell| {
                let mut committed = self.oracle.clone();
                committed.commit(*tx);
                // All of it or nothing of it.
                all().any(|cell| wrong(&committed, &cell)).then_some(cell)
            }),
            Interrupted::Write { page, values } => {
                let first = page * CELLS;
                all().step_by(SECTOR).find(|&sector| {
                    let cells = || sector..sector + SECTOR;
                    let new = sector >= first
                        && sector < first + values.len()
                        && cells().all(|cell| {
                            found[cell] == values[cell - first] || self.oracle.may_arrive(cell, found[cell])
                        });
                    !new && cells().any(|cell| wrong(&self.oracle, &cell))
                })
            }
            Interrupted::Trim { page, pages } => {
                let trimmed = page * CELLS..(page + pages) * CELLS;
                all().find(|cell| wrong(&self.oracle, cell) && !(trimmed.contains(cell) && found[*cell] == 0))
            }
        };
        if let Some(cell) = first_wrong {
            let (page, position) = (cell / CELLS, cell % CELLS);
            self.fail(&format!("page {page} cell {position} holds {} after recovery", found[cell]));
        }
    }
}

/// Runs one seed. Answers how many cuts it made.
fn run(seed: u64, cuts: u64) -> u64 {
    let mut dice = Dice(seed);
    let profile = small_device(&mut dice);
    let ssd = Ssd::in_memory(&profile, (PAGES * 4096) as u64);
    let oracle = Oracle::new(PAGES);
    let mut run = Run {
        seed,
        dice,
        ssd: Some(ssd),
        oracle,
        value: 0,
        next_tx: 1,
        open: Vec::new(),
        cuts: 0,
        log: Vec::new(),
    };
    while run.cuts < cuts {
        let length = 1 + run.dice.below(150);
        let cut_seed = run.dice.next();
        match run.dice.below(4) {
            0 => run.ssd().cut_after_commands(run.dice.0 % 100, cut_seed),
            1 | 2 => run.ssd().cut_after_steps(run.dice.0 % 300, cut_seed),
            _ => {}
        }
        let mut interrupted = Interrupted::Nothing;
        for _ in 0..length {
            if let Err(by) = run.step() {
                interrupted = by;
                break;
            }
        }
        if run.ssd().has_power() && run.dice.below(3) == 0 {
            run.say("host crash".to_owned());
            run.ssd().host_crash(cut_seed);
            run.oracle.drain();
        } else {
            run.say("power cut".to_owned());
            run.ssd().power_cut(cut_seed);
        }
        run.power_up(&interrupted);
    }
    run.cuts
}

fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("AMPHI_SEEDS") else { return default };
    let (from, to) = text.split_once("..").expect("AMPHI_SEEDS is FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn nothing_durable_is_lost_and_nothing_open_survives() {
    let mut cuts = 0;
    for seed in seeds(0..400) {
        cuts += Sim::new(seed).run(|| run(seed, 50));
    }
    println!("{cuts} cuts");
}
