//! Loads a workload's records and runs its operations.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use amphi_rt::random::Generator;
use amphi_rt::sync::Mutex;
use amphi_rt::{task, time};
use hdrhistogram::Histogram;

use super::chance::{Chooser, spread};
use super::workload::{Mix, Ycsb};
use crate::files::Files;
use crate::lsm::{Store, StoreError};
use crate::operation::fill;
use crate::workload::{Outcome, Settings, StepOutcome, empty_histogram};

/// A store with its records.
pub struct Loaded {
    store: Store,
    numbers: Mutex<Numbers>,
}

/// Which records there are. Clients insert side by side: only those that follow on each other without a gap
/// are asked for.
struct Numbers {
    next: u64,
    inserted: u64,
    beyond: BTreeSet<u64>,
}

impl Numbers {
    fn acknowledge(&mut self, number: u64) {
        self.beyond.insert(number);
        while self.beyond.remove(&self.inserted) {
            self.inserted += 1;
        }
    }
}

/// The kinds of operations, in the order of their tallies.
const KINDS: [&str; 5] = ["read", "update", "insert", "scan", "read-modify-write"];

/// Bytes of the noise of which values are parts.
const NOISE: usize = 1 << 20;

/// Makes a store in `directory` of `files` and puts the workload's records into it, in the order in which
/// YCSB does, as one client without waiting for durability; at the end all is durable.
///
/// # Errors
/// What the store says.
pub fn load(
    files: Arc<dyn Files>,
    directory: &str,
    workload: &Ycsb,
    settings: Settings,
) -> Result<Loaded, StoreError> {
    let loaded = open(files, directory, workload)?;
    let values = Values::new(workload, settings.seed);
    let mut chance = Generator::new(settings.seed);
    let mut key = Vec::new();
    for record in 0..workload.store.records {
        name(record, &mut key);
        loaded.store.put(&key, values.one(&mut chance), false)?;
    }
    loaded.store.sync()?;
    Ok(loaded)
}

/// Opens the store in `directory` of `files`, into which [`load`] has put the workload's records, or will.
///
/// # Errors
/// What the store says.
pub fn open(files: Arc<dyn Files>, directory: &str, workload: &Ycsb) -> Result<Loaded, StoreError> {
    let setup = workload.store.settings.as_ref();
    let setup =
        setup.ok_or_else(|| StoreError::Failed("the workload does not say how it is set up".into()))?;
    let store = Store::open(files, directory, setup, workload.store.costs)?;
    let numbers =
        Numbers { next: workload.store.records, inserted: workload.store.records, beyond: BTreeSet::new() };
    Ok(Loaded { store, numbers: Mutex::new(numbers) })
}

/// A record's key: `user` and the hash of its number, in 23 bytes.
fn name(record: u64, into: &mut Vec<u8>) {
    use std::io::Write;
    into.clear();
    // Writing to a vector does not fail.
    let _ = write!(into, "user{:019}", spread(record) >> 1);
}

/// Values: parts of noise, so that what is written over changes.
struct Values {
    noise: Vec<u8>,
    bytes: usize,
}

impl Values {
    fn new(workload: &Ycsb, seed: u64) -> Self {
        let bytes = workload.store.value_bytes;
        let mut noise = vec![0; NOISE + bytes];
        fill(&mut noise, seed as u8);
        Self { noise, bytes }
    }

    fn one(&self, chance: &mut Generator) -> &[u8] {
        &self.noise[chance.below(NOISE as u64) as usize..][..self.bytes]
    }
}

/// What the clients share.
struct Shared<'a> {
    loaded: &'a Loaded,
    workload: &'a Ycsb,
    values: &'a Values,
    begin: &'a (dyn Fn() + Sync),
    /// Operations begun.
    issued: AtomicU64,
    begin_ns: AtomicU64,
    failed: AtomicBool,
}

/// What one client did: for each kind, bytes and times.
type Tallies = [(u64, Histogram<u64>); KINDS.len()];

/// Runs the workload's operations. `begin` is called when the warm-up is over: to read counters.
///
/// # Errors
/// What the store says.
pub fn run(
    loaded: &Loaded,
    workload: &Ycsb,
    settings: Settings,
    begin: &(dyn Fn() + Sync),
) -> Result<Outcome, StoreError> {
    let values = Values::new(workload, settings.seed ^ 1);
    let shared = Shared {
        loaded,
        workload,
        values: &values,
        begin,
        issued: AtomicU64::new(0),
        begin_ns: AtomicU64::new(0),
        failed: AtomicBool::new(false),
    };
    let shared = &shared;
    let mut seeds = Generator::new(settings.seed);
    let done: Result<Vec<Tallies>, StoreError> = task::scope(|scope| {
        let clients: Vec<_> = (0..workload.store.clients)
            .map(|_| {
                let chance = Generator::new(seeds.next());
                scope.spawn("ycsb", move || {
                    shared.client(chance).inspect_err(|_| shared.failed.store(true, Ordering::Relaxed))
                })
            })
            .collect();
        // All are waited for, whoever failed first.
        let ended: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
        ended.into_iter().collect()
    });
    let elapsed_ns = time::now_ns() - shared.begin_ns.load(Ordering::Relaxed);
    Ok(outcome(workload, done?, elapsed_ns))
}

