//! Copies of which no aligned 8 B are ever half there: not for another task, not if the process is killed.
//!
//! Lines are moved 16 B at a time, by moves that are one access each on a processor with AVX if they are
//! aligned to 16 B. The compiler is told nothing of them (`asm!`), as it would be allowed to move plain
//! copies byte by byte. What is left at both ends, and all of it elsewhere, goes by atomic words.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Image;

/// Bytes that are moved by one turn of the loop.
const LINE: usize = 64;

/// Which side of a copy is aligned to 16 B, and must not be torn.
enum Aligned {
    Source,
    Destination,
}

/// Which of `len` bytes at `at` of the image are moved by lines; none if it is not worth it, or the processor
/// does not promise.
fn lines(at: u64, len: usize) -> Range<usize> {
    let start = (at.next_multiple_of(16) - at) as usize;
    let count = len.saturating_sub(start) / LINE;
    if count > 1 && promises() { start..start + count * LINE } else { 0..0 }
}

#[cfg(target_arch = "x86_64")]
fn promises() -> bool {
    is_x86_feature_detected!("avx")
}

#[cfg(not(target_arch = "x86_64"))]
const fn promises() -> bool {
    false
}

/// # Safety
/// `len` is a multiple of [`LINE`], and not zero; both sides have so many bytes and do not overlap; the
/// aligned one is aligned to 16 B; the processor has AVX.
#[cfg(target_arch = "x86_64")]
unsafe fn move_lines(from: *const u8, to: *mut u8, len: usize, aligned: Aligned) {
    macro_rules! turns {
        ($load:literal, $store:literal) => {
            // SAFETY: the caller's promise. Accesses are inside of both sides.
            unsafe {
                std::arch::asm!(
                    "2:",
                    concat!($load, " {a}, [{from} + {at}]"),
                    concat!($load, " {b}, [{from} + {at} + 16]"),
                    concat!($load, " {c}, [{from} + {at} + 32]"),
                    concat!($load, " {d}, [{from} + {at} + 48]"),
                    concat!($store, " [{to} + {at}], {a}"),
                    concat!($store, " [{to} + {at} + 16], {b}"),
                    concat!($store, " [{to} + {at} + 32], {c}"),
                    concat!($store, " [{to} + {at} + 48], {d}"),
                    "add {at}, 64",
                    "cmp {at}, {len}",
                    "jb 2b",
                    a = out(xmm_reg) _,
                    b = out(xmm_reg) _,
                    c = out(xmm_reg) _,
                    d = out(xmm_reg) _,
                    from = in(reg) from,
                    to = in(reg) to,
                    at = inout(reg) 0_usize => _,
                    len = in(reg) len,
                    options(nostack),
                )
            }
        };
    }
    match aligned {
        Aligned::Source => turns!("movdqa", "movdqu"),
        Aligned::Destination => turns!("movdqu", "movdqa"),
    }
}

/// # Safety
/// It is not called: [`promises`] says so.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn move_lines(_: *const u8, _: *mut u8, _: usize, _: Aligned) {}

impl Image {
    /// The atomic words of `at..at + len`, which may begin and end within one, each with its address.
    fn words(&self, at: u64, len: usize) -> impl Iterator<Item = (u64, &AtomicU64)> {
        let first = at & !7;
        let count = (at + len as u64).div_ceil(8) - first / 8;
        let base = self.window(first, (count * 8) as usize);
        (0..count).map(move |number| {
            let word = base.wrapping_add((number * 8) as usize);
            // SAFETY: `window` checked all of the words; otherwise as in `word`.
            (first + number * 8, unsafe { AtomicU64::from_ptr(word.cast()) })
        })
    }

    /// Copies bytes out word by word, so that no aligned 8 B are ever seen half changed by
    /// [`store_words`](Self::store_words).
    pub(crate) fn load_words(&self, at: u64, into: &mut [u8]) {
        let lines = lines(at, into.len());
        if !lines.is_empty() {
            let (head, rest) = into.split_at_mut(lines.start);
            let (middle, tail) = rest.split_at_mut(lines.len());
            self.load_words(at, head);
            let from = self.window(at + lines.start as u64, middle.len());
            // SAFETY: `window` checked the source, `lines` its alignment and the processor.
            unsafe { move_lines(from, middle.as_mut_ptr(), middle.len(), Aligned::Source) };
            return self.load_words(at + lines.end as u64, tail);
        }
        for (place, word) in self.words(at, into.len()) {
            let bytes = word.load(Ordering::Acquire).to_le_bytes();
            let (from, to) = (at.max(place), (at + into.len() as u64).min(place + 8));
            into[(from - at) as usize..(to - at) as usize]
                .copy_from_slice(&bytes[(from - place) as usize..(to - place) as usize]);
        }
    }

    /// Stores bytes word by word: no aligned 8 B are ever half there, even if the process is killed, and
    /// bytes of one word that several tasks store do not undo each other.
    pub(crate) fn store_words(&self, at: u64, data: &[u8]) {
        self.touch(at & !7, ((at + data.len() as u64).next_multiple_of(8) - (at & !7)) as usize);
        let lines = lines(at, data.len());
        if !lines.is_empty() {
            self.store_words(at, &data[..lines.start]);
            let middle = &data[lines.clone()];
            let to = self.window(at + lines.start as u64, middle.len());
            // SAFETY: as in `load_words`, with the image as the destination.
            unsafe { move_lines(middle.as_ptr(), to, middle.len(), Aligned::Destination) };
            return self.store_words(at + lines.end as u64, &data[lines.end..]);
        }
        for (place, word) in self.words(at, data.len()) {
            let (from, to) = (at.max(place), (at + data.len() as u64).min(place + 8));
            let part = &data[(from - at) as usize..(to - at) as usize];
            if let Ok(whole) = part.try_into() {
                word.store(u64::from_le_bytes(whole), Ordering::Release);
                continue;
            }
            let merged = |old: u64| {
                let mut bytes = old.to_le_bytes();
                bytes[(from - place) as usize..(to - place) as usize].copy_from_slice(part);
                Some(u64::from_le_bytes(bytes))
            };
            let _always_some = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, merged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths and places around words and lines: what is stored is loaded, and what lies beside it stays.
    #[test]
    fn lines_and_what_is_left_at_both_ends_are_copied() {
        let image = Image::in_memory(8192).expect("memory");
        let data: Vec<u8> = (0..4096).map(|byte| (byte % 251) as u8).collect();
        for at in [0, 1, 7, 8, 9, 15, 16, 17, 60, 64, 2048, 2055] {
            for len in [0, 1, 8, 63, 64, 65, 127, 128, 129, 143, 144, 160, 191, 200, 1000, 4096] {
                image.write(0, &[0xee; 8192]);
                image.store_words(at, &data[..len]);
                let mut around = vec![0; at as usize + len + 16];
                image.load_words(0, &mut around);
                let (before, behind) = (at as usize, at as usize + len);
                assert!(around[..before].iter().all(|byte| *byte == 0xee), "before {len} bytes at {at}");
                assert_eq!(around[before..behind], data[..len], "{len} bytes at {at}");
                assert!(around[behind..].iter().all(|byte| *byte == 0xee), "behind {len} bytes at {at}");
                let mut again = vec![0; len];
                image.load_words(at, &mut again);
                assert_eq!(again, data[..len], "{len} bytes at {at}");
            }
        }
    }
}
