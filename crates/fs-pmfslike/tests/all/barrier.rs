//! Stores that the device cannot take.

use amphi_device::{BlockPort, Lpa, PAGE_BYTES, Structure};
use amphi_direct_access::Medium;

use crate::shared;

/// The firmware fills a frame from flash for a store of a part of a page. Where flash cannot give the page
/// the barrier says so, also on a link whose fences wait for the device and tell nobody.
#[test]
fn a_barrier_tells_of_a_store_that_was_not_taken() {
    for profile in ["free", "mssd-cxl"] {
        let ssd = shared::ssd_of(profile, 16 << 20);
        let medium = Medium::new(&ssd);
        // More pages than there are frames: the first ones go to flash.
        for page in 0..1024 {
            ssd.write(Lpa(page), &[1; PAGE_BYTES], Structure::Data).expect("there is power");
        }
        assert!(ssd.spoil(Lpa(5)), "it is in flash");
        medium.store(Lpa(5).byte(8), &[2; 8], Structure::Data).expect("it is on its way");
        assert!(medium.barrier().is_err(), "{profile}: the store is lost and nobody knows");
    }
}