fn outcome(workload: &Ycsb, clients: Vec<Tallies>, elapsed_ns: u64) -> Outcome {
    let (name, warm_up_operations) = (&workload.name, workload.store.warm_up_operations);
    let mut steps: Vec<StepOutcome> = KINDS
        .iter()
        .map(|kind| StepOutcome {
            group: name.to_owned(),
            operation: kind,
            counts: true,
            bytes: 0,
            latency: empty_histogram(),
        })
        .collect();
    for tallies in clients {
        for (step, (bytes, latency)) in steps.iter_mut().zip(tallies) {
            step.bytes += bytes;
            // Both were made alike.
            let _ = step.latency.add(&latency);
        }
    }
    steps.retain(|step| !step.latency.is_empty());
    let bytes = |reads: bool| {
        let of = steps.iter().filter(|step| matches!(step.operation, "read" | "scan") == reads);
        of.map(|step| step.bytes).sum()
    };
    let operations = steps.iter().map(|step| step.latency.len()).sum();
    Outcome {
        operations,
        operations_in_all: operations + warm_up_operations,
        bytes_read: bytes(true),
        bytes_written: bytes(false),
        elapsed_ns,
        steps,
    }
}

impl Shared<'_> {
    fn client(&self, mut chance: Generator) -> Result<Tallies, StoreError> {
        let workload = self.workload;
        let (warm_up, operations) = (workload.store.warm_up_operations, workload.store.operations);
        let inserts = (warm_up + operations) * workload.mix.insert / 100;
        let mut chooser = Chooser::new(workload.distribution, workload.store.records, inserts);
        let mut tallies: Tallies = std::array::from_fn(|_| (0, empty_histogram()));
        let mut key = Vec::new();
        loop {
            let number = self.issued.fetch_add(1, Ordering::Relaxed);
            if number >= warm_up + operations || self.failed.load(Ordering::Relaxed) {
                return Ok(tallies);
            }
            if number == warm_up {
                self.begin_ns.store(time::now_ns(), Ordering::Relaxed);
                (self.begin)();
            }
            let kind = choose(workload.mix, &mut chance);
            let started_ns = time::now_ns();
            let bytes = self.operation(kind, &mut chooser, &mut chance, &mut key)?;
            if number >= warm_up {
                let (sum, latency) = &mut tallies[kind];
                *sum += bytes;
                // The histograms grow to hold any value.
                let _ = latency.record((time::now_ns() - started_ns).max(1));
            }
        }
    }

    /// Does one operation; how many bytes of records it moved.
    fn operation(
        &self,
        kind: usize,
        chooser: &mut Chooser,
        chance: &mut Generator,
        key: &mut Vec<u8>,
    ) -> Result<u64, StoreError> {
        let store = &self.loaded.store;
        let sync = self.workload.store.sync_writes;
        if KINDS[kind] == "insert" {
            let number = {
                let mut numbers = self.loaded.numbers.lock();
                numbers.next += 1;
                numbers.next - 1
            };
            name(number, key);
            let value = self.values.one(chance);
            store.put(key, value, sync)?;
            self.loaded.numbers.lock().acknowledge(number);
            return Ok(value.len() as u64);
        }
        let there = self.loaded.numbers.lock().inserted;
        name(chooser.draw(there, chance), key);
        if KINDS[kind] == "scan" {
            let records = 1 + chance.below(self.workload.scan_records_max);
            let bytes = key.len() + self.workload.store.value_bytes;
            return Ok(store.scan(key, records)? * bytes as u64);
        }
        let get = || {
            let found = store.get(key).map(|value| value.len() as u64);
            found.ok_or_else(|| StoreError::Lost(String::from_utf8_lossy(key).into_owned()))
        };
        // A change of one field begins with reading the record too, as in YCSB's binding for RocksDB: the
        // store knows no fields.
        let found = get()?;
        match KINDS[kind] {
            "read" => return Ok(found),
            "read-modify-write" => _ = get()?,
            _ => {}
        }
        let value = self.values.one(chance);
        store.put(key, value, sync)?;
        Ok(value.len() as u64)
    }
}

/// An index into [`KINDS`].
fn choose(mix: Mix, chance: &mut Generator) -> usize {
    let mut left = chance.below(100);
    let shares = [mix.read, mix.update, mix.insert, mix.scan, mix.read_modify_write];
    for (kind, share) in shares.into_iter().enumerate() {
        if left < share {
            return kind;
        }
        left -= share;
    }
    unreachable!("the shares add up to 100")
}
