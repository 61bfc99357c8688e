//! `amphi crash`: what it prints, how it goes on, what a replay and an explanation show.

use serde_json::Value;

use crate::rig::{amphi, amphi_ok, complaint};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_campaign_counts_honestly_and_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state").display().to_string();
    let run = [
        "crash",
        "run",
        "--workload",
        "seq1",
        "--count",
        "40",
        "--crash",
        "linear",
        "--json",
        "--checkpoint",
        &state,
    ];
    let first = json(&amphi_ok(&run));
    assert_eq!(first["complete"], true, "{first}");
    assert_eq!(first["workloads"], 40);
    assert_eq!(first["violations"], Value::Array(Vec::new()));
    let number = |name: &str| first[name].as_u64().unwrap();
    assert!(number("states") >= number("distinct_states") && number("distinct_states") > 40, "{first}");
    let again = json(&amphi_ok(&run));
    assert_eq!(again["states"], first["states"], "nothing is done twice");
    let other = amphi(&["crash", "run", "--workload", "seq1", "--count", "41", "--checkpoint", &state]);
    assert_eq!(other.status.code(), Some(1));
    assert!(complaint(&other).contains("another campaign"), "{}", complaint(&other));
}

#[test]
fn a_replay_shows_the_crash_and_an_explanation_draws_it() {
    let shown = amphi_ok(&["crash", "replay", "bytefs/seq1-266@1:none"]);
    for words in
        ["rename foo bar", "the device's next step: COMMIT", "legal, 2 of 2", "found:", "nothing is wrong"]
    {
        assert!(shown.contains(words), "{words:?} is not in {shown}");
    }
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("crash.html");
    amphi_ok(&["crash", "explain", "bytefs/seq1-266@1:none", "--html", &page.display().to_string()]);
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("<svg") && html.contains("power lost") && html.contains("COMMIT"), "{html}");
    assert!(!html.contains("http"), "the page needs nothing else");
    let wrong = amphi(&["crash", "replay", "bytefs/seq7-1@0:none"]);
    assert!(complaint(&wrong).contains("no crash ID"), "{}", complaint(&wrong));
}

#[test]
fn a_trace_is_run_as_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("ops").display().to_string();
    std::fs::write(&trace, "# two files\ncreate a\nwrite a 0 9000\nfsync a\nrename a b\n").unwrap();
    let report = json(&amphi_ok(&["crash", "run", "--workload", "trace", "--trace", &trace, "--json"]));
    assert!(report["crash_points"].as_u64().unwrap() > 5, "{report}");
    std::fs::write(&trace, "create a\nfly away\n").unwrap();
    let refused = amphi(&["crash", "run", "--workload", "trace", "--trace", &trace]);
    assert!(complaint(&refused).contains("line 2"), "{}", complaint(&refused));
}
