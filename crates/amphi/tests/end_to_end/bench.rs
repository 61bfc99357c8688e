//! A measurement from end to end: what it prints, and that nothing of it is left, whether it ends, is
//! interrupted or is killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use amphi_front_shared::keys_are_here;
use serde_json::Value;

use crate::accelerated::{counts, library};
use crate::rig::{self, amphi_ok, can_mount, wait_until};
use crate::shared::{core, is_by_range};

/// What runs have left: loop devices over their files, and mounts that this process sees.
fn leftovers() -> Vec<String> {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let files =
        devices.filter_map(|device| std::fs::read_to_string(device.path().join("loop/backing_file")).ok());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc");
    files.chain(mounts.lines().map(str::to_owned)).filter(|text| text.contains("amphi-bench-")).collect()
}

/// zram devices that this process's run has written down and not removed.
fn claims(pid: u32) -> usize {
    let claims = std::fs::read_dir("/run/amphi-bench").into_iter().flatten().flatten();
    let owners = claims.filter_map(|claim| std::fs::read_to_string(claim.path()).ok());
    owners.filter(|owner| *owner == pid.to_string()).count()
}

/// A long run, in which something has been measured already.
fn measuring() -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amphi"));
    let many = "1,".repeat(200) + "1";
    command.args(["bench", "run", "software", "--only", "stat", "--rounds", "2", "--threads", &many]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("amphi starts");
    let lines = BufReader::new(child.stdout.as_mut().expect("piped")).lines();
    let measured = lines.map_while(Result::ok).any(|line| line.starts_with("stat by path"));
    assert!(measured, "it ended before it measured anything: {:?}", child.wait_with_output());
    child
}

/// No two runs at once: each would see the other's devices.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn a_measurement_prints_its_results_and_leaves_nothing() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let only = ["--only", "stat", "--only", "overwrite 64 B", "--threads", "1", "--rounds", "2"];
    let printed = amphi_ok(&[&["bench", "run", "software", "--json", "-"], &only[..]].concat());
    let report: Value = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    let names = |list: &str| -> Vec<_> {
        report[list].as_array().expect("a list").iter().filter_map(|peer| peer["name"].as_str()).collect()
    };
    let (here, missing) = (names("peers"), names("unavailable"));
    assert!(here.len() + missing.len() == 21 && here.contains(&"library"), "{here:?} and {missing:?}");
    let operations = report["operations"].as_array().expect("a list");
    assert_eq!(operations.len(), 2, "{report}");
    let has_rival = here.iter().any(|name| name.ends_with("-loop") || name.ends_with("-zram"));
    for operation in operations {
        let results = operation["results"].as_array().expect("a list");
        assert_eq!(results.len(), here.len());
        for result in results {
            assert!(result["p50_ns"].as_u64() > Some(0) && result["failure"].is_null(), "{result}");
        }
        let is_mounted = here.contains(&"fuse") && here.contains(&"trivial");
        assert_eq!(operation["share"]["p50"].is_number(), is_mounted, "{operation}");
        let has_rings = here.contains(&"fuse-ring") && here.contains(&"trivial");
        assert_eq!(operation["ring_share"]["p50"].is_number(), has_rings, "{operation}");
        assert!(!has_rival || !operation["ratios"].as_array().expect("a list").is_empty(), "{operation}");
    }
    assert_eq!(leftovers(), [""; 0]);

    let mut interrupted = measuring();
    let pid = interrupted.id();
    assert!(Command::new("kill").args(["-INT", &pid.to_string()]).status().expect("kill starts").success());
    // Whoever stops reading must not hold it up.
    drop(interrupted.stdout.take());
    let said = interrupted.wait_with_output().expect("it ends");
    let complaint = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.code() == Some(1) && complaint.contains("interrupted"), "{said:?}");
    assert_eq!((leftovers(), claims(pid)), (Vec::new(), 0));

    let mut killed = measuring();
    killed.kill().expect("a child can be killed");
    killed.wait().expect("it ends");
    wait_until("mounts and loop devices have gone with the run", || leftovers().is_empty());
    // The kernel takes the killed run's mounts away when it comes to it; a run before that finds the devices
    // in use.
    let is_gone = (0..5).any(|_| {
        amphi_ok(&["bench", "run", "software", "--only", "stat", "--threads", "1", "--rounds", "1"]);
        claims(killed.id()) == 0
    });
    assert!(is_gone, "a later run removes what was left");
}

