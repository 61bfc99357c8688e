//! Copies past the processor's caches: memory that flash is emulated in is cold, and what is programmed is
//! seldom read soon.

/// # Safety
/// `to` is aligned to 64 bytes, and as many bytes as `from` has may be written there that are not `from`'s
/// own.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn copy_past_caches(from: &[u8], to: *mut u8) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the caller's promise, and the processor has what it takes.
        return unsafe { copy_lines_past_caches(from, to) };
    }
    let (words, rest) = from.as_chunks::<16>();
    assert!(rest.is_empty(), "pages are copied");
    for (number, word) in words.iter().enumerate() {
        // SAFETY: loads are from `word`, unaligned; stores are inside the destination and aligned. SSE2 is
        // part of the architecture.
        unsafe { _mm_stream_si128(to.cast::<__m128i>().add(number), _mm_loadu_si128(word.as_ptr().cast())) }
    }
}

/// As [`copy_past_caches`], a whole line at a time: a line that comes in parts may leave in parts, which
/// takes memory longer where neighbouring pages are far apart, as they are in flash of many dies (49 and 41
/// µs for 1 MiB).
///
/// # Safety
/// As there; the processor has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn copy_lines_past_caches(from: &[u8], to: *mut u8) {
    use std::arch::x86_64::{__m512i, _mm512_loadu_si512, _mm512_stream_si512};
    let (lines, rest) = from.as_chunks::<64>();
    assert!(rest.is_empty(), "pages are copied");
    for (number, line) in lines.iter().enumerate() {
        // SAFETY: loads are from `line`, unaligned; stores are inside the destination and aligned.
        unsafe {
            _mm512_stream_si512(to.cast::<__m512i>().add(number), _mm512_loadu_si512(line.as_ptr().cast()));
        }
    }
}

/// Orders copies past the caches before all later stores.
#[cfg(target_arch = "x86_64")]
pub(super) fn order_copies() {
    // SAFETY: SSE is part of the architecture.
    unsafe { std::arch::x86_64::_mm_sfence() }
}

/// Copies were ordinary stores.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const fn order_copies() {}

/// # Safety
/// As many bytes as `from` has may be written at `to` that are not `from`'s own.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn copy_past_caches(from: &[u8], to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
}
