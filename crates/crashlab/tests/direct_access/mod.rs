//! The bugs of what the file systems of PMFS's and NOVA's kind share: each has them, so each is looked at.

use amphi_crashlab::{Bound, Session};
use amphi_direct_access::planted::{BUGS, Bug, plant};

use crate::planting::Planting;

/// Each is found in the file system of this session.
pub fn planted_bugs_are_found(session: fn() -> Session, bound: fn(operations: usize) -> Bound) {
    let planted = [
        (Bug::MetadataNotFlushed, "create foo", "create foo"),
        (Bug::DataNotFlushed, "create foo\nwrite foo 0 20000", "write foo"),
        (Bug::OrphansNotFinished, "tmpfile foo", "tmpfile foo"),
    ];
    let planted = planted.map(|(bug, script, says)| (bug, script.to_owned(), says));
    Planting { session, bound, plant }.each_is_found(&BUGS, planted.into());
}
