//! Every published point of every built-in profile is met within 5 %, and twice the same.

use amphi_ssd::{Profile, calibrate};

#[test]
fn built_in_profiles_meet_what_was_published() {
    let mut points = 0;
    for name in Profile::names() {
        let profile = Profile::named(name).expect("valid");
        let measured = calibrate(&profile).expect("measures");
        for point in &measured {
            println!(
                "{name:<16} {:<18} measured {:>8.3} published {:>8.3} {:<5} {:+.1} %  {}",
                point.name,
                point.measured,
                point.published,
                point.unit,
                point.error() * 100.0,
                point.source
            );
            assert!(point.error().abs() <= 0.05, "{name}: {point:?}");
            points += 1;
        }
        let again = serde_json::to_string(&calibrate(&profile).expect("measures")).expect("writes");
        assert_eq!(serde_json::to_string(&measured).expect("writes"), again, "{name}");
    }
    assert!(points >= 6);
}
