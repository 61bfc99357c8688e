//! A power cut each minute, in the middle of whatever is under way, on a small device that cleans and
//! collects all the time. The slice has ByteFS.

use amphi_crashlab::{days, subject};

/// Simulated minutes, as a rule.
const MINUTES: u64 = 20;

fn pass(name: &str) {
    pass_with(name, MINUTES / 4);
}

/// More than so many of the cuts meet a call.
fn pass_with(name: &str, interrupted: u64) {
    let minutes = if std::env::var_os("AMPHI_TEST_LONG").is_some() { 24 * 60 } else { MINUTES };
    let subject = subject::named(name).expect("the subject exists");
    let days = days::run(subject, "mssd-pcie3", 1, minutes, &|_minute| {}).expect("it can be run");
    let command = format!("amphi crash run --fs {name} --workload days --seed 1 --minutes {minutes}");
    assert_eq!(days.violation, None, "{command}");
    assert!(days.interrupted > interrupted, "{days:?}");
}

/// Here a file was cut and removed since the last checkpoint, and recovery freed twice what had been cut.
#[test]
fn augefs() {
    pass("augefs");
}

#[test]
fn devfs() {
    pass("devfs");
}

#[test]
fn ext4like() {
    pass("ext4like");
}

#[test]
fn ext4like_pins() {
    pass("ext4like-pins");
}

#[test]
fn f2fslike() {
    pass("f2fslike");
}

#[test]
fn novalike() {
    pass("novalike");
}

/// Here a long name came into the place of several free entries, whose heads were not in the log.
#[test]
fn pmfslike() {
    pass("pmfslike");
}

#[test]
fn romefs() {
    // Its calls take microseconds, so that few cuts meet one.
    pass_with("romefs", MINUTES / 10);
}
