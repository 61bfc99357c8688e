//! Names the functions of the C library that the program has its own of (`src/replaced.rs`,
//! `src/allocated.rs`).

/// What the linker turns from `x` into `__wrap_x`.
const REPLACED: [&str; 18] = [
    "mmap",
    "mmap64",
    "munmap",
    "mprotect",
    "madvise",
    "malloc",
    "calloc",
    "realloc",
    "free",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
    "pthread_create",
    "syscall",
    "clock_gettime",
    "sched_yield",
    "nanosleep",
    "clock_nanosleep",
];

fn main() {
    for name in REPLACED {
        println!("cargo:rustc-link-arg-bins=-Wl,--wrap={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
