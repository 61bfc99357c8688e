//! What a device must hold: every version of every cell, and which of them a crash may leave.
//!
//! The rule, in one sentence: a store takes effect when it reaches the device, and again when its transaction
//! commits; the latest effect is what loads see, and the latest effect without open transactions is what a
//! crash leaves; of what has not reached the device, any cell may have.

mod pins;
mod traffic;

use amphi_rt::hash::mix;
use amphi_ssd::Firmware;

/// Runs one seed on a device with this firmware. Answers how many cuts it made.
///
/// # Panics
/// If the device has lost or kept what it must not.
pub fn run(seed: u64, cuts: u64, firmware: Firmware) -> u64 {
    match firmware {
        Firmware::BaBuffer => pins::run(seed, cuts),
        Firmware::Log | Firmware::PageCache | Firmware::Memory | Firmware::FileSystem => {
            traffic::run(seed, cuts, firmware)
        }
    }
}

/// Bytes of a cell: the unit that a crash never tears.
pub const CELL: usize = 8;
/// Cells of a page.
pub const CELLS: usize = 4096 / CELL;

/// A value of one cell; 0 is what a new device holds.
pub type Value = u64;

fn bytes_of(values: &[Value]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn values_of(bytes: &[u8]) -> Vec<Value> {
    bytes.chunks_exact(CELL).map(|cell| Value::from_le_bytes(cell.try_into().expect("8 bytes"))).collect()
}

/// A stream of numbers from a seed (SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

#[derive(Clone, Copy, Debug)]
struct Version {
    effect: u64,
    seq: u64,
    value: Value,
    tx: u32,
    open: bool,
}

/// One store on its way to the device.
#[derive(Clone, Debug)]
pub struct Staged {
    /// First cell of the device.
    pub cell: usize,
    /// Values of the cells from there on.
    pub values: Vec<Value>,
    /// Transaction, or 0.
    pub tx: u32,
    /// Whether its lines were flushed and fenced.
    pub posted: bool,
}

/// The model of one device used by one host thread.
#[derive(Clone, Debug)]
pub struct Oracle {
    base: Vec<Value>,
    /// Per cell, what reached the device since its page was last written whole.
    versions: Vec<Vec<Version>>,
    /// Cells that have versions, or had.
    touched: Vec<usize>,
    /// Whether a block write is durable only after a flush.
    volatile: bool,
    /// Block writes that no flush has covered: page, number, values.
    unflushed: Vec<(usize, u64, Vec<Value>)>,
    /// What the host has stored and the device does not have.
    pub staged: Vec<Staged>,
    clock: u64,
}

impl Oracle {
    /// A new device.
    pub fn new(pages: usize, volatile: bool) -> Self {
        let cells = pages * CELLS;
        Self {
            base: vec![0; cells],
            versions: vec![Vec::new(); cells],
            touched: Vec::new(),
            volatile,
            unflushed: Vec::new(),
            staged: Vec::new(),
            clock: 1,
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The newest value of a cell if `write` is the last unflushed write of its page that counts.
    fn newest_over(&self, cell: usize, lasting: bool, write: Option<&(usize, u64, Vec<Value>)>) -> Value {
        let (since, base) =
            write.map_or((0, self.base[cell]), |(_, seq, values)| (*seq, values[cell % CELLS]));
        self.versions[cell]
            .iter()
            .filter(|version| version.seq > since && !(lasting && version.open))
            .max_by_key(|version| (version.effect, version.seq))
            .map_or(base, |version| version.value)
    }

    fn newest(&self, cell: usize, lasting: bool) -> Value {
        let write = self.unflushed.iter().rev().find(|(page, ..)| *page == cell / CELLS);
        self.newest_over(cell, lasting, write)
    }

    /// What a load by the host thread sees.
    pub fn seen(&self, cell: usize) -> Value {
        let staged = self.staged.iter().rev().find(|s| s.cell <= cell && cell < s.cell + s.values.len());
        staged.map_or_else(|| self.newest(cell, false), |s| s.values[cell - s.cell])
    }

    /// What a block read sees.
    pub fn on_device(&self, cell: usize) -> Value {
        self.newest(cell, false)
    }

    fn arrive(&mut self, store: &Staged) {
        for (position, &value) in store.values.iter().enumerate() {
            let seq = self.tick();
            let version = Version { effect: seq, seq, value, tx: store.tx, open: store.tx != 0 };
            let versions = &mut self.versions[store.cell + position];
            if versions.is_empty() {
                self.touched.push(store.cell + position);
            }
            versions.push(version);
        }
    }

    /// Flush of everything staged, and fence.
    pub fn post(&mut self) {
        for store in &mut self.staged {
            store.posted = true;
        }
    }

    /// Write-verify read.
    pub fn drain(&mut self) {
        let staged = std::mem::take(&mut self.staged);
        for store in staged {
            if store.posted {
                self.arrive(&store);
            } else {
                self.staged.push(store);
            }
        }
    }

    /// Block write of one page.
    pub fn write_page(&mut self, page: usize, values: &[Value]) {
        if self.volatile {
            let seq = self.tick();
            self.unflushed.push((page, seq, values.to_vec()));
        } else {
            self.replace_page(page, u64::MAX, values);
        }
    }

    /// The page holds these values, and nothing stored before `seq`.
    fn replace_page(&mut self, page: usize, seq: u64, values: &[Value]) {
        let first = page * CELLS;
        for (position, &value) in values.iter().enumerate() {
            self.versions[first + position].retain(|version| version.seq > seq);
            self.base[first + position] = value;
        }
    }

    /// Trim of one page.
    pub fn trim_page(&mut self, page: usize) {
        self.unflushed.retain(|(other, ..)| *other != page);
        self.replace_page(page, u64::MAX, &[0; CELLS]);
    }

    /// Flush: block writes are durable now.
    pub fn flush(&mut self) {
        for (page, seq, values) in std::mem::take(&mut self.unflushed) {
            self.replace_page(page, seq, &values);
        }
    }

    /// COMMIT.
    pub fn commit(&mut self, tx: u32) {
        let effect = self.tick();
        for &cell in &self.touched {
            for version in &mut self.versions[cell] {
                if version.tx == tx && version.open {
                    version.open = false;
                    version.effect = effect;
                }
            }
        }
    }

    /// What every cell holds after a crash now and RECOVER, if nothing on its way arrives.
    pub fn lasting(&self) -> Vec<Value> {
        let mut cells = self.base.clone();
        for (page, ..) in &self.unflushed {
            let first = page * CELLS;
            for (position, value) in cells[first..first + CELLS].iter_mut().enumerate() {
                *value = self.newest(first + position, true);
            }
        }
        for &cell in &self.touched {
            cells[cell] = self.newest(cell, true);
        }
        cells
    }

    /// Whether a crash now and RECOVER may leave this value in a cell.
    pub fn may_be(&self, cell: usize, value: Value) -> bool {
        let writes = self.unflushed.iter().filter(|(page, ..)| *page == cell / CELLS).map(Some);
        writes.chain([None]).any(|write| self.newest_over(cell, true, write) == value)
            || self.may_arrive(cell, value)
    }

    /// Whether a store on its way, of no transaction, may leave this value.
    pub fn may_arrive(&self, cell: usize, value: Value) -> bool {
        self.staged.iter().any(|s| {
            s.tx == 0 && s.cell <= cell && cell < s.cell + s.values.len() && s.values[cell - s.cell] == value
        })
    }

    /// After recovery: what was found is what is.
    pub fn settle(&mut self, found: Vec<Value>) {
        self.base = found;
        for cell in self.touched.drain(..) {
            self.versions[cell].clear();
        }
        self.staged.clear();
        self.unflushed.clear();
    }
}
