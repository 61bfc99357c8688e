//! A mistake planted in each stage of the persistence domain, each of which the power-cut traffic must
//! notice. `cargo test -p amphi-ssd --features planted-bugs --test planted`

mod oracle;

use std::panic::{AssertUnwindSafe, catch_unwind};

use amphi_rt::Sim;
use amphi_ssd::Firmware;
use amphi_ssd::planted::{Bug, VIOLATIONS, plant};
use oracle::run;

const CUTS_PER_SEED: u64 = 50;
/// Seeds within which a violation must be noticed: 0.1 % of what continuous integration runs.
const SEEDS: u64 = 20;

fn firmware(violation: Bug) -> Firmware {
    match violation {
        Bug::CachedPageForgotten => Firmware::PageCache,
        Bug::MemoryForgotten => Firmware::Memory,
        Bug::LastPageNotLoaded
        | Bug::PinNotRecorded
        | Bug::LastPageNotFlushed
        | Bug::EntryGoneBeforeFlush
        | Bug::SyncWithoutVerify
        | Bug::EntryInfoShort
        | Bug::DmaFromFlash
        | Bug::LastPageNotGated
        | Bug::DumpCutShort
        | Bug::TableNotDumped
        | Bug::TableNotRestored
        | Bug::DumpClearedEarly
        | Bug::DumpKept => Firmware::BaBuffer,
        _ => Firmware::Log,
    }
}

/// The first seed at which the traffic fails. In a thread of its own: a Sim that failed leaves its thread
/// panicking.
fn noticed_at(violation: Option<Bug>, firmware: Firmware) -> Option<u64> {
    amphi_rt::task::spawn("traffic", move || {
        plant(violation);
        let sim = |seed| Sim::new(seed).run(|| run(seed, CUTS_PER_SEED, firmware));
        (0..SEEDS).find(|&seed| catch_unwind(AssertUnwindSafe(|| sim(seed))).is_err())
    })
    .join()
}

#[test]
fn a_violation_in_each_stage_is_noticed() {
    // The failures are wanted; their reports are not.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let sound = [Firmware::Log, Firmware::PageCache, Firmware::Memory, Firmware::BaBuffer];
    let sound = sound.map(|firmware| noticed_at(None, firmware));
    let noticed = VIOLATIONS.map(|violation| (violation, noticed_at(Some(violation), firmware(violation))));
    std::panic::set_hook(report);
    assert_eq!(sound, [None; 4], "the device itself is at fault");
    for (violation, seed) in noticed {
        println!("{violation:?}: noticed at seed {seed:?}");
    }
    let missed: Vec<_> = noticed.iter().filter(|(_, seed)| seed.is_none()).collect();
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
