//! What was judged already, so that nothing is judged twice: most workloads of a campaign pass through crash
//! points of others.
//!
//! Sequences of the same operations differ in their syncs, and most syncs find nothing to do. What can come
//! of a crash point is decided by four things and by nothing else: what the device holds, what it is about to
//! do, what is on its way, and what is legal. Where all four are those of an earlier point, the same states
//! would be made, would recover to the same, and would be judged the same.

use std::hash::{BuildHasher, Hash, Hasher};

use amphi_rt::sync::Mutex;
use amphi_ssd::Ssd;
use foldhash::fast::FixedState;
use hashbrown::HashSet;

use crate::oracle::Legal;
use crate::rig::{Next, Unit};

/// The crash points looked at so far, of workloads that share an origin.
#[derive(Debug, Default)]
pub struct Known(Mutex<HashSet<(u64, u64)>>);

impl Known {
    /// Notes a crash point, and answers whether it is new. `legal` and `point` are numbers that tell
    /// [what is legal](legal) and [the rest](point).
    pub fn is_new(&self, legal: u64, point: u64) -> bool {
        self.0.lock().insert((legal, point))
    }
}

/// A number that tells what is legal.
#[must_use]
pub fn legal(legal: &Legal) -> u64 {
    FixedState::with_seed(1).hash_one(legal)
}

/// A number that tells what the device holds, is about to do, and has on its way. `origin` is what the device
/// is a fork of.
#[must_use]
pub fn point(device: &Ssd, origin: &Ssd, next: &Next<'_>, units: &[Unit]) -> u64 {
    let mut hash = FixedState::with_seed(2).build_hasher();
    device.difference_from(origin).hash(&mut hash);
    next.hash(&mut hash);
    units.hash(&mut hash);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use amphi_device::{BytePortExt, Lpa, Structure};
    use amphi_ssd::Firmware;

    use super::*;
    use crate::rig::Port;
    use crate::subject::{self, Size};

    #[test]
    fn a_point_is_known_again_by_everything_that_decides_what_comes_of_it() {
        let origin = subject::device("free", Firmware::Log, Size::Small)
            .expect("a device")
            .forkable()
            .expect("forkable");
        let fork = || origin.fork_device().expect("a fork");
        let (one, same, other) = (fork(), fork(), fork());
        for (device, byte) in [(&one, 1), (&same, 1), (&other, 2)] {
            device.persist(Lpa(3).byte(64), &[byte; 64], None, Structure::Data).expect("stored");
        }
        let unit = Unit {
            port: Port::Bytes,
            at: 0,
            data: vec![7; 64],
            tx: None,
            tag: Structure::Data,
            atom: 8,
            buffered: false,
        };
        let longer = Unit { data: vec![7; 63], ..unit.clone() };
        let at = |device: &Ssd, next: Next<'_>, units: &[Unit]| point(device, &origin, &next, units);
        let first = at(&one, Next::Idle, &[]);
        assert_eq!(first, at(&same, Next::Idle, &[]));
        assert_ne!(first, at(&other, Next::Idle, &[]));
        assert_ne!(first, at(&one, Next::Arrival, &[]));
        assert_ne!(first, at(&one, Next::Idle, std::slice::from_ref(&unit)));
        assert_ne!(at(&one, Next::Idle, &[unit]), at(&one, Next::Idle, &[longer]));
        let known = Known::default();
        assert!(known.is_new(1, first) && known.is_new(2, first) && !known.is_new(1, first));
    }
}
