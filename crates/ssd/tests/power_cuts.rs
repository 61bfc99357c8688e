//! Random traffic, random cuts: what was durable is there, what was not obeys the contract.
//!
//! Each seed makes a small device in virtual time and drives it with random stores, commits, block writes and
//! trims, from one to three tasks, each on its own pages. It takes the power away at a random command, at a
//! random step inside the firmware, or between commands, recovers (often interrupted too), and compares every
//! cell with the oracles. A BA-buffer has traffic of its own: pins, flushes and syncs of entries, cut in the
//! dump and in the restore too. `AMPHI_SEEDS=from..to` chooses seeds and tells what was done, `AMPHI_CUTS=n`
//! how many cuts there are to be (CI: 1,000,000).

mod oracle;

use amphi_rt::Sim;
use amphi_ssd::Firmware;
use oracle::run;

/// Cuts to make in all: `AMPHI_CUTS`, or as many as take a few seconds.
fn cuts_wanted() -> u64 {
    std::env::var("AMPHI_CUTS").map_or(20_000, |text| text.parse().expect("AMPHI_CUTS is a number"))
}

/// Makes so many fifths of the cuts, over seeds from `first` on, or over those of `AMPHI_SEEDS`.
fn make_cuts(first: u64, fifths: u64, firmware: Firmware) {
    const CUTS_PER_SEED: u64 = 50;
    let seeds = match std::env::var("AMPHI_SEEDS") {
        Ok(text) => {
            let (from, to) = text.split_once("..").expect("AMPHI_SEEDS is FROM..TO");
            from.parse().expect("a number")..to.parse().expect("a number")
        }
        Err(_) => first..first + (cuts_wanted() * fifths).div_ceil(5 * CUTS_PER_SEED),
    };
    let cuts: u64 = seeds.map(|seed| Sim::new(seed).run(|| run(seed, CUTS_PER_SEED, firmware))).sum();
    println!("{cuts} cuts");
}

/// Seeds that once found a fault rare enough to be missed by the first few thousand.
#[test]
fn seeds_that_failed_before() {
    // Cuts during collection left partial blocks to fresh data, until collection had no page to move to.
    const PARTIAL_BLOCKS: u64 = 4_294_968_109;
    Sim::new(PARTIAL_BLOCKS).run(|| run(PARTIAL_BLOCKS, 60, Firmware::Log));
}

#[test]
fn nothing_durable_is_lost_and_nothing_open_survives() {
    make_cuts(0, 2, Firmware::Log);
}

/// Other seeds, for the other processor.
#[test]
fn nothing_durable_is_lost_and_nothing_open_survives_either() {
    if std::env::var("AMPHI_SEEDS").is_err() {
        make_cuts(1 << 32, 2, Firmware::Log);
    }
}

/// As with the write log, without transactions.
#[test]
fn the_page_cache_loses_nothing_durable() {
    make_cuts(1 << 33, 1, Firmware::PageCache);
}

/// As with the page cache; and neither side of the device disturbs the other.
#[test]
fn the_memory_area_loses_nothing_durable() {
    make_cuts(1 << 34, 1, Firmware::Memory);
}

/// At every step of pins, flushes and syncs, of the dump that a cut makes, and of the restore after it.
#[test]
fn the_ba_buffer_loses_nothing_synced_and_no_pin() {
    make_cuts(1 << 35, 1, Firmware::BaBuffer);
}
