//! The tests that file systems have in common, as their `tests/conformance.rs` states them.

/// Tests of random operations, of a file system with room and of a cramped one: against the model, across
/// remounts and crashes, and of several tasks at once. `seeds` in virtual time, half as many against the
/// model, an eighth as many on threads.
#[macro_export]
macro_rules! random_tests {
    (seeds: $seeds:literal, $roomy:expr, $cramped:expr, $remount:expr, $crash:expr) => {
        #[test]
        fn random_operations_match_the_model() {
            for seed in 0..$seeds / 2 {
                $crate::random::run($roomy, seed, 1000);
                $crate::random::run_with_remounts($cramped, $remount, 100 + seed, 1000, 50);
            }
        }

        #[test]
        fn random_operations_match_the_model_across_crashes() {
            for seed in 0..$seeds / 2 {
                $crate::random::run_with_crashes($cramped, $crash, 200 + seed, 1000, 50);
            }
        }

        #[test]
        fn concurrent_tasks_match_their_models() {
            for seed in 0..$seeds {
                ::amphi_rt::Sim::new(seed).run(move || $crate::random::run_tasks($cramped, seed, 100, 16));
            }
            for seed in 0..$seeds / 8 {
                $crate::random::run_tasks($cramped, seed, 150, 8);
            }
        }
    };
}

/// Tests of tasks that get in each other's way in one tree ([`one_tree`](crate::one_tree)), of what `make`
/// makes for a seed. They stand in `package`'s conformance tests.
#[macro_export]
macro_rules! one_tree_tests {
    ($package:literal, $seeds:expr, $make:expr) => {
        #[test]
        fn nobody_waits_in_a_circle() {
            let command = concat!("cargo test -p ", $package, " nobody_waits_in_a_circle");
            $crate::one_tree::for_seeds($seeds, command, |seed| {
                $crate::one_tree::circle(&::std::sync::Arc::new(($make)(seed)))
            });
        }

        #[test]
        fn tasks_in_one_tree_lose_nothing() {
            let command = concat!("cargo test -p ", $package, " tasks_in_one_tree_lose_nothing");
            $crate::one_tree::for_seeds($seeds, command, |seed| {
                $crate::one_tree::meddle_together(&::std::sync::Arc::new(($make)(seed)), seed);
            });
        }

        #[test]
        fn crossing_moves_lose_nothing() {
            let command = concat!("cargo test -p ", $package, " crossing_moves_lose_nothing");
            $crate::one_tree::for_seeds($seeds, command, |seed| {
                $crate::one_tree::crossing_moves(&::std::sync::Arc::new(($make)(seed)), seed);
            });
        }
    };
}
