//! What Snappy takes for files of several sizes: the cost that experiments with `workloads/compress.toml`
//! charge (DevFS §5.4).
//!
//! The paper compresses photographs, which are compressed already; random bytes stand for them. Text of a
//! thousand words drawn at random shows what compressing takes that finds something. Prints the median of
//! many files, and how large the output is.
#![forbid(unsafe_code)]

use amphi_rt::random::Generator;
use amphi_rt::time;

/// Files of each size.
const FILES: usize = 301;
/// Different words of a text.
const WORDS: u64 = 1000;

fn random(chance: &mut Generator, file: &mut [u8]) {
    file.as_chunks_mut::<8>().0.iter_mut().for_each(|word| *word = chance.next().to_le_bytes());
}

fn text(chance: &mut Generator, file: &mut [u8]) {
    let mut rest = file;
    while !rest.is_empty() {
        let word = chance
            .below(WORDS)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .to_le_bytes()
            .map(|byte| b'a' + byte % 26);
        let length = (3 + usize::from(word[0]) % 6).min(rest.len());
        rest[..length].copy_from_slice(&word[..length]);
        rest[length - 1] = b' ';
        rest = &mut rest[length..];
    }
}

fn main() {
    println!("{:>8} {:>12} {:>12} {:>12} {:>12}", "of", "bytes", "ns a file", "ns a KB", "output");
    for (of, fill) in [("random", random as fn(&mut Generator, &mut [u8])), ("text", text)] {
        for size in [1, 4, 16, 64, 256].map(|kilobytes| kilobytes << 10) {
            let mut chance = Generator::new(size as u64);
            let mut output = vec![0; snap::raw::max_compress_len(size)];
            let mut encoder = snap::raw::Encoder::new();
            let mut file = vec![0; size];
            let mut times = Vec::with_capacity(FILES);
            let mut written = 0;
            for _ in 0..FILES {
                fill(&mut chance, &mut file);
                let began = time::now_ns();
                written = encoder.compress(&file, &mut output).expect("the output has room");
                times.push(time::now_ns() - began);
            }
            times.sort_unstable();
            let median = times[FILES / 2];
            println!("{of:>8} {size:>12} {median:>12} {:>12} {written:>12}", median / (size as u64 >> 10));
        }
    }
}