/// A run of ours alone: what stands in front of programs must carry their calls out, or figures would be
/// those of the kernel's way under another name.
#[test]
fn programs_are_measured_by_the_queue_and_in_a_range() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if !can_mount() || !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root lets processes meet in a namespace of their own");
        return;
    }
    library();
    core();
    let words = ["create, write", "append", "overwrite 64", "rename", "stat"];
    let only = words.iter().flat_map(|word| ["--only", word]);
    let peers = ["augefs", "fuse", "queue", "range", "devfs"].into_iter().flat_map(|peer| ["--peer", peer]);
    let run = ["bench", "run", "software", "--threads", "1,2", "--rounds", "1", "--json", "-"];
    let mut command = rig::command(&run);
    // Each process says at its end which way its calls went.
    let output = command.args(only).args(peers).env("AMPHI_TRACE_CALLS", "1").output().expect("amphi starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let names = |list: &str| -> Vec<_> {
        report[list].as_array().expect("a list").iter().filter_map(|peer| peer["name"].as_str()).collect()
    };
    let libraries = ["library", "augefs"];
    let mounts = ["fuse", "fuse-ring", "fuse-sync", "fuse-paths"];
    let preloaded = ["queue", "queue-all", "range-all", "range-keys", "augefs-range", "devfs-all"];
    let missing = names("unavailable");
    assert_eq!(missing.contains(&"range-keys"), !keys_are_here(), "{report}");
    let ranges = if keys_are_here() { 3 } else { 2 };
    let due: Vec<_> =
        libraries.into_iter().chain(mounts).chain(preloaded).filter(|peer| !missing.contains(peer)).collect();
    assert_eq!(names("peers"), due, "{report}");
    assert!(missing.iter().all(|name| ["fuse-ring", "range-keys"].contains(name)), "{report}");
    let operations = report["operations"].as_array().expect("a list");
    assert_eq!(operations.len(), 2 * 6, "rename comes twice: {report}");
    for operation in operations {
        let is_second = operation["threads"] == 2;
        for result in operation["results"].as_array().expect("a list") {
            let is_there = result["p50_ns"].as_u64() > Some(0) && result["per_second"].as_f64() > Some(0.0);
            assert!(is_there && result["scaling"].is_number() == is_second, "{result} of {operation}");
        }
        let pairs = operation["beside"].as_array().expect("a list");
        assert!(
            pairs.len() == 9 + 2 * ranges && pairs.iter().all(|pair| pair["p50"].as_f64() > Some(0.0)),
            "{operation}"
        );
    }
    let rests = report["rests"].as_array().expect("a list");
    let is_counted = std::path::Path::new("/proc/thread-self/schedstat").exists();
    assert_eq!(rests.len(), if is_counted { 3 + ranges } else { 0 }, "{report}");
    for rest in rests {
        assert!(rest["ns_per_call"].as_f64() > Some(0.0) && rest["idle_ns_per_second"].is_number(), "{rest}");
    }

    // Two processes for each way.
    let told: Vec<_> = said.split("amphi: calls of process").skip(1).collect();
    let by_range = told.iter().filter(|one| is_by_range(one)).count();
    assert_eq!((told.len(), by_range), (2 * (3 + ranges), 2 * ranges), "{said}");
    for one in told {
        let counted = counts(one);
        let count = |call| *counted.get(call).unwrap_or_else(|| panic!("no {call}: {one}\n{said}"));
        let [write, sync, rename, open] = ["write", "fsync", "rename", "open"].map(count);
        // The ends of what is looked at in the beginning may go through the kernel.
        for (call, (taken, left)) in [("write", write), ("fsync", sync), ("rename", rename)] {
            assert!(taken > 500 && left < 20, "{call}: {one}");
        }
        let has_placeholders = open.0 > 500;
        assert!(has_placeholders || open.1 > 500, "{one}");
    }
    assert_eq!(leftovers(), [""; 0]);
}

/// A run over all of the kernel's file systems and ours, short and not much dilated.
const KERNEL: [&str; 8] = ["bench", "kernel", "--dilate", "20", "--scale", "0.0001", "--threads", "2"];

