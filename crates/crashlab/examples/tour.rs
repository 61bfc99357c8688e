//! One kind of workload, with the figures of the laboratory's speed:
//! `cargo run --release -p amphi-crashlab --example tour -- seq1 0 435`.

use amphi_crashlab::{Bound, Kind, Looking, Session, Tally, WorkloadId, subject};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let kind: Kind = words[0].parse().expect("a kind");
    let (from, to): (u64, u64) = (words[1].parse().expect("from"), words[2].parse().expect("to"));
    let bound = if words.get(3).is_some_and(|word| word == "exhaustive") {
        Bound::EXHAUSTIVE
    } else {
        Bound::SUBSETS
    };
    let session = Session::new(subject::named("bytefs").expect("known"), "free").expect("possible");
    let looking = Looking { bound, only: None, most_violations: 3, record: false };
    let start = amphi_rt::time::now_ns();
    let mut total = Tally::default();
    for number in from..to {
        let outcome = session.run(WorkloadId::new(kind, number), &looking);
        for violation in &outcome.violations {
            println!("{} [{}]: {}", violation.id, violation.operation, violation.what);
        }
        total.add(&outcome.tally);
    }
    let seconds = (amphi_rt::time::now_ns() - start) as f64 / 1e9;
    println!("{total:?} in {seconds:.1} s: {:.0} crashes/s", total.crashes() as f64 / seconds);
}
