//! What a put and a get cost on a device that takes no time: the store's own path, with one thread and with
//! two.
#![allow(missing_docs, reason = "criterion's macros make functions without")]

use std::sync::Arc;

use amphi_device::Lpa;
use amphi_lsm::{Options, Place, Store};
use amphi_rt::{task, time};
use amphi_ssd::{Firmware, Profile, Ssd};
use criterion::{Criterion, criterion_group, criterion_main};

const KEYS: u32 = 10_000;

fn store() -> Arc<Store<Ssd>> {
    let mut profile = Profile::named("free").expect("built in");
    profile.firmware.kind = Firmware::Memory;
    profile.firmware.memory_bytes = 256 << 20;
    let device = Arc::new(Ssd::in_memory(&profile, 1 << 30));
    let place =
        Place { log_at: 0, log_bytes: 256 << 20, first: Lpa(0), pages: (1 << 30) / 4096, backing_pages: 0 };
    Store::format(&device, &place).expect("formats");
    let store = Store::open(device, place.first, Options::default()).expect("opens");
    for number in 0..KEYS {
        store.put(&number.to_be_bytes(), &[7; 128]).expect("writes");
    }
    Arc::new(store)
}

/// The time of `rounds` rounds on each of so many threads.
fn timed(store: &Store<Ssd>, threads: u32, rounds: u64, one: fn(&Store<Ssd>, u32)) -> std::time::Duration {
    let begin = time::now_ns();
    task::scope(|scope| {
        for thread in 0..threads {
            scope.spawn("bench", move || {
                for round in 0..rounds as u32 {
                    one(store, (round * threads + thread) % KEYS);
                }
            });
        }
    });
    std::time::Duration::from_nanos(time::now_ns() - begin)
}

fn put_and_get(criterion: &mut Criterion) {
    let store = store();
    let put = |store: &Store<Ssd>, number: u32| store.put(&number.to_be_bytes(), &[8; 128]).expect("writes");
    let get = |store: &Store<Ssd>, number: u32| {
        assert!(store.get(&number.to_be_bytes()).expect("reads").is_some());
    };
    for threads in [1, 2] {
        for (name, one) in [("put", put as fn(&Store<Ssd>, u32)), ("get", get)] {
            criterion.bench_function(&format!("{name}, threads: {threads}"), |bench| {
                bench.iter_custom(|rounds| timed(&store, threads, rounds, one));
            });
        }
    }
}

criterion_group!(benches, put_and_get);
criterion_main!(benches);
