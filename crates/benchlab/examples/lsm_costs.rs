//! What the key-value store's own work costs a processor, with files that cost nothing: the numbers under
//! `[costs]` in `workloads/ycsb-store.toml`.
//!
//! Medians of single calls in real time, on a store of 100,000 records of 1000 B;
//! `cargo run -p amphi-benchlab --example lsm_costs`.

use amphi_rt::random::Generator;
use amphi_rt::time::now_ns;
use rusty_leveldb::{DB, LdbIterator, in_memory};

const RECORDS: u64 = 100_000;
const VALUE: usize = 1000;

fn main() {
    let mut options = in_memory();
    options.write_buffer_size = 64 << 20;
    options.max_file_size = 64 << 20;
    // Blocks come from the cache, as where the page cache holds all; what missing it costs, the file system
    // charges.
    options.block_cache_capacity_bytes = 256 << 20;
    let mut db = DB::open("costs", options).expect("a store in memory can be made");
    let mut chance = Generator::new(1);
    let noise: Vec<u8> = (0..1 << 20).map(|_| chance.next() as u8).collect();
    let value = |chance: &mut Generator| &noise[chance.below((1 << 20) - VALUE as u64) as usize..][..VALUE];
    let key = |record: u64| format!("user{:019}", record.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1);

    let put = median((0..RECORDS).map(|record| {
        let (key, value) = (key(record), value(&mut chance));
        timed(|| db.put(key.as_bytes(), value).expect("a put"))
    }));
    // What is in the memory table becomes a table file; nothing overlaps it that would be merged.
    let mut tables = Vec::new();
    for round in 0..5 {
        let records = 20_000;
        db.compact_range(b"a", b"a").expect("an empty memory table");
        for record in 0..records {
            db.put(format!("new{round}{record:016}").as_bytes(), value(&mut chance)).expect("a put");
        }
        let ns = timed(|| db.compact_range(b"a", b"a").expect("a table"));
        tables.push(ns * 1000 / (records * VALUE as u64));
    }
    let get = median((0..RECORDS).map(|_| {
        let key = key(chance.below(RECORDS));
        timed(|| assert!(db.get(key.as_bytes()).is_some()))
    }));
    let (mut seeks, mut nexts) = (Vec::new(), Vec::new());
    for _ in 0..2000 {
        let key = key(chance.below(RECORDS));
        let mut records = None;
        seeks.push(timed(|| {
            let mut opened = db.new_iter().expect("an iterator");
            opened.seek(key.as_bytes());
            records = Some(opened);
        }));
        let mut records = records.expect("it was opened");
        nexts.push(timed(|| _ = (0..50).take_while(|_| records.advance()).count()) / 50);
    }
    println!("get_ns = {get}");
    println!("put_ns = {put}");
    println!("seek_ns = {}", median(seeks.into_iter()));
    println!("next_ns = {}", median(nexts.into_iter()));
    println!("table_ps_per_byte = {}", median(tables.into_iter()));
}

fn timed(work: impl FnOnce()) -> u64 {
    let begun = now_ns();
    work();
    now_ns() - begun
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values[values.len() / 2]
}
