//! Workloads run: on the model and on ByteFS, in virtual time (where a seed decides everything) and in real
//! time.

use std::sync::Arc;

use amphi_benchlab::files::{Computing, Files, HostCosts, LibraryFiles};
use amphi_benchlab::workload::{Outcome, PRESETS, Personality, Plan, Settings, prepare, preset, run};
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

fn small(name: &str) -> Plan {
    // Nine tenths of what the model calls its room are gigabytes.
    let parameters: &[_] = if name == "full-overwrite" { &[("percent".into(), 1)] } else { &[] };
    let personality = preset(name, parameters).unwrap().scaled(0.0003);
    Plan::new(&personality).unwrap()
}

fn on_model(plan: &Plan, seed: u64) -> Outcome {
    let files = LibraryFiles::new(Arc::new(Model::new()), COSTS);
    drive(&files, plan, seed)
}

fn drive(files: &dyn Files, plan: &Plan, seed: u64) -> Outcome {
    let settings = Settings { seed };
    let prepared = prepare(files, plan, settings).unwrap();
    run(files, &prepared, plan, settings, &|| {}).unwrap()
}

#[test]
fn every_preset_runs_and_repeats_in_virtual_time() {
    for preset in PRESETS {
        let plan = small(preset.name);
        let run = |seed| {
            let outcome = Sim::new(seed).run(|| on_model(&plan, seed));
            assert!(outcome.operations > 0, "{}", preset.name);
            (outcome.operations, outcome.bytes_read, outcome.bytes_written, outcome.elapsed_ns)
        };
        assert_eq!(run(1), run(1), "{} differs with the same seed", preset.name);
    }
}

#[test]
fn varmail_on_bytefs_waits_for_the_device() {
    let plan = small("varmail");
    let outcome = Sim::new(3).run(|| {
        let ssd = Arc::new(Ssd::in_memory(&Profile::named("mssd-pcie3").unwrap(), 256 << 20));
        ByteFs::format(&*ssd, &FormatOptions::default()).unwrap();
        let fs = ByteFs::mount(ssd, MountOptions::default()).unwrap();
        drive(&LibraryFiles::new(Arc::new(fs), COSTS), &plan, 3)
    });
    // Two fsyncs in each round of thirteen steps.
    let fsync = outcome.latency("fsync");
    let create = outcome.latency("create");
    assert!(fsync.count.abs_diff(2 * create.count) <= 24, "{} fsyncs, {} creates", fsync.count, create.count);
    assert!(fsync.p50_ns > 5_000, "an fsync of new data moves blocks: {} ns", fsync.p50_ns);
}

#[test]
fn a_workload_runs_in_real_time_too() {
    let mut personality = preset("varmail", &[]).unwrap().scaled(0.0002).with_threads(3);
    personality.run = amphi_benchlab::workload::Run { operations: Some(2000), ..Default::default() };
    let outcome = on_model(&Plan::new(&personality).unwrap(), 1);
    assert!((1990..=2000).contains(&outcome.operations), "{}", outcome.operations);
    assert!(outcome.elapsed_ns > 0);
}

#[test]
fn what_is_impossible_is_refused_by_name() {
    let text = PRESETS.iter().find(|preset| preset.name == "varmail").unwrap().toml;
    for (from, to, says) in [
        ("op = \"fsync\", fd = 1", "op = \"fsync\"", "fsync of group mail: it needs an fd"),
        ("fd = 1, size = { up_to = 16_384 }", "fd = 1", "append of group mail: it needs a size"),
        ("fileset = \"mail\", fd = 1", "fileset = \"male\", fd = 1", "there is no fileset male"),
        ("seconds = 60 ", "", "say in [run] one of"),
        ("threads = 12", "threads = 0", "1 to 4096 threads"),
        ("files = 1_000_000", "files = 0", "fileset mail are out of range"),
        ("op = \"fsync\"", "op = \"fsink\"", "fsink"),
        ("threads = 12", "threads = \"$many\"", "$many names no parameter"),
        (
            "op = \"fsync\", fd = 1",
            "op = \"post\", semaphore = \"turn\"",
            "no thread waits on the semaphore turn",
        ),
    ] {
        assert!(text.contains(from), "{from}");
        let refused = Personality::from_toml(&text.replace(from, to), &[])
            .and_then(|personality| Plan::new(&personality))
            .expect_err(says);
        assert!(refused.to_string().contains(says), "{refused}");
    }
}

/// Names in a directory change one after the other, so who has its own waits for nobody.
#[test]
fn threads_of_a_private_set_have_directories_of_their_own() {
    let each = |private: bool| {
        let text = PRESETS.iter().find(|preset| preset.name == "names-mkdir").unwrap().toml;
        let mut personality =
            Personality::from_toml(text, &[("files".into(), 1200), ("width".into(), 100)]).unwrap();
        personality.filesets[0].private = private;
        let plan = Plan::new(&personality).unwrap();
        let outcome = Sim::new(5).run(|| on_model(&plan, 5));
        outcome.elapsed_ns / outcome.operations
    };
    let (own, shared) = (each(true), each(false));
    assert!(own < shared, "{own} ns each in directories of their own, {shared} ns in any");
}
