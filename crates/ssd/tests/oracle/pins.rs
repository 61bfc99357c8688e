//! Random traffic on a BA-buffer, and the cuts in it: pins, flushes and syncs of entries between stores to
//! the window and block commands, against a model of both sides and of the table.
//!
//! The rules: what was synced is in the window after every loss, and what was not may be, by cells; what a
//! block command completed is in flash; the table is as it was, and a pin or flush that was interrupted
//! happened or did not.

use amphi_device::{BaBuffer, BlockPort, BytePort, Entry, EntryId, Error, Lpa, PinError, Result, Structure};
use amphi_ssd::{Firmware, Profile, Ssd};

use super::{CELL, CELLS, Dice, Value, bytes_of, values_of};

/// Pages of the block side.
const PAGES: usize = 24;
/// Pages of the window: the fewest there may be.
const WINDOW: usize = 16;
const ENTRIES: usize = 3;
const SECTOR: usize = 512 / CELL;
const TAG: Structure = Structure::Journal;

/// A store on its way to the window.
struct Staged {
    cell: usize,
    values: Vec<Value>,
    posted: bool,
}

/// The command that the cut interrupted.
enum Interrupted {
    Nothing,
    Pin(Entry),
    Flush(Entry),
    Write { page: usize, values: Vec<Value> },
    Trim { page: usize, pages: usize },
}

/// How a command ended: done, refused as expected, or without power.
type Outcome = std::result::Result<(), Interrupted>;

struct Run {
    seed: u64,
    dice: Dice,
    ssd: Ssd,
    /// What the block side holds, where no entry pins it.
    flash: Vec<Value>,
    /// What the device holds of the window.
    window: Vec<Value>,
    table: Vec<Entry>,
    staged: Vec<Staged>,
    value: Value,
    /// Whether this is a replay, which notes what is done.
    replays: bool,
    log: Vec<String>,
}

fn device(dice: &mut Dice) -> Profile {
    let mut profile = Profile::named(["free", "2b-ssd"][dice.below(2)]).expect("built in");
    (profile.flash.channels, profile.flash.ways, profile.flash.pages_per_block) = (2, 1, 4);
    profile.flash.checkpoint_pages = [16, 1 << 20][dice.below(2)];
    profile.log.region_bytes = 64 << 10;
    profile.log.txlog_bytes = 4096;
    profile.log.partition_bytes = 64 << 10;
    profile.link.dma_read_ns = 100;
    profile.persistence.block_atomic_bytes = 512;
    profile.firmware.kind = Firmware::BaBuffer;
    profile.ba_buffer.bytes = (WINDOW * CELLS * CELL) as u64;
    profile.ba_buffer.entries = ENTRIES as u64;
    profile
}

impl Run {
    fn fail(&self, what: &str) -> ! {
        let tail = self.log.len().saturating_sub(60);
        panic!(
            "seed {}: {what}\nreplay: AMPHI_SEEDS={}..{} cargo test -p amphi-ssd --test power_cuts ba_buffer\n{}",
            self.seed,
            self.seed,
            self.seed + 1,
            self.log[tail..].join("\n")
        );
    }

    fn say(&mut self, what: impl FnOnce() -> String) {
        if self.replays {
            self.log.push(what());
        }
    }

    fn values(&mut self, count: usize) -> Vec<Value> {
        let first = self.value + 1;
        self.value += count as u64;
        (first..first + count as u64).map(|value| value * 0x1_0000_0001).collect()
    }

    /// How a block command to these pages is refused, if one of them is pinned: by the first of those.
    fn refusal(&self, page: usize, pages: usize) -> Option<Error> {
        (page as u64..(page + pages) as u64).map(Lpa).find_map(|page| {
            let entry = self.table.iter().find(|entry| entry.has_page_of(page, 1))?;
            Some(PinError::Pinned { page, entry: entry.id }.into())
        })
    }

    /// Whether a pin of this entry is in the way of another.
    fn is_taken(&self, entry: &Entry) -> bool {
        self.table.iter().any(|other| {
            other.id == entry.id
                || other.has_page_of(entry.at, entry.pages)
                || other.has_byte_of(entry.offset, entry.bytes())
        })
    }

