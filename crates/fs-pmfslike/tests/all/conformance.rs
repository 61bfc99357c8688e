//! It keeps what `vfs::FileSystem` promises, and answers random operations as the model does: with room, with
//! few inodes in memory, across remounts, and with several tasks.

use amphi_conformance::{check_all, check_read_only};
use amphi_rt::Sim;
use amphi_ssd::Ssd;

use crate::shared::{self, crash, remount};

type Fs = amphi_fs_pmfslike::PmfsLike<Ssd>;

fn roomy() -> Fs {
    shared::roomy()
}

fn cramped() -> Fs {
    shared::cramped()
}

#[test]
fn keeps_the_promises() {
    check_all(roomy);
    check_read_only(roomy, |fs| remount(fs, true));
    Sim::new(1).run(|| check_all(|| shared::make::<Fs>(64 << 20, 12_000, 3)));
}

amphi_conformance::random_tests!(seeds: 80, roomy, cramped, |fs| remount(fs, false), crash);

amphi_conformance::one_tree_tests!("amphi-fs-pmfslike", 0..80, |_| cramped());
