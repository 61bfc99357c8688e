//! Experiments: the built-in ones are well-formed, an interrupted one goes on, its figure does not depend on
//! how it was run, and stored results hold.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use amphi_benchlab::experiment::lab::{self, Progress};
use amphi_benchlab::experiment::state::State;
use amphi_benchlab::experiment::{
    Definition, EXPERIMENTS, Measure, Variation, Wishes, cells, experiment, guard,
};
use amphi_benchlab::figure::Figure;

/// Two workloads on two variants of ByteFS, in a second.
const SMALL: &str = r#"
name = "small"
title = "Small"
question = "Does it work?"
claim = "It does"
claim_row = "12, 13, 14"
method = "Small."
measure = "throughput"
seed = 1
scale = 0.0003
profile = "mssd-pcie3"
systems = ["bytefs-dual", "bytefs"]
case = [{ workload = "varmail" }, { label = "making directories", workload = "mkdir" }]
published = [{ group = "varmail", series = "ByteFS", value = 1000.0, source = "nowhere" }]
"#;

fn run(
    definition: &Definition,
    jobs: usize,
    state: &mut State,
    most_cells: usize,
) -> (Option<Figure>, usize) {
    let done = AtomicUsize::new(0);
    let tell = |progress: Progress<'_>| {
        if let Progress::Done(_) = progress {
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let wishes = Wishes { jobs: Some(jobs), ..Wishes::default() };
    let proceed = || done.load(Ordering::Relaxed) < most_cells;
    let figure = lab::run(definition, &wishes, state, &proceed, &tell).unwrap();
    (figure, done.into_inner())
}

/// More threads than the log has room for at a time: whoever finds it full again and again, because others
/// were faster, goes on waiting. The device took that for a log full of open transactions.
#[test]
fn a_store_waits_as_long_as_others_find_room() {
    let text = SMALL
        .replace("scale = 0.0003", "scale = 0.01")
        .replace("[\"bytefs-dual\", \"bytefs\"]", "[\"bytefs\"]");
    let mut definition = Definition::from_toml(&text).unwrap();
    definition.published.clear();
    definition.cases.truncate(1);
    definition.cases[0].workload = "unaligned-write".to_owned();
    definition.cases[0].parameters = [("io".to_owned(), 128)].into();
    assert!(run(&definition, 1, &mut State::in_memory(), usize::MAX).0.is_some());
}

/// Two workloads on the store, as many operations as records.
const STORE: &str = r#"
name = "store"
title = "Store"
question = "Does it matter who came before?"
claim = "It does not"
claim_row = "6"
method = "Small."
measure = "throughput"
seed = 1
scale = 0.0001
profile = "mssd-pcie3"
systems = ["ext4", "bytefs"]
case = [{ workload = "ycsb-a" }, { workload = "ycsb-c" }]
"#;

/// Workloads that share a loaded device come to what each comes to on a device of its own.
#[test]
fn a_workload_on_the_store_does_not_notice_who_else_began_on_its_device() {
    let both = Definition::from_toml(STORE).unwrap();
    let alone = |workload: &str| {
        let mut definition = both.clone();
        definition.cases.retain(|case| case.workload == workload);
        run(&definition, 1, &mut State::in_memory(), usize::MAX).0.unwrap()
    };
    let together = run(&both, 2, &mut State::in_memory(), usize::MAX).0.unwrap();
    let apart = [alone("ycsb-c"), alone("ycsb-a")];
    for group in apart.iter().flat_map(|figure| &figure.groups) {
        assert!(together.groups.contains(group), "{group:?} is not in {:?}", together.groups);
    }
    assert_eq!(together.groups.len(), 2);
}

/// `begin_with` says which cells come first, and names cases.
#[test]
fn an_experiment_begins_with_the_workloads_that_it_says() {
    let begins_with = |workload: &str| {
        Definition::from_toml(&STORE.replace("systems", &format!("begin_with = [\"{workload}\"]\nsystems")))
    };
    let definition = begins_with("ycsb-c").unwrap();
    let order = amphi_rt::sync::Mutex::new(Vec::new());
    let tell = |progress: Progress<'_>| {
        if let Progress::Done(cell) = progress {
            order.lock().push(cell.workload.clone());
        }
    };
    // One at a time: of two that begin together either may end first.
    let wishes = Wishes { jobs: Some(1), ..Wishes::default() };
    lab::run(&definition, &wishes, &mut State::in_memory(), &|| true, &tell).unwrap();
    assert_eq!(order.into_inner(), ["ycsb-c", "ycsb-c", "ycsb-a", "ycsb-a"]);
    let refused = begins_with("ycsb-x").unwrap_err();
    assert!(refused.contains("begins with ycsb-x, which is none of its cases"), "{refused}");
}

#[test]
fn every_experiment_is_well_formed() {
    for listed in EXPERIMENTS {
        let definition = experiment(listed.name).unwrap();
        assert_eq!(definition.name, listed.name);
        let cells = cells(&definition, &Wishes::default());
        let apart = [Measure::DevicePoints, Measure::Recovery, Measure::Remount, Measure::Commits];
        let made_of_cells = !apart.contains(&definition.measure);
        assert_eq!(made_of_cells, !cells.is_empty(), "{}", listed.name);
        for (name, text) in
            [("question", &definition.question), ("claim", &definition.claim), ("method", &definition.method)]
        {
            assert!(text.len() > 10, "{} has no {name}", listed.name);
        }
    }
}

