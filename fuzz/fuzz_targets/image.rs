//! Fuzz target: a damaged image of an SSD, opened and used.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| amphi_hostile::image(input));
