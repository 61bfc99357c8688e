//! `amphi crash`: what it prints, how it goes on, what a replay and an explanation show.

use std::process::Command;

use serde_json::Value;

use crate::rig::{Rig, amphi, amphi_ok, can_mount, complaint};

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

/// What a shell does on a mount is recorded, and crashed everywhere in memory, without a violation.
#[test]
fn what_programs_do_on_a_mount_is_recorded_and_crashed() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("64M");
    rig.mount();
    std::fs::write(rig.on_mount("there before"), [7; 3000]).unwrap();
    rig.umount();
    let trace = rig.path("ops");
    amphi_ok(&["mount", "--free", "-o", &format!("trace={trace}"), &rig.image(), &rig.mount_point()]);
    let script = "set -e; cd \"$1\"; mkdir d; echo words > d/a; sync d/a; mv d/a d/b; ln d/b c; \
        dd if=/dev/zero of=big bs=9000 count=2 conv=fsync 2>/dev/null; truncate -s 40 c; \
        ln -s nowhere s; chmod 600 c; rm d/b; cat 'there before' >> c; sync";
    let shell = Command::new("sh").args(["-c", script, "sh", &rig.mount_point()]).status().unwrap();
    assert!(shell.success());
    rig.umount();
    let recorded = std::fs::read_to_string(&trace).unwrap();
    for line in [
        "create there%20before",
        "write there%20before 0 3000",
        "mkdir d",
        "create d/a",
        "fsync d/a",
        "rename d/a d/b",
        "link d/b c",
        "fsync big",
        "symlink nowhere s",
        "chmod c 600",
        "unlink d/b",
        "sync",
    ] {
        assert!(recorded.lines().any(|there| there == line), "{line:?} is not in\n{recorded}");
    }
    let run = ["crash", "run", "--workload", "trace", "--trace", &trace, "--crash", "subsets", "--json"];
    let report = json(&amphi_ok(&run));
    assert_eq!(report["violations"], Value::Array(Vec::new()), "{report}\n{recorded}");
    assert!(report["crash_points"].as_u64().unwrap() > 40, "{report}");
}
