//! Fuzz target: a sequence of commands, well-formed or not.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| amphi_hostile::commands(input));
