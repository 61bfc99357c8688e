//! The model keeps every promise, and agrees with itself: the plumbing of the suite holds.

use amphi_conformance::{check_all, random};
use amphi_model::{Limits, Model};
use amphi_rt::Sim;

#[test]
fn the_model_keeps_every_promise() {
    check_all(Model::new);
}

#[test]
fn random_operations_agree() {
    for seed in 0..8 {
        random::run(Model::new, seed, 2_000);
    }
}

#[test]
fn random_operations_agree_across_remounts() {
    let remount = |model: Model| {
        model.drop_references();
        model
    };
    for seed in 100..104 {
        random::run_with_remounts(Model::new, remount, seed, 2_000, 100);
    }
}

/// What fails for lack of room must change nothing; the rest must go on working.
#[test]
fn random_operations_agree_on_a_full_file_system() {
    let limits = Limits { pages: 60, inodes: 16, ..Limits::default() };
    for seed in 200..206 {
        random::run(|| Model::with_limits(limits), seed, 2_000);
    }
}

#[test]
fn random_operations_of_many_tasks_agree() {
    random::run_tasks(Model::new, 7, 1_500, 4);
}

#[test]
fn a_seed_stands_for_one_sequence() {
    let operations = random::sequence(1, 4_000);
    assert_eq!(operations[..100], random::sequence(1, 100)[..]);
    assert_ne!(operations[..100], random::sequence(2, 100)[..]);
}

#[test]
fn promises_and_agreement_hold_in_virtual_time() {
    for seed in 0..5 {
        Sim::new(seed).run(|| {
            check_all(Model::new);
            random::run(Model::new, seed, 300);
            random::run_tasks(Model::new, seed, 300, 5);
        });
    }
}
