//! Figures to draw, of made-up values: nothing here was measured.

use amphi_benchlab::figure::{Bar, Detail, Explanation, Figure, Group, Latency, SCHEMA};

fn bar(series: &str, ours: f64, published: Option<f64>) -> Bar {
    Bar { series: series.into(), ours, unit: None, published, note: None, details: Vec::new() }
}

/// Two: quotients on a logarithmic axis, and shares of many series on a linear one.
pub fn figures() -> Vec<Figure> {
    vec![quotients(), shares()]
}

fn quotients() -> Figure {
    let cases = [
        ("create", 5.931, Some(6.0)),
        ("delete", 1.04, Some(1.0)),
        ("mkdir", 2.2, None),
        ("rmdir", 1.9, None),
        ("varmail", 2.87, None),
        ("fileserver", 1.31, Some(2.2)),
        ("webproxy", 1.22, Some(1.3)),
        ("webserver", 0.97, Some(1.0)),
        ("oltp", 3.6, Some(4.1)),
    ];
    let groups = cases.map(|(label, ours, published)| {
        let mut other = bar("ByteFS", ours, published);
        other.note = published.map(|_| "section 5.2 of the paper, in its text".to_owned());
        other.details = vec![
            Detail { name: "operations a second".into(), value: 98_765.4 * ours, unit: "1/s".into() },
            Detail { name: "write amplification".into(), value: 1.25, unit: String::new() },
        ];
        if label == "create" {
            other.details[0].value = 98_765.4;
        }
        Group { label: label.into(), bars: vec![bar("Ext4-like", 1.0, None), other] }
    });
    Figure {
        schema: SCHEMA,
        name: "sample1".into(),
        title: "Throughput of file-system benchmarks".into(),
        question: "How much faster is a file system that writes small things by bytes than one that journals blocks, on the same SSD?".into(),
        claim: "6.0 x for create, delete about equal; fileserver 2.2 x, webproxy 1.3 x, OLTP 4.1 x".into(),
        claim_row: "6".into(),
        command: "amphi bench run sample1 --seed 1 --scale 0.01 --with-a-long-line-that-does-not-fit-on-a-phone".into(),
        seed: 1,
        scale: 0.01,
        unit: String::new(),
        logarithmic: true,
        method: "Made-up values, to see how a page looks.".into(),
        groups: groups.into(),
        refused: Vec::new(),
        differences: vec![Explanation {
            place: "fileserver / ByteFS".into(),
            ratio: Some(1.31 / 2.2),
            why: "a made-up reason of some length, so that one sees how a paragraph of it is broken into lines on a narrow screen and on a wide one".into(),
            ablations: Vec::new(),
        }],
        latencies: latencies(),
    }
}

fn latencies() -> Vec<Latency> {
    let of = |series: &str, operation: &str, p50_ns: u64| Latency {
        label: "varmail".into(),
        series: series.into(),
        operation: operation.into(),
        count: 40_123,
        mean_ns: p50_ns as f64 * 1.3,
        p50_ns,
        p95_ns: p50_ns * 3,
        p99_ns: p50_ns * 7,
        p999_ns: p50_ns * 40,
    };
    vec![
        of("Ext4-like", "fsync", 182_000),
        of("ByteFS", "fsync", 31_000),
        of("Ext4-like", "create", 9_100),
        of("ByteFS", "create", 12_400),
    ]
}

fn shares() -> Figure {
    let structures = ["data", "inodes", "directory entries", "bitmaps", "journal"];
    let groups = ["create", "mkdir", "delete"].iter().enumerate().map(|(at, label)| {
        let mut bars = Vec::new();
        for (system, factor) in [("Ext4-like", 1.0), ("ByteFS", 0.31)] {
            for (number, structure) in structures.iter().enumerate() {
                let ours = factor * (0.9 / (number + at + 1) as f64);
                let published = (structure == &"inodes").then_some(ours * 1.1);
                bars.push(bar(&format!("{system}, {structure}"), ours, published));
            }
        }
        Group { label: (*label).into(), bars }
    });
    Figure {
        schema: SCHEMA,
        name: "sample2".into(),
        title: "Traffic between host and SSD".into(),
        question: "How much less travels when small updates go by bytes?".into(),
        claim: "Metadata traffic up to 23.3 x less".into(),
        claim_row: "8, 9".into(),
        command: "amphi bench run sample2".into(),
        seed: 1,
        scale: 0.01,
        unit: "MB".into(),
        logarithmic: false,
        method: "Made-up values.".into(),
        groups: groups.collect(),
        refused: Vec::new(),
        differences: Vec::new(),
        latencies: Vec::new(),
    }
}
