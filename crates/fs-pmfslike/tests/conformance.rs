//! It keeps what `vfs::FileSystem` promises, and answers random operations as the model does: with room, with
//! few inodes in memory, across remounts, and with several tasks.

mod small;

use std::sync::Arc;

use amphi_conformance::{check_all, check_read_only, one_tree, random};
use amphi_rt::Sim;
use small::{cramped, make, remount, roomy};

#[test]
fn keeps_the_promises() {
    check_all(roomy);
    check_read_only(roomy, |fs| remount(fs, true));
    Sim::new(1).run(|| check_all(|| make(64 << 20, 12_000, 3)));
}

#[test]
fn random_operations_match_the_model() {
    for seed in 0..40 {
        random::run(roomy, seed, 1000);
        random::run_with_remounts(cramped, |fs| remount(fs, false), 100 + seed, 1000, 50);
    }
}

#[test]
fn concurrent_tasks_match_their_models() {
    for seed in 0..80 {
        Sim::new(seed).run(move || random::run_tasks(cramped, seed, 100, 16));
    }
    for seed in 0..5 {
        random::run_tasks(cramped, seed, 150, 8);
    }
}

fn command(name: &str) -> String {
    format!("cargo test -p amphi-fs-pmfslike --test conformance {name}")
}

#[test]
fn nobody_waits_in_a_circle() {
    one_tree::for_seeds(0..80, &command("nobody_waits_in_a_circle"), |_| {
        one_tree::circle(&Arc::new(cramped()))
    });
}

#[test]
fn tasks_in_one_tree_lose_nothing() {
    one_tree::for_seeds(0..80, &command("tasks_in_one_tree_lose_nothing"), |seed| {
        one_tree::meddle_together(&Arc::new(cramped()), seed);
    });
}

#[test]
fn crossing_moves_lose_nothing() {
    one_tree::for_seeds(0..80, &command("crossing_moves_lose_nothing"), |seed| {
        one_tree::crossing_moves(&Arc::new(cramped()), seed);
    });
}