/// A longer one, which has already come to the kernel's file systems.
fn exporting() -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amphi"));
    command.args(KERNEL).args(["--only", "ext4", "--operations", "3000"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("amphi starts");
    let lines = BufReader::new(child.stdout.as_mut().expect("piped")).lines();
    let measures = lines.map_while(Result::ok).any(|line| line == "varmail");
    assert!(measures, "it ended before it measured anything: {:?}", child.wait_with_output());
    wait_until("an export is in use", || leftovers().iter().any(|text| text.contains("ext4")));
    child
}

#[test]
fn the_kernels_file_systems_are_measured_beside_ours_and_nothing_is_left() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    if !can_mount() || !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can make disks");
        return;
    }
    let printed = amphi_ok(&[&KERNEL[..], &["--operations", "200", "--json", "-"]].concat());
    let report: Value = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    let cells = report["workloads"][0]["cells"].as_array().expect("a list");
    assert_eq!(cells.len(), 6, "{report}");
    let mut measured = 0;
    for cell in cells {
        let name = cell["name"].as_str().expect("a name");
        if let Some(failure) = cell["failure"].as_str() {
            assert!(!name.starts_with("bytefs"), "{name}: {failure}");
            println!("SKIPPED: {name}: {failure}");
            continue;
        }
        measured += 1;
        let number = |field: &str| cell[field].as_u64().unwrap_or_else(|| panic!("{field}: {cell}"));
        assert!(number("operations") >= 200 && cell["operations_per_second"].as_f64() > Some(0.0), "{cell}");
        // Each mail that was synced is on the SSD.
        assert!(number("fsyncs") > 10 && number("host_bytes_written") > 100_000, "{cell}");
        let structures = cell["structures"].as_array().expect("a list");
        let has = |name: &str| structures.iter().any(|each| each["structure"] == name);
        if name.starts_with("bytefs") {
            assert!(has("dentry") && has("inode") && has("data"), "{cell}");
        } else {
            assert!(number("flushes") > 0 && number("block_bytes_written") == number("host_bytes_written"));
        }
    }
    assert!(measured >= 2, "{report}");
    assert_eq!(leftovers(), [""; 0]);
    if measured < 6 {
        return;
    }

    let interrupted = exporting();
    let pid = interrupted.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill starts").success());
    let said = interrupted.wait_with_output().expect("it ends");
    assert!(
        said.status.code() == Some(1) && String::from_utf8_lossy(&said.stderr).contains("interrupted"),
        "{said:?}"
    );
    assert_eq!(leftovers(), [""; 0]);

    let mut killed = exporting();
    killed.kill().expect("a child can be killed");
    killed.wait().expect("it ends");
    wait_until("mounts and loop devices have gone with the run", || leftovers().is_empty());
}

/// The JSON of a run that leaves nothing; none where disks cannot be made.
fn report_of(arguments: &[&str]) -> Option<Value> {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can make disks");
        return None;
    }
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let printed = amphi_ok(&[arguments, &["--json", "-"]].concat());
    assert_eq!(leftovers(), [""; 0]);
    Some(serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}")))
}

#[test]
fn programs_of_all_ways_are_measured_beside_each_other() {
    library();
    core();
    let run = ["bench", "applications", "--preload", "--rounds", "1", "--scale", "0.02"];
    let words = ["--only", "sqlite", "--only", "unpack", "--place", "memory", "--place", "tmpfs"];
    let Some(report) = report_of(&[&run[..], &words].concat()) else { return };
    let places = ["fuse-memory", "queue-memory", "range-memory", "pins-memory", "pins-queue-memory", "tmpfs"];
    for application in report["applications"].as_array().expect("a list") {
        let results = application["results"].as_array().expect("a list");
        let named: Vec<_> = results.iter().filter_map(|result| result["place"].as_str()).collect();
        assert_eq!(named, places, "{report}");
        for result in results {
            assert!(result["per_second"].as_f64() > Some(0.0), "{result}");
        }
        let ratios = application["ratios"].as_array().expect("a list");
        let is_compared = |best: &str| ratios.iter().filter(|ratio| ratio["best"] == best).count();
        assert_eq!((is_compared("fuse-memory"), is_compared("tmpfs")), (4, 5), "{application}");
    }
    assert_eq!(report["applications"].as_array().map(Vec::len), Some(2), "{report}");
}

#[test]
fn logs_of_databases_are_measured_on_each_ssd_of_2b_ssds_figure_9() {
    library();
    let run = ["bench", "applications", "--logs", "--dilate", "20", "--rounds", "1", "--scale", "0.02"];
    let Some(report) = report_of(&[&run[..], &["--only", "sqlite"]].concat()) else { return };
    assert_eq!(report["dilation"], 20.0, "{report}");
    for application in report["applications"].as_array().expect("a list") {
        let ratios = application["ratios"].as_array().expect("a list");
        let pairs: Vec<_> = ratios
            .iter()
            .filter_map(|ratio| Some((ratio["ours"].as_str()?, ratio["best"].as_str()?)))
            .collect();
        assert_eq!(
            pairs,
            [("2b-ssd", "dc-ssd"), ("2b-ssd", "ull-ssd"), ("2b-ssd", "async")],
            "{application}"
        );
    }
}