    /// Judges what a command answered: whether it was done or refused, as the model has it, or that power was
    /// lost.
    fn judge(
        &self,
        outcome: &Result<()>,
        expected: Option<&Error>,
        what: &str,
    ) -> std::result::Result<bool, ()> {
        match (outcome, expected) {
            (Err(Error::PowerLost), _) => Err(()),
            (Ok(()), None) => Ok(true),
            (Err(found), Some(expected)) if found == expected => Ok(false),
            _ => self.fail(&format!("{what}: {outcome:?}, not {expected:?}")),
        }
    }

    fn step(&mut self) -> Outcome {
        match self.dice.below(100) {
            0..35 => self.store(),
            35..50 => self.sync(),
            50..55 => self.post(),
            55..67 => self.pin(),
            67..77 => self.flush(),
            77..87 => self.write(),
            87..90 => self.trim(),
            90..99 => self.look(),
            _ => {
                amphi_rt::time::sleep_ns(1000);
                Ok(())
            }
        }
    }

    fn store(&mut self) -> Outcome {
        // Every other store goes to an entry, and there to its last page as often as to all others.
        let page = match self.dice.below(2) {
            0 if !self.table.is_empty() => {
                let entry = self.table[self.dice.below(self.table.len())];
                let pages = entry.pages as usize;
                let page = if self.dice.below(2) == 0 { pages - 1 } else { self.dice.below(pages) };
                (entry.offset / 4096) as usize + page
            }
            _ => self.dice.below(WINDOW),
        };
        let count = [1, 1, 8, 9, 32][self.dice.below(5)];
        let cell = page * CELLS + self.dice.below(4) * 16 + self.dice.below(2) * (CELLS - 96);
        let values = self.values(count);
        let outcome = self.ssd.store((cell * CELL) as u64, &bytes_of(&values), None, TAG);
        self.say(|| format!("store cell {cell} x{count} = {} {outcome:?}", values[0]));
        if self.judge(&outcome, None, "store").map_err(|()| Interrupted::Nothing)? {
            self.staged.push(Staged { cell, values, posted: false });
        }
        Ok(())
    }

    /// What is posted arrives.
    fn drain(&mut self) {
        for store in std::mem::take(&mut self.staged) {
            if store.posted {
                self.window[store.cell..store.cell + store.values.len()].copy_from_slice(&store.values);
            } else {
                self.staged.push(store);
            }
        }
    }

    fn post(&mut self) -> Outcome {
        for store in &self.staged {
            self.ssd.flush_lines((store.cell * CELL) as u64, store.values.len() * CELL);
        }
        self.ssd.fence();
        if self.ssd.has_power() {
            self.staged.iter_mut().for_each(|store| store.posted = true);
        }
        self.say(|| "post".to_owned());
        Ok(())
    }

    fn id(&mut self) -> EntryId {
        EntryId(self.dice.below(ENTRIES + 1) as u32)
    }

    fn found(&self, id: EntryId) -> std::result::Result<Entry, Error> {
        let found = self.table.iter().find(|entry| entry.id == id);
        found.copied().ok_or(PinError::NoSuchEntry(id).into())
    }

    fn sync(&mut self) -> Outcome {
        let id = self.id();
        let outcome = self.ssd.sync_entry(id);
        self.say(|| format!("sync {id:?} {outcome:?}"));
        let found = self.found(id);
        if self.judge(&outcome, found.as_ref().err(), "sync").map_err(|()| Interrupted::Nothing)? {
            let entry = found.expect("the device found it");
            for store in &mut self.staged {
                let (at, bytes) = ((store.cell * CELL) as u64, (store.values.len() * CELL) as u64);
                // A store lies in one page, so an entry has all of it or nothing.
                store.posted |= entry.has_byte_of(at, bytes);
            }
            self.drain();
        }
        Ok(())
    }

