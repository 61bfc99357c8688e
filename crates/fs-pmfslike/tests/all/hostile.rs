//! Whatever the device holds, mounting, using and checking it ends in an answer or an error: no panic, no
//! loop, no memory without bounds. `AMPHI_SEED` replays one case.

use amphi_conformance::damaged;
use amphi_fs_pmfslike::PmfsLike;
use amphi_ssd::Ssd;

use crate::shared;

#[test]
fn damaged_images_are_answered_or_refused() {
    damaged::each_seed("amphi-fs-pmfslike", 600, 50_000, shared::damage_and_use::<PmfsLike<Ssd>>);
}