#[test]
fn a_database_is_measured_on_every_file_system() {
    let arguments = ["bench", "applications", "--only", "sqlite", "--rounds", "1", "--scale", "0.02"];
    let Some(report) = report_of(&arguments) else { return };
    assert_eq!(report["places"].as_array().map(Vec::len), Some(8), "{report}");
    let sqlite = &report["applications"][0];
    let rate = |place: &str| {
        let results = sqlite["results"].as_array().expect("a list");
        let found = results.iter().find(|result| result["place"] == place)?;
        assert!(found["failure"].is_null(), "{found}");
        found["per_second"].as_f64()
    };
    assert!(rate("fuse-ssd") > Some(0.0) && rate("fuse-memory") > Some(0.0), "{report}");
    for (ours, rivals) in [("fuse-ssd", "-ssd"), ("fuse-memory", "-zram")] {
        let ratios = sqlite["ratios"].as_array().expect("a list");
        let Some(ratio) = ratios.iter().find(|ratio| ratio["ours"] == ours) else {
            println!("SKIPPED: nothing to compare {ours} with");
            continue;
        };
        let best = ratio["best"].as_str().expect("a name");
        assert!(best.ends_with(rivals), "compared with what stands on something else: {ratio}");
        let due = rate(ours).zip(rate(best)).map(|(ours, best)| ours / best);
        assert!((ratio["ratio"].as_f64().expect("a number") / due.expect("rates") - 1.0).abs() < 1e-9);
    }
}

/// The kernel's ext4 writes in these steps what jbd2 does: a descriptor, the changed metadata blocks, a
/// commit block between two flushes.
#[test]
fn the_baseline_is_held_against_the_kernels_ext4() {
    let arguments = [
        "bench",
        "validate",
        "--operations",
        "300",
        "--rounds",
        "1",
        "--workload",
        "varmail",
        "--workload",
        "ycsb-a",
    ];
    let Some(report) = report_of(&arguments) else { return };
    let rows = report["rows"].as_array().expect("a list");
    let row = |step: &str| rows.iter().find(|row| row["step"] == step).unwrap_or_else(|| panic!("{step}"));
    let count = |step: &str, field: &str| row(step)[field].as_f64().expect("a number");
    for side in ["kernel", "baseline"] {
        let [blocks, flushes] = [format!("{side}_blocks"), format!("{side}_flushes")];
        // One page in place and one flush, no journal.
        assert_eq!(count("overwrite 4 KiB, fdatasync", &blocks), 50.0, "{side}");
        assert_eq!(count("overwrite 4 KiB, fdatasync", &flushes), 50.0, "{side}");
        assert_eq!(count("create, fsync", &flushes), 100.0, "{side}");
        assert!(
            (300.0..=360.0).contains(&count("create, fsync", &blocks)),
            "{side}: {}",
            row("create, fsync")
        );
        assert!(
            count("1000 x create, write 4 KiB, one sync", &blocks) < 1250.0,
            "{side}: compound transactions"
        );
    }
    for workload in ["varmail", "ycsb-a"] {
        assert!(rows.iter().any(|row| row["step"].as_str().is_some_and(|step| step.starts_with(workload))));
    }
}

/// F2FS of Debian's kernel in a virtual machine, where somebody says by `AMPHI_TEST_KERNEL` where its package
/// is unpacked: the machine is emulated where KVM does not run it, and then takes minutes.
#[test]
fn the_baseline_is_held_against_f2fs_in_a_virtual_machine() {
    let Some(package) = std::env::var("AMPHI_TEST_KERNEL").ok().filter(|_| has_machine()) else {
        println!(
            "SKIPPED: AMPHI_TEST_KERNEL names no unpacked kernel package, or there is no QEMU or mkfs.f2fs"
        );
        return;
    };
    let arguments = ["bench", "validate", "--fs", "f2fs", "--machine", &package];
    let few = ["--operations", "100", "--rounds", "1"];
    let Some(report) = report_of(&[&arguments[..], &few].concat()) else { return };
    assert!(report["machine"].as_str().is_some_and(|about| about.contains("QEMU")), "{report}");
    let rows = report["rows"].as_array().expect("a list");
    let row = |step: &str| rows.iter().find(|row| row["step"] == step).unwrap_or_else(|| panic!("{step}"));
    for side in ["kernel", "baseline"] {
        let count =
            |step: &str, field: &str| row(step)[format!("{side}_{field}")].as_f64().expect("a number");
        // Fifty pages and their nodes, without a checkpoint.
        assert!((100.0..=115.0).contains(&count("append 4 KiB, fsync", "blocks")), "{side}: {report}");
        // A checkpoint each.
        assert!(count("rename, fsync directory", "blocks") >= 200.0, "{side}: {report}");
        assert!(count("1000 x create, write 4 KiB, one sync", "flash_bytes") > 4.096e6, "{side}: {report}");
    }
}

fn has_machine() -> bool {
    ["qemu-system-x86_64", "mkfs.f2fs", "busybox", "cpio"].iter().all(|program| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
    })
}
