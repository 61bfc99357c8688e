//! YCSB over the LSM store: on the model and on ByteFS, in virtual time, where a seed decides everything.

use std::sync::Arc;

use amphi_benchlab::files::{Computing, Files, HostCosts, LibraryFiles};
use amphi_benchlab::lsm::{Store, StoreCosts, StoreSettings};
use amphi_benchlab::workload::{Outcome, Settings};
use amphi_benchlab::ycsb::{PRESETS, Ycsb, load, preset, run};
use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_model::Model;
use amphi_rt::Sim;
use amphi_ssd::{Profile, Ssd};

const COSTS: HostCosts = HostCosts {
    call_ns: 100,
    name_ns: 50,
    open_ns: 200,
    namespace_ns: 1000,
    copy_ps_per_byte: 100,
    page_ns: 50,
    computing: Computing::FREE,
};

fn drive(files: Arc<dyn Files>, workload: &Ycsb, seed: u64) -> Outcome {
    let settings = Settings { seed };
    let loaded = load(files, "db", workload, settings).unwrap();
    run(&loaded, workload, settings, &|| {}).unwrap()
}

fn on_model(workload: &Ycsb, seed: u64) -> Outcome {
    drive(Arc::new(LibraryFiles::new(Arc::new(Model::new()), COSTS)), workload, seed)
}

fn on_bytefs(workload: &Ycsb, seed: u64) -> Outcome {
    Sim::new(seed).run(|| {
        let ssd = Arc::new(Ssd::in_memory(&Profile::named("mssd-pcie3").unwrap(), 256 << 20));
        ByteFs::format(&*ssd, &FormatOptions::default()).unwrap();
        let fs = ByteFs::mount(ssd, MountOptions::default()).unwrap();
        drive(Arc::new(LibraryFiles::new(Arc::new(fs), COSTS)), workload, seed)
    })
}

#[test]
fn every_workload_has_its_mix_and_repeats_in_virtual_time() {
    for (name, _) in PRESETS {
        // 3,000 records; twice as many operations as 0.0003 of the published number would be too many for a
        // test.
        let mut workload = preset(name).unwrap().scaled(0.0003);
        workload.store.operations = 4000;
        workload.store.warm_up_operations = 500;
        let run = |seed| {
            let outcome = Sim::new(seed).run(|| on_model(&workload, seed));
            let of = |kind| outcome.latency(kind).count;
            let mix = workload.mix;
            for (kind, share) in [
                ("read", mix.read),
                ("update", mix.update),
                ("insert", mix.insert),
                ("scan", mix.scan),
                ("read-modify-write", mix.read_modify_write),
            ] {
                assert!(of(kind).abs_diff(share * 40) <= 120, "{name}: {} of {kind}", of(kind));
            }
            assert_eq!(outcome.operations, 4000, "{name}");
            (outcome.bytes_read, outcome.bytes_written, outcome.elapsed_ns)
        };
        assert_eq!(run(1), run(1), "{name} differs with the same seed");
    }
}

#[test]
fn a_durable_update_waits_for_the_device_and_others_do_not() {
    let mut workload = preset("ycsb-a").unwrap().scaled(0.0002).with_clients(4);
    workload.store.operations = 1000;
    let durable = on_bytefs(&workload, 3);
    workload.store.sync_writes = false;
    let other = on_bytefs(&workload, 3);
    let p50 = |outcome: &Outcome| outcome.latency("update").p50_ns;
    assert!(p50(&durable) > p50(&other) + 3_000, "{} and {} ns", p50(&durable), p50(&other));
}

/// The store compacts files by samples that it takes at moments drawn by the crate `rand`, version 0.8: they
/// must be the Sim's.
#[test]
#[allow(clippy::disallowed_methods, reason = "what the store draws is what is looked at")]
fn the_store_s_chance_is_the_seed_s() {
    let drawn = |seed| Sim::new(seed).run(|| [rand::random::<usize>(), rand::random(), rand::random()]);
    assert_eq!(drawn(1), drawn(1), "two runs with one seed would differ");
    assert_ne!(drawn(1), drawn(2));
}

/// Everything that was put is there after the store was opened again, the newest value of each key, in the
/// order of the keys.
#[test]
fn a_store_on_bytefs_is_there_after_it_was_closed() {
    let settings = StoreSettings {
        // Small, so that there are tables on several levels.
        write_buffer_bytes: 64 << 10,
        file_bytes: 64 << 10,
        block_cache_bytes: 256 << 10,
        block_bytes: 4096,
    };
    Sim::new(5).run(|| {
        let ssd = Arc::new(Ssd::in_memory(&Profile::named("mssd-pcie3").unwrap(), 256 << 20));
        ByteFs::format(&*ssd, &FormatOptions::default()).unwrap();
        let fs = Arc::new(ByteFs::mount(ssd, MountOptions::default()).unwrap());
        let open = || {
            let files = Arc::new(LibraryFiles::new(Arc::clone(&fs), COSTS));
            Store::open(files, "db", &settings, StoreCosts::default()).unwrap()
        };
        let key = |number: u32| format!("key{:06}", number.wrapping_mul(7919) % 3000).into_bytes();
        let store = open();
        for round in 0..3_u8 {
            for number in 0..3000 {
                store.put(&key(number), &[round; 100], false).unwrap();
            }
        }
        store.put(b"last", b"durable", true).unwrap();
        drop(store);
        let store = open();
        for number in 0..3000 {
            let found = store.get(&key(number)).expect("a key is lost");
            assert_eq!(found, [2; 100]);
        }
        assert_eq!(store.get(b"last").unwrap(), b"durable");
        assert!(store.get(b"never").is_none());
        // Ten records, only five from the fifth-last on, and none behind the last.
        assert_eq!(store.scan(b"key000100", 10).unwrap(), 10);
        assert_eq!(store.scan(b"key002996", 10).unwrap(), 5);
        assert_eq!(store.scan(b"last ", 10).unwrap(), 0);
    });
}
