//! A third file system over this crate, in memory and as small as can be: it keeps the promises of
//! `vfs::FileSystem` as the others do, answers random operations as the model does, and its tasks get in each
//! other's way without waiting for ever.

mod files;
mod map;
mod store;

use std::sync::Arc;

use amphi_conformance::{check_all, check_read_only, one_tree, random};
use amphi_rt::Sim;
use store::Toy;

fn roomy() -> Toy {
    Toy::new(10_000)
}

/// So few inodes in memory that they come and go all the time.
fn cramped() -> Toy {
    Toy::new(3)
}

fn remount(toy: Toy) -> Toy {
    amphi_names::write_all_atimes(&toy).expect("memory does not fail");
    Toy::mount(Arc::clone(&toy.map), 3, false)
}

#[test]
fn keeps_the_promises() {
    check_all(roomy);
    check_all(cramped);
    check_read_only(roomy, |toy| Toy::mount(Arc::clone(&toy.map), 3, true));
    Sim::new(1).run(|| check_all(roomy));
}

#[test]
fn random_operations_match_the_model() {
    for seed in 0..40 {
        random::run(roomy, seed, 1000);
        random::run_with_remounts(cramped, remount, 100 + seed, 1000, 50);
    }
}

#[test]
fn concurrent_tasks_match_their_models_in_virtual_time() {
    for seed in 0..100 {
        Sim::new(seed).run(move || random::run_tasks(cramped, seed, 100, 16));
    }
}

#[test]
fn concurrent_tasks_match_their_models_on_real_threads() {
    for seed in 0..20 {
        random::run_tasks(cramped, seed, 150, 8);
    }
}

fn command(name: &str) -> String {
    format!("cargo test -p amphi-names --test toy {name}")
}

#[test]
fn nobody_waits_in_a_circle() {
    one_tree::for_seeds(0..100, &command("nobody_waits_in_a_circle"), |_| {
        one_tree::circle(&Arc::new(cramped()))
    });
}

#[test]
fn tasks_in_one_tree_lose_nothing() {
    one_tree::for_seeds(0..100, &command("tasks_in_one_tree_lose_nothing"), |seed| {
        one_tree::meddle_together(&Arc::new(cramped()), seed);
    });
}

#[test]
fn crossing_moves_lose_nothing() {
    one_tree::for_seeds(0..100, &command("crossing_moves_lose_nothing"), |seed| {
        one_tree::crossing_moves(&Arc::new(cramped()), seed);
    });
}
