//! How long cleaning takes, in virtual time.

use amphi_device::{BlockPort, BytePortExt, Lpa, Structure, WriteLog};
use amphi_rt::{Sim, time};
use amphi_ssd::{Profile, Ssd};

const TAG: Structure = Structure::Data;

/// Pages that are stored to lie on one die after the other, and so will the new ones, of which the first is
/// on each die in turn. Wherever that is, every die reads and programs once for each batch, and none waits
/// long for another.
#[test]
fn a_batch_takes_a_read_and_a_program_wherever_its_pages_lie() {
    const BATCHES: u64 = 20;
    let profile = Profile::named("mssd-pcie3").expect("built in");
    let dies = profile.flash.channels * profile.flash.ways;
    let least = BATCHES * (profile.flash.read_ns + profile.flash.program_ns);
    let taken = |behind: u64| {
        let profile = profile.clone();
        Sim::new(1).run(move || {
            let ssd = Ssd::in_memory(&profile, 64 << 20);
            for page in 0..BATCHES * dies + behind {
                ssd.write(Lpa(page), &[1; 4096], TAG).expect("writes");
            }
            for page in 0..BATCHES * dies {
                ssd.persist(page * 4096, &[2; 64], None, TAG).expect("stores");
            }
            let start = time::now_ns();
            ssd.clean_log().expect("cleans");
            time::now_ns() - start
        })
    };
    let times: Vec<u64> = (0..dies).map(taken).collect();
    let (first, last) = (times.iter().min().expect("some"), times.iter().max().expect("some"));
    assert!(*first > least / 10 * 9, "{first} ns, but dies need {least}");
    assert!(*last < least / 2 * 3, "{times:?} ns, and dies need {least}");
}
