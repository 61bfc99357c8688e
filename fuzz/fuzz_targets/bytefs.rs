//! Fuzz target: ByteFS on damaged pages, checked, mounted, walked, mended.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| amphi_hostile::bytefs_image(input));
