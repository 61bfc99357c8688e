//! Every published point of every built-in profile is met within 5 %, or its profile says why not; and twice
//! the same.

use amphi_ssd::{Profile, calibrate};

const TOLERANCE: f64 = 0.05;

#[test]
fn built_in_profiles_meet_what_was_published() {
    let (mut met, mut missed) = (0, Vec::new());
    for name in Profile::names() {
        let profile = Profile::named(name).expect("valid");
        let measured = calibrate(&profile).expect("measures");
        for point in &measured {
            println!(
                "{name:<12} {:<28} measured {:>9.3?} published {:>9.3} {:<5} {:+.1?} %  {}",
                point.name,
                point.measured,
                point.published,
                point.unit,
                point.error().map(|error| error * 100.0),
                point.source
            );
            match (point.is_met(TOLERANCE), &point.unmet) {
                (true, None) => met += 1,
                (true, Some(reason)) => missed.push(format!("{name}: {} is met; drop: {reason}", point.name)),
                (false, Some(_)) => {}
                (false, None) => missed.push(format!("{name}: {point:?}")),
            }
        }
        let again = serde_json::to_string(&calibrate(&profile).expect("measures")).expect("writes");
        assert_eq!(serde_json::to_string(&measured).expect("writes"), again, "{name}");
    }
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(met >= 40, "only {met} points are met");
}

/// Real time on a machine that may be busy: medians of the right order. What an idle machine keeps is asked
/// by `amphi ssd calibrate --real`.
#[test]
fn real_waits_are_of_the_right_length() {
    for time in amphi_ssd::real_time().expect("measures") {
        println!("{time:?}");
        assert!(time.median_ns >= time.device_ns, "a command ended before its time: {time:?}");
        assert!(time.median_ns < time.device_ns * 20, "{time:?}");
    }
}
