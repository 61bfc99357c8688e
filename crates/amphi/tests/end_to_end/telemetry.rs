//! What a mount says of its device: JSON with latencies, lines where there is no terminal, Prometheus over
//! HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use crate::rig::{Rig, amphi, amphi_ok, can_mount, complaint};

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Sends one request and returns the answer's head and body.
fn request(at: &str, text: &str) -> (String, String) {
    let mut stream = TcpStream::connect(at).expect("somebody listens");
    stream.write_all(text.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer, then the end");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

#[test]
fn prometheus_reads_a_mounts_counters() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    amphi_ok(&["mount", &rig.image(), &rig.mount_point(), "--metrics", "127.0.0.1:0"]);
    let info = json(&amphi_ok(&["info", &rig.mount_point(), "--json"]));
    let url = info["metrics"].as_str().expect("an address");
    let at =
        url.strip_prefix("http://").and_then(|url| url.strip_suffix("/metrics")).expect("a URL").to_owned();
    assert!(at.starts_with("127.0.0.1:"), "{at}");
    let scrape = || request(&at, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let commits = |page: &str| {
        let line = page.lines().find(|line| line.starts_with("amphi_commits_total ")).expect("a counter");
        line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number")
    };
    let (head, before) = scrape();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", before.len())), "{head}");
    for name in 0..20 {
        std::fs::write(rig.on_mount(&format!("file{name}")), b"contents").expect("written");
    }
    let (_, after) = scrape();
    assert!(commits(&after) >= commits(&before) + 20.0, "{} and {}", commits(&before), commits(&after));
    assert!(
        after.contains("amphi_command_device_seconds_bucket{path=\"vendor\",command=\"commit\""),
        "{after}"
    );
    assert!(request(&at, "GET / HTTP/1.1\r\n\r\n").0.starts_with("HTTP/1.1 404"));
    assert!(request(&at, "DELETE /metrics HTTP/1.1\r\n\r\n").0.contains("405"));
    let (head, body) = request(&at, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.contains("200 OK") && body.is_empty(), "{head}");
    // Whoever connects and leaves at once disturbs nobody.
    drop(TcpStream::connect(&at).expect("somebody listens"));
    assert!(scrape().0.contains("200 OK"));
    rig.umount();
    assert!(TcpStream::connect(&at).is_err(), "nobody listens any more");
}

#[test]
fn metrics_stay_on_this_machine_unless_told() {
    let rig = Rig::new("256M");
    let refused = amphi(&["mount", &rig.image(), &rig.mount_point(), "--metrics", "0.0.0.0:0"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(complaint(&refused).contains("--metrics-public"), "{}", complaint(&refused));
    let refused = amphi(&["mount", &rig.image(), &rig.mount_point(), "--metrics", "localhost"]);
    assert_eq!(refused.status.code(), Some(2));
    if can_mount() {
        let public = ["--metrics", "0.0.0.0:0", "--metrics-public"];
        amphi_ok(&[&["mount", &rig.image(), &rig.mount_point()], &public[..]].concat());
        let info = json(&amphi_ok(&["info", &rig.image(), "--json"]));
        assert!(info["metrics"].as_str().expect("an address").starts_with("http://0.0.0.0:"), "{info}");
        rig.umount();
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = taken.local_addr().expect("its address").to_string();
        let refused = amphi(&["mount", &rig.image(), &rig.mount_point(), "--metrics", &at]);
        assert!(complaint(&refused).contains("cannot be served"), "{}", complaint(&refused));
        assert!(!rig.is_mounted());
    }
}

#[test]
fn a_mount_tells_latencies_and_its_image_keeps_the_counters() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    amphi_ok(&["mount", &rig.image(), &rig.mount_point()]);
    std::fs::write(rig.on_mount("file"), vec![7; 100_000]).expect("written");
    std::fs::File::open(rig.on_mount("file")).expect("opens").sync_all().expect("synced");
    let mounted = json(&amphi_ok(&["stats", &rig.mount_point(), "--json"]));
    assert_eq!(mounted["schema"], 1);
    let latencies = mounted["device"]["latencies"].as_array().expect("a list");
    let write = latencies
        .iter()
        .find(|latency| {
            latency["path"] == "block" && latency["command"] == "write" && latency["structure"] == "data"
        })
        .unwrap_or_else(|| panic!("no data were written by block: {latencies:?}"));
    assert!(write["wait"]["p50_ns"].as_u64().expect("a number") >= 1000, "{write}");
    assert!(amphi_ok(&["stats", &rig.mount_point()]).contains("block write data"));

    let lines = amphi_ok(&["stats", &rig.mount_point(), "--watch", "--interval", "0.05", "--count", "3"]);
    assert!(lines.lines().count() == 3 && lines.lines().next().expect("a head").contains("WAF"), "{lines}");
    let objects =
        amphi_ok(&["stats", &rig.mount_point(), "--watch", "--json", "--interval", "0.05", "--count", "2"]);
    let uptimes: Vec<_> = objects.lines().map(|line| json(line)["device"]["uptime_ns"].as_u64()).collect();
    assert!(uptimes.len() == 2 && uptimes.is_sorted() && uptimes[0] > Some(0), "{uptimes:?}");

    rig.umount();
    let resting = json(&amphi_ok(&["stats", &rig.image(), "--json"]));
    assert_eq!(resting["device"]["latencies"], Value::Array(Vec::new()));
    assert!(resting["device"]["commits"].as_u64() >= mounted["device"]["commits"].as_u64());
    let blocks = |stats: &Value| -> u64 {
        let ranges = stats["device"]["erase_counts"].as_array().expect("a list");
        ranges.iter().map(|range| range["blocks"].as_u64().expect("a number")).sum()
    };
    assert!(blocks(&resting) > 0 && blocks(&resting) == blocks(&mounted), "wear is read from the image too");
}
