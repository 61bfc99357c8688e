//! The worked example of `docs/rt.md`, failing as the page shows.

use amphi_rt::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use amphi_rt::{Sim, task};

#[test]
#[should_panic(expected = "replay with: AMPHI_SEED=")]
fn no_slot_is_given_out_twice() {
    Sim::explore(0..1000).run(|| {
        let next = AtomicUsize::new(0);
        let take = || {
            let slot = next.load(SeqCst);
            next.store(slot + 1, SeqCst); // wrong: another task may have taken it in between
            slot
        };
        let (a, b) = task::scope(|scope| {
            let (a, b) = (scope.spawn("a", take), scope.spawn("b", take));
            (a.join(), b.join())
        });
        assert_ne!(a, b);
    });
}
