//! Ways to one file system beside each other: what programs pay for reaching it through the kernel, by a
//! queue and in a range, beside what it takes as a library. And AugeFS beside ByteFS.

use serde::Serialize;

use crate::peer::{
    AUGEFS, AUGEFS_RANGE, DEVFS_ALL, LIBRARY, MOUNTED, PATHS, Peer, QUEUE, QUEUE_ALL, RANGE_ALL, RANGE_KEYS,
};
use crate::samples::{Samples, round_medians, times_longer};

/// Who is held against whom.
const PAIRS: [(&str, &str); 15] = [
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
    (RANGE_KEYS, LIBRARY),
    (RANGE_KEYS, RANGE_ALL),
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
