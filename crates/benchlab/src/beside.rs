//! Ways to one file system beside each other: what programs pay for reaching it through the kernel, by a
//! queue and in a range, beside what it takes as a library. And AugeFS beside ByteFS.

use std::fmt::Write as _;

use serde::Serialize;

use crate::interleave::Samples;
use crate::report::{LIBRARY, Line, MOUNTED, Peer, round_medians, times_longer};

/// The name of ours through the kernel, by the same programs as those by the queue.
pub const PATHS: &str = "fuse-paths";
/// The name of ours by the queue, with the kernel's descriptors.
pub const QUEUE: &str = "queue";
/// The name of ours by the queue, with placeholders.
pub const QUEUE_ALL: &str = "queue-all";
/// The name of ours in a range that processes share, with placeholders.
pub const RANGE_ALL: &str = "range-all";
/// The name of AugeFS as a library.
pub const AUGEFS: &str = "augefs";
/// The name of AugeFS in a range that processes share, with placeholders.
pub const AUGEFS_RANGE: &str = "augefs-range";
/// The name of DevFS by command buffers of the device, with placeholders.
pub const DEVFS_ALL: &str = "devfs-all";

/// Who is held against whom.
const PAIRS: [(&str, &str); 13] = [
    (MOUNTED, LIBRARY),
    (QUEUE, MOUNTED),
    (QUEUE, PATHS),
    (QUEUE, LIBRARY),
    (QUEUE_ALL, MOUNTED),
    (QUEUE_ALL, PATHS),
    (QUEUE_ALL, LIBRARY),
    (RANGE_ALL, MOUNTED),
    (RANGE_ALL, LIBRARY),
    (RANGE_ALL, QUEUE_ALL),
    (DEVFS_ALL, MOUNTED),
    (AUGEFS, LIBRARY),
    (AUGEFS_RANGE, AUGEFS),
];

/// One way beside another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// The way.
    pub peer: String,
    /// The other.
    pub other: String,
    /// How many times longer the other takes: the median of the quotients of the rounds' medians.
    pub p50: f64,
    /// The lowest quotient of one round's medians.
    pub min: f64,
    /// The highest.
    pub max: f64,
    /// What a call takes longer than by the other way, ns: the median of the differences of the rounds'
    /// medians.
    pub above_ns: i64,
}

/// All pairs of which both took part.
pub(crate) fn all(peers: &[Peer], samples: &[Samples]) -> Vec<Beside> {
    let of = |name: &str| {
        let at = peers.iter().position(|peer| peer.ours && peer.name == name)?;
        samples.get(at)
    };
    let beside = |(peer, other): &(&str, &str)| {
        let (ours, theirs) = (of(peer)?, of(other)?);
        let share = times_longer(theirs, ours)?;
        let difference = |(ours, theirs): (u64, u64)| ours as i64 - theirs as i64;
        let mut above: Vec<_> =
            round_medians(ours).into_iter().zip(round_medians(theirs)).map(difference).collect();
        above.sort_unstable();
        let above_ns = *above.get(above.len().checked_sub(1)? / 2)?;
        let (peer, other) = ((*peer).to_owned(), (*other).to_owned());
        Some(Beside { peer, other, p50: share.p50, min: share.min, max: share.max, above_ns })
    };
    PAIRS.iter().filter_map(beside).collect()
}

/// The lines as text: one for each way that a program has, under each operation.
#[must_use]
pub fn text(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines.iter().filter(|line| !line.beside.is_empty()) {
        let threads = if line.threads == 1 { "" } else { "s" };
        text += &format!("{}, {} thread{threads}\n", line.operation, line.threads);
        for outcome in &line.results {
            let mut pairs = line.beside.iter().filter(|beside| beside.peer == outcome.peer).peekable();
            let (Some(_), Some(rate)) = (pairs.peek(), outcome.per_second) else { continue };
            // A text takes whatever is written.
            let _ = write!(text, "  {:<10}{rate:>10.0}/s", outcome.peer);
            let scaling = outcome.scaling.map_or(String::new(), |scaling| format!("{scaling:.2} x one"));
            let _ = write!(text, " {scaling:<10}");
            for pair in pairs {
                let spread = format!("({:.2}-{:.2})", pair.min, pair.max);
                let above = pair.above_ns as f64 / 1e3;
                let what = format!("{} / it {:.2} {spread}, {above:+.2} us", pair.other, pair.p50);
                let _ = write!(text, "  {what:<44}");
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Operation;

    #[test]
    fn a_way_is_held_against_the_library_the_kernel_and_the_queue() {
        let names = [LIBRARY, MOUNTED, QUEUE_ALL, RANGE_ALL];
        let peer = |name: &&str| Peer {
            name: (*name).to_owned(),
            description: String::new(),
            ours: true,
            durable: true,
            trivial: false,
        };
        let peers: Vec<_> = names.iter().map(peer).collect();
        let samples = |rounds: [u64; 3], rate| Samples {
            rounds: rounds.map(|ns| vec![ns]).to_vec(),
            rates: vec![rate; 3],
            failure: None,
        };
        let all = [
            samples([1000, 1000, 2000], 9e5),
            samples([20_000, 30_000, 40_000], 4e4),
            samples([2000, 3000, 4000], 4e5),
            samples([1250, 1500, 2000], 7e5),
        ];
        let one = Line::of(Operation::Create, 1, &peers, &all);
        let pair = |peer: &str, other: &str| {
            let found = one.beside.iter().find(|beside| beside.peer == peer && beside.other == other);
            found.map(|beside| (beside.p50, beside.min, beside.max, beside.above_ns))
        };
        assert_eq!(pair(QUEUE_ALL, MOUNTED), Some((10.0, 10.0, 10.0, -27_000)));
        assert_eq!(pair(RANGE_ALL, LIBRARY), Some((0.8, 1000.0 / 1500.0, 1.0, 250)));
        assert_eq!(pair(RANGE_ALL, QUEUE_ALL), Some((2.0, 1.6, 2.0, -1500)));
        assert_eq!(pair(QUEUE, MOUNTED), None, "it took no part");
        let mut two = Line::of(Operation::Create, 2, &peers, &all);
        two.results[3].per_second = Some(1.19e6);
        two.scale(std::slice::from_ref(&one));
        let printed = text(&[one, two]);
        assert!(printed.contains("fuse / it 10.00 (10.00-10.00), -27.00 us"), "{printed}");
        assert!(printed.contains("1190000/s 1.70 x one"), "{printed}");
    }
}