    /// No store is under way: what the contract asks of a host before a pin or a flush of that range.
    fn settle_stores(&mut self) -> Outcome {
        self.post()?;
        let outcome = self.ssd.verify_read();
        if self.judge(&outcome, None, "verify").map_err(|()| Interrupted::Nothing)? {
            self.drain();
        }
        Ok(())
    }

    fn pin(&mut self) -> Outcome {
        self.settle_stores()?;
        let id = self.id();
        let pages = 1 + self.dice.below(4);
        let (offset, page) = (self.dice.below(WINDOW + 1 - pages), self.dice.below(PAGES + 1 - pages));
        let entry = Entry { id, offset: (offset * 4096) as u64, at: Lpa(page as u64), pages: pages as u64 };
        let outcome = self.ssd.pin(id, entry.offset, entry.at, entry.bytes());
        self.say(|| format!("pin {entry:?} {outcome:?}"));
        let (full, taken) = (self.table.len() == ENTRIES, self.is_taken(&entry));
        match &outcome {
            Err(Error::PowerLost) => return Err(Interrupted::Pin(entry)),
            Ok(()) if !full && !taken => self.pinned(&entry),
            Err(Error::Pin(PinError::TableFull { .. })) if full && !taken => {}
            Err(Error::Pin(
                PinError::EntryInUse(_) | PinError::PagesOverlap(_) | PinError::WindowOverlap(_),
            )) if taken => {}
            other => self.fail(&format!("pin of {entry:?}: {other:?}")),
        }
        Ok(())
    }

    fn pinned(&mut self, entry: &Entry) {
        let (to, from) = (entry.offset as usize / CELL, entry.at.0 as usize * CELLS);
        let cells = entry.pages as usize * CELLS;
        self.window[to..to + cells].copy_from_slice(&self.flash[from..from + cells]);
        self.table.push(*entry);
    }

    fn flushed(&mut self, entry: &Entry) {
        let (from, to) = (entry.offset as usize / CELL, entry.at.0 as usize * CELLS);
        let cells = entry.pages as usize * CELLS;
        self.flash[to..to + cells].copy_from_slice(&self.window[from..from + cells]);
        self.table.retain(|other| other.id != entry.id);
    }

    fn flush(&mut self) -> Outcome {
        self.settle_stores()?;
        let id = self.id();
        let outcome = self.ssd.flush_entry(id);
        self.say(|| format!("flush {id:?} {outcome:?}"));
        let found = self.found(id);
        let cut = || found.as_ref().map_or(Interrupted::Nothing, |entry| Interrupted::Flush(*entry));
        if self.judge(&outcome, found.as_ref().err(), "flush").map_err(|()| cut())? {
            self.flushed(&found.expect("the device found it"));
        }
        Ok(())
    }

    fn write(&mut self) -> Outcome {
        let page = self.dice.below(PAGES);
        let pages = (1 + self.dice.below(3)).min(PAGES - page);
        let values = self.values(pages * CELLS);
        let outcome = self.ssd.write(Lpa(page as u64), &bytes_of(&values), TAG);
        self.say(|| format!("write {page} x{pages} = {} {outcome:?}", values[0]));
        let expected = self.refusal(page, pages);
        match self.judge(&outcome, expected.as_ref(), "write") {
            Ok(true) => self.flash[page * CELLS..page * CELLS + values.len()].copy_from_slice(&values),
            Ok(false) => {}
            // The checker comes before the flash.
            Err(()) if expected.is_some() => return Err(Interrupted::Nothing),
            Err(()) => return Err(Interrupted::Write { page, values }),
        }
        Ok(())
    }

    fn trim(&mut self) -> Outcome {
        let page = self.dice.below(PAGES);
        let pages = (1 + self.dice.below(3)).min(PAGES - page);
        let outcome = self.ssd.trim(Lpa(page as u64), pages as u64);
        self.say(|| format!("trim {page} x{pages} {outcome:?}"));
        let expected = self.refusal(page, pages);
        match self.judge(&outcome, expected.as_ref(), "trim") {
            Ok(true) => self.flash[page * CELLS..(page + pages) * CELLS].fill(0),
            Ok(false) => {}
            Err(()) if expected.is_some() => return Err(Interrupted::Nothing),
            Err(()) => return Err(Interrupted::Trim { page, pages }),
        }
        Ok(())
    }

