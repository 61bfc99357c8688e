// Both doors of a mount for the C programs of these tests: calls that no library sees, sums, and chance.
#pragma once
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

// A system call that no library sees; a negative errno if it fails.
static inline long raw(long number, long a, long b, long c, long d, long e) {
    long result;
#if defined(__x86_64__)
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = e;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth)
                     : "rcx", "r11", "memory");
#else
    result = syscall(number, a, b, c, d, e);
    if (result < 0) result = -errno;
#endif
    return result;
}

// The same, with what libc makes of the answer.
static inline long by_kernel(long number, long a, long b, long c, long d, long e) {
    long result = raw(number, a, b, c, d, e);
    if (result < 0) errno = -result, result = -1;
    return result;
}

// A sum of bytes that tells orders apart.
static inline unsigned long sum_of(const void *bytes, long len) {
    unsigned long sum = 0;
    for (long i = 0; i < len; i++) sum = sum * 31 + ((const unsigned char *)bytes)[i];
    return sum;
}

static __thread unsigned long state;

// What is drawn from here on depends on the seed alone.
static inline void begin(const char *seed) { state = strtoul(seed, NULL, 10) * 0x9e3779b97f4a7c15u + 1; }

// A number below.
static inline unsigned draw(unsigned below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state >> 11) % below;
}
