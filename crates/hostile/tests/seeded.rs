//! Random bytes for every target of `fuzz/`, the same on each run. `AMPHI_SEEDS=100000` runs more,
//! `AMPHI_SEED=n` replays one; a file that libFuzzer found is replayed by `AMPHI_INPUT=path`.

use amphi_rt::random::Generator;
use std::panic::{AssertUnwindSafe, catch_unwind};

use amphi_hostile::{
    augefs_image, bytefs_image, commands, devfs_commands, devfs_image, image, queue, romefs_image,
};

/// Bytes of a seed (SplitMix64).
fn bytes(seed: u64) -> Vec<u8> {
    let mut generator = Generator::new(seed);
    let mut next = || generator.next();
    let length = next() % (8 << (next() % 7));
    (0..length).map(|_| next() as u8).collect()
}

fn run(target: fn(&[u8]), usual: u64) {
    if let Ok(path) = std::env::var("AMPHI_INPUT") {
        return target(&std::fs::read(path).expect("the input that was named"));
    }
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse::<u64>().ok());
    let seeds = match number("AMPHI_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("AMPHI_SEEDS").unwrap_or(usual),
    };
    for seed in seeds {
        if catch_unwind(AssertUnwindSafe(|| target(&bytes(seed)))).is_err() {
            panic!("replay with AMPHI_SEED={seed}");
        }
    }
}

#[test]
fn damaged_images_are_refused_or_used() {
    run(image, 400);
}

#[test]
fn any_commands_are_refused_or_obeyed() {
    run(commands, 1500);
}

#[test]
fn damaged_file_systems_are_refused_or_used() {
    run(bytefs_image, 600);
}

#[test]
fn any_client_of_a_queue_is_answered_or_given_up() {
    run(queue, 20_000);
}

#[test]
fn a_damaged_devfs_is_refused_or_used() {
    run(devfs_image, 400);
}

#[test]
fn any_program_before_devfs_harms_nobody_else() {
    run(devfs_commands, 400);
}

#[test]
fn damaged_memory_zones_are_refused_or_used() {
    run(romefs_image, 600);
}

#[test]
fn a_damaged_augefs_is_refused_or_used() {
    run(augefs_image, 400);
}