    /// Looks at a page by block, at one of the window by bytes, or at an entry by DMA.
    fn look(&mut self) -> Outcome {
        let mut bytes = [0; CELLS * CELL];
        match self.dice.below(3) {
            0 => {
                let page = self.dice.below(PAGES);
                let outcome = self.ssd.read(Lpa(page as u64), &mut bytes, TAG);
                let expected = self.refusal(page, 1);
                let read = self.judge(&outcome, expected.as_ref(), "read");
                if read.map_err(|()| Interrupted::Nothing)? {
                    self.compare(&values_of(&bytes), &self.flash[page * CELLS..], "a block read");
                }
            }
            1 => {
                let page = self.dice.below(WINDOW);
                let outcome = self.ssd.load((page * bytes.len()) as u64, &mut bytes, TAG);
                if self.judge(&outcome, None, "load").map_err(|()| Interrupted::Nothing)? {
                    let mut expected = self.window[page * CELLS..(page + 1) * CELLS].to_vec();
                    for store in self.staged.iter().filter(|store| store.cell / CELLS == page) {
                        let first = store.cell % CELLS;
                        expected[first..first + store.values.len()].copy_from_slice(&store.values);
                    }
                    self.compare(&values_of(&bytes), &expected, "a load");
                }
            }
            _ => {
                let id = self.id();
                let found = self.found(id);
                let outcome = self.ssd.read_dma(id, &mut bytes, TAG);
                let read = self.judge(&outcome, found.as_ref().err(), "DMA read");
                if read.map_err(|()| Interrupted::Nothing)? {
                    let first = found.expect("the device found it").offset as usize / CELL;
                    self.compare(&values_of(&bytes), &self.window[first..], "a DMA read");
                }
            }
        }
        Ok(())
    }

    fn compare(&self, found: &[Value], expected: &[Value], what: &str) {
        if let Some(cell) = (0..found.len()).find(|&cell| found[cell] != expected[cell]) {
            self.fail(&format!("{what} finds {} in cell {cell}, not {}", found[cell], expected[cell]));
        }
    }

    /// After a loss: what is there must be allowed, and is what is from now on.
    fn recovered(&mut self, interrupted: Interrupted, host_crash: bool) {
        if host_crash {
            self.drain();
        }
        let mut table = self.ssd.entries().expect("the device answers");
        table.sort_unstable_by_key(|entry| entry.id);
        self.table.sort_unstable_by_key(|entry| entry.id);
        let mut loading = 0..0;
        match &interrupted {
            Interrupted::Pin(entry) if table.contains(entry) && !self.table.contains(entry) => {
                self.pinned(entry);
                self.table.sort_unstable_by_key(|entry| entry.id);
            }
            // A pin that would have been refused loads nothing.
            Interrupted::Pin(entry) if !self.is_taken(entry) && self.table.len() < ENTRIES => {
                let first = entry.offset as usize / CELL;
                loading = first..first + entry.pages as usize * CELLS;
            }
            Interrupted::Flush(entry) if !table.contains(entry) => self.flushed(entry),
            _ => {}
        }
        if table != self.table {
            self.fail(&format!("the table is {table:?}, not {:?}", self.table));
        }
        let mut bytes = vec![0; self.window.len() * CELL];
        self.ssd.load(0, &mut bytes, TAG).expect("the window answers");
        let found = values_of(&bytes);
        for (cell, &value) in found.iter().enumerate() {
            let stores = |store: &Staged| {
                cell.checked_sub(store.cell).and_then(|at| store.values.get(at)) == Some(&value)
            };
            let arrived = || self.staged.iter().any(stores);
            let loaded = || match &interrupted {
                Interrupted::Pin(entry) if loading.contains(&cell) => {
                    self.flash[entry.at.0 as usize * CELLS + cell - loading.start] == value
                }
                _ => false,
            };
            if value != self.window[cell] && !arrived() && !loaded() {
                self.fail(&format!("window cell {cell} holds {value}, not {}", self.window[cell]));
            }
        }
        self.window = found;
        self.staged.clear();
        for page in 0..PAGES {
            let mut bytes = [0; CELLS * CELL];
            let outcome = self.ssd.read(Lpa(page as u64), &mut bytes, TAG);
            let expected = self.refusal(page, 1);
            if !self.judge(&outcome, expected.as_ref(), "read after recovery").expect("there is power") {
                continue;
            }
            self.recovered_page(page, values_of(&bytes), &interrupted);
        }
    }