#[test]
fn the_command_of_a_figure_makes_it_again() {
    let definition = Definition::from_toml(SMALL).unwrap();
    let mut change = Variation::default();
    for word in ["computing=free", "host_cores=2"] {
        change.set(word).unwrap();
    }
    let wishes = Wishes { seed: Some(7), change, jobs: Some(1), ..Wishes::default() };
    let figure = lab::run(&definition, &wishes, &mut State::in_memory(), &|| true, &|_| {}).unwrap().unwrap();
    let command = format!("amphi bench run {} --seed 7", definition.name);
    let words = figure.command.strip_prefix(&command).unwrap();
    let mut again = Variation::default();
    for word in words.split(" --change ").filter(|word| !word.is_empty()) {
        again.set(word).unwrap();
    }
    assert_eq!(again, wishes.change, "{}", figure.command);
}

#[test]
fn an_interrupted_experiment_goes_on_and_comes_to_the_same_figure() {
    let definition = Definition::from_toml(SMALL).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cells.jsonl");
    let (none, done) = run(&definition, 1, &mut State::in_file(&file, "a").unwrap(), 1);
    assert!(none.is_none());
    assert_eq!(done, 1);
    // The process died in the middle of a line.
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + "{\"program\":\"a\",\"ce").unwrap();
    std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + "\n").unwrap();
    let (continued, done) = run(&definition, 1, &mut State::in_file(&file, "a").unwrap(), 100);
    assert_eq!(done, 3, "the first cell was finished before");
    let (_, done) = run(&definition, 1, &mut State::in_file(&file, "a").unwrap(), 100);
    assert_eq!(done, 0);
    // Two at once, from the beginning; and nothing from another program's file.
    let (whole, done) = run(&definition, 2, &mut State::in_file(&file, "b").unwrap(), 100);
    assert_eq!(done, 4);
    assert_eq!(continued, whole);
    let figure = whole.unwrap();
    let labels: Vec<&str> = figure.groups.iter().map(|group| group.label.as_str()).collect();
    assert_eq!(labels, ["varmail", "making directories"]);
    assert!(
        (figure.groups[0].bars[0].ours - 1.0).abs() < 1e-12,
        "the first file system is what is compared with"
    );
    assert_eq!(figure.differences.len(), 1, "{:?}", figure.differences);
    assert!(figure.differences[0].why.contains("ByteFS, for an operation"), "{:?}", figure.differences);
    assert!(figure.unexplained().is_empty());
}

#[test]
fn a_published_value_without_a_measurement_is_an_error() {
    let text = SMALL.replace("group = \"varmail\"", "group = \"vermail\"");
    let definition = Definition::from_toml(&text).unwrap();
    let refused = lab::run(&definition, &Wishes::default(), &mut State::in_memory(), &|| true, &|_| {});
    assert!(refused.unwrap_err().to_string().contains("vermail / ByteFS"));
}

/// The regression guard. Where a change is meant: `cargo run --release -p amphi -- bench guard --accept`.
#[test]
fn stored_results_hold_to_the_digit() {
    let text = include_str!("../../../docs/results/guard.json");
    let stored: guard::Stored = serde_json::from_str(text).unwrap();
    let differences = guard::differences(&stored, &guard::run().unwrap()).unwrap();
    let workloads: BTreeSet<&str> =
        differences.iter().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
    assert!(
        differences.is_empty(),
        "virtual-time results have changed, of {workloads:?}:\n{}\nIf that is meant: cargo run --release -p amphi -- bench guard --accept",
        differences.join("\n")
    );
}

/// AugeFS with something left out is made, mounted twice and measured as a whole one is.
#[test]
fn augefs_without_its_parts_runs_beside_the_whole() {
    let text = r#"
name = "parts"
title = "Parts"
question = "Do they run?"
claim = "They do"
claim_row = "AU-4"
method = "Small."
measure = "throughput"
seed = 1
scale = 0.0005
profile = "p4800x-pmr"
systems = ["augefs", "augefs-syn", "augefs-roc", "augefs-pmr", "augefs-para"]
case = [{ workload = "names-mkdir", threads = 4 }]
variation = [{ computing = "own" }]
"#;
    let definition = Definition::from_toml(text).unwrap();
    let figure = lab::run(&definition, &Wishes::default(), &mut State::in_memory(), &|| true, &|_| {})
        .unwrap()
        .unwrap();
    let bars = &figure.groups[0].bars;
    assert_eq!(bars.len(), 5, "{:?}", figure.refused);
    // Of what is made one by one nothing waits for data.
    assert_eq!(bars[1].ours, 1.0, "{bars:?}");
    assert!(bars[2].ours != 1.0 && bars[3].ours != 1.0 && bars[4].ours != 1.0, "{bars:?}");
}
