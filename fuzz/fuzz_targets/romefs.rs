//! Fuzz target: RomeFS on a damaged memory zone, checked, mounted, walked, mended.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| amphi_hostile::romefs_image(input));