    fn recovered_page(&mut self, page: usize, found: Vec<Value>, interrupted: &Interrupted) {
        let first = page * CELLS;
        for sector in (0..CELLS).step_by(SECTOR) {
            let new = &found[sector..sector + SECTOR];
            let allowed = match interrupted {
                _ if *new == self.flash[first + sector..first + sector + SECTOR] => true,
                Interrupted::Write { page: from, values } => {
                    let at = (first + sector).checked_sub(from * CELLS);
                    at.and_then(|at| values.get(at..at + SECTOR)) == Some(new)
                }
                Interrupted::Trim { page: from, pages } => {
                    (*from..from + pages).contains(&page) && new.iter().all(|&value| value == 0)
                }
                _ => false,
            };
            if !allowed {
                self.fail(&format!("page {page} holds {new:?} from cell {sector} on after recovery"));
            }
        }
        self.flash[first..first + CELLS].copy_from_slice(&found);
    }
}

/// Runs one seed. Answers how many cuts it made.
///
/// # Panics
/// If the device has lost or kept what it must not, with the seed and, in a replay, the last commands.
pub fn run(seed: u64, cuts: u64) -> u64 {
    let mut dice = Dice(seed);
    let ssd = Ssd::in_memory(&device(&mut dice), (PAGES * CELLS * CELL) as u64);
    let mut run = Run {
        seed,
        dice,
        ssd,
        flash: vec![0; PAGES * CELLS],
        window: vec![0; WINDOW * CELLS],
        table: Vec::new(),
        staged: Vec::new(),
        value: 0,
        replays: std::env::var_os("AMPHI_SEEDS").is_some(),
        log: Vec::new(),
    };
    let mut made = 0;
    while made < cuts {
        let cut_seed = run.dice.next();
        match run.dice.below(4) {
            0 => run.ssd.cut_after_commands(run.dice.next() % 100, cut_seed),
            1 | 2 => run.ssd.cut_after_steps(run.dice.next() % 200, cut_seed),
            _ => {}
        }
        let length = 1 + run.dice.below(100);
        let interrupted = (0..length).find_map(|_| run.step().err()).unwrap_or(Interrupted::Nothing);
        let host_crash = run.ssd.has_power() && run.dice.below(3) == 0;
        if host_crash {
            run.ssd.host_crash(cut_seed);
        } else {
            run.ssd.power_cut(cut_seed);
            if run.dice.below(8) == 0 {
                // The process that emulates the dump dies in it.
                run.ssd.kill_in_dump(run.dice.next() % 40).expect("it makes dumps");
            }
        }
        run.say(|| format!("host crash: {host_crash}"));
        made += 1;
        let mut down = true;
        while down {
            let cut = (run.dice.below(3) == 0).then(|| run.dice.next() % 40);
            let spare = Ssd::in_memory(&Profile::named("free").expect("built in"), 1 << 20);
            let ssd = std::mem::replace(&mut run.ssd, spare);
            run.ssd = match cut {
                Some(steps) => ssd.restart_and_cut(steps, cut_seed).expect("a whole image"),
                None => ssd.restart().expect("a whole image"),
            };
            down = !run.ssd.has_power();
            made += u64::from(down);
        }
        run.ssd.cut_after_steps(u64::MAX, 0);
        run.recovered(interrupted, host_crash);
    }
    made
}
