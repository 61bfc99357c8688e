//! A program run by `amphi run` that works on many mounts at once.

use crate::accelerated::Agent;
use crate::rig::{Rig, can_mount};

/// More than the sixteen at which the library once stopped; the agent has room for 32 descriptors.
const MOUNTS: i64 = 20;

#[test]
fn a_program_reaches_all_mounts_by_their_queues() {
    if !can_mount() {
        return;
    }
    let rigs: Vec<Rig> = (0..MOUNTS).map(|_| Rig::new("64M")).collect();
    rigs.iter().for_each(Rig::mount);
    let mut agent = Agent::start(&rigs[0]);
    for (number, rig) in (0..).zip(&rigs) {
        let path = rig.on_mount("f");
        agent.number(&format!("open {number} {} 0", path.display()));
        assert_eq!(agent.number(&format!("write {number} {} 97", number + 1)), number + 1);
        assert_eq!(agent.number(&format!("sync {number}")), 0);
        assert_eq!(std::fs::read(&path).expect("it is there").len() as i64, number + 1);
    }
    let calls = agent.end();
    assert_eq!((calls["write"], calls["fsync"]), ((20, 0), (20, 0)), "all by queues: {calls:?}");
    rigs.iter().for_each(Rig::umount);
}
