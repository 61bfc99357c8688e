//! Functions of the C library that do something else in a range: mappings come from the range, threads'
//! stacks too, waits end when the range dies, futexes are shared by processes, and clocks are read by the
//! calling process's own function.
//!
//! The linker puts these in the place of the library's functions (`build.rs`). Before the program is in its
//! range they are the library's.

use std::arch::asm;
use std::ffi::{c_int, c_long, c_void};
use std::mem::{MaybeUninit, transmute};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use amphi_front_shared::layout::{Context, IMAGE_AT};
use amphi_front_shared_core::range::{self, leave_if_dead, lent};
use amphi_rt::sync::{Condvar, Mutex};
use libc::{clockid_t, off_t, pthread_attr_t, pthread_t, timespec};

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Clock = extern "C" fn(clockid_t, *mut timespec) -> c_int;

unsafe extern "C" {
    fn __real_mmap(
        at: *mut c_void,
        bytes: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: off_t,
    ) -> *mut c_void;
    fn __real_munmap(at: *mut c_void, bytes: usize) -> c_int;
    fn __real_mprotect(at: *mut c_void, bytes: usize, protection: c_int) -> c_int;
    fn __real_madvise(at: *mut c_void, bytes: usize, advice: c_int) -> c_int;
    fn __real_pthread_create(
        thread: *mut pthread_t,
        how: *const pthread_attr_t,
        start: Start,
        with: *mut c_void,
    ) -> c_int;
    fn __real_clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int;
    fn __real_sched_yield() -> c_int;
}

fn is_in_range() -> bool {
    range::BASE.load(Ordering::Relaxed) != 0
}

fn fail(error: c_int) {
    // SAFETY: the address of this thread's error number.
    unsafe { *libc::__errno_location() = error };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_mmap(
    at: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let real = |at, flags| {
        // SAFETY: the caller's own arguments, but for a place that nobody has.
        unsafe { __real_mmap(at, bytes, protection, flags, fd, offset) }
    };
    if !is_in_range() || flags & libc::MAP_FIXED != 0 {
        return real(at, flags);
    }
    if flags & libc::MAP_ANONYMOUS != 0 {
        let Some(taken) = range::take_pages(bytes as u64) else {
            fail(libc::ENOMEM);
            return libc::MAP_FAILED;
        };
        return taken as *mut c_void;
    }
    if flags & libc::MAP_SHARED == 0 {
        return real(at, flags);
    }
    // A file that is mapped to be changed is the SSD's image: it goes where all processes have it.
    let place = (range::BASE.load(Ordering::Relaxed) + IMAGE_AT) as *mut c_void;
    let mapped = real(place, flags | libc::MAP_FIXED_NOREPLACE);
    if mapped == libc::MAP_FAILED {
        return mapped;
    }
    // SAFETY: the caller's descriptor; the copy is this program's for good.
    let kept = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    range::IMAGE.store(kept, Ordering::Relaxed);
    if let Some(header) = range::header() {
        header.image_bytes.store(bytes as u64, Ordering::Relaxed);
    }
    mapped
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_mmap64(
    at: *mut c_void,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the same function, where offsets have 64 bits anyway.
    unsafe { __wrap_mmap(at, bytes, protection, flags, fd, offset) }
}

/// Gives the memory of pages of the range back, in all processes: they read as zeros afterwards. Their
/// addresses stay taken.
fn give_back(at: *mut c_void, bytes: usize) -> c_int {
    // SAFETY: the caller gives up what the pages hold.
    unsafe { __real_madvise(at, bytes, libc::MADV_REMOVE) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_munmap(at: *mut c_void, bytes: usize) -> c_int {
    if range::has(at as u64) {
        return give_back(at, bytes);
    }
    // SAFETY: the caller's own arguments.
    unsafe { __real_munmap(at, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_mprotect(at: *mut c_void, bytes: usize, protection: c_int) -> c_int {
    if range::has(at as u64) {
        // One process's protections would say nothing about the others'.
        return 0;
    }
    // SAFETY: the caller's own arguments.
    unsafe { __real_mprotect(at, bytes, protection) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_madvise(at: *mut c_void, bytes: usize, advice: c_int) -> c_int {
    if range::has(at as u64) {
        return match advice {
            libc::MADV_DONTNEED | libc::MADV_FREE => give_back(at, bytes),
            _ => 0,
        };
    }
    // SAFETY: the caller's own arguments.
    unsafe { __real_madvise(at, bytes, advice) }
}

/// A thread that a client's call asks the manager to start: a thread of the client's would end with it.
struct Order {
    start: Start,
    with: *mut c_void,
    detached: c_int,
    stack_bytes: usize,
    answer: *const Answer,
}

// SAFETY: what it points to lies in the range, whose threads see it all, and is kept by who waits for the
// answer.
unsafe impl Send for Order {}

struct Answer {
    thread: AtomicU64,
    status: AtomicI32,
}

/// No answer yet.
const PENDING: i32 = -1;

static ORDERS: Mutex<Vec<Order>> = Mutex::new(Vec::new());
static ORDERED: Condvar = Condvar::named("an order for a thread");
static STARTED: Condvar = Condvar::named("an ordered thread");

/// Starts the thread that starts threads for clients' calls.
pub fn start_ordered_threads() {
    amphi_rt::task::spawn("ordered-threads", || {
        let mut orders = ORDERS.lock();
        loop {
            while let Some(order) = orders.pop() {
                let mut thread: pthread_t = 0;
                let status =
                    start_thread(&mut thread, order.start, order.with, order.detached, order.stack_bytes);
                // SAFETY: who ordered waits with the answer on its stack until the status is set, under the
                // lock that is held here.
                let answer = unsafe { &*order.answer };
                answer.thread.store(thread, Ordering::Relaxed);
                answer.status.store(status, Ordering::Release);
                STARTED.notify_all();
            }
            ORDERED.wait(&mut orders);
        }
    });
}

fn order_thread(order: impl FnOnce(*const Answer) -> Order) -> (pthread_t, c_int) {
    let answer = Answer { thread: AtomicU64::new(0), status: AtomicI32::new(PENDING) };
    let mut orders = ORDERS.lock();
    orders.push(order(&raw const answer));
    ORDERED.notify_one();
    while answer.status.load(Ordering::Acquire) == PENDING {
        STARTED.wait(&mut orders);
    }
    (answer.thread.load(Ordering::Relaxed), answer.status.load(Ordering::Acquire))
}

/// Starts a thread whose stack, and with it its control block, lies in the range.
fn start_thread(
    thread: &mut pthread_t,
    start: Start,
    with: *mut c_void,
    detached: c_int,
    stack_bytes: usize,
) -> c_int {
    let Some(stack) = range::take_pages(stack_bytes as u64) else { return libc::EAGAIN };
    let mut how = MaybeUninit::<pthread_attr_t>::uninit();
    // SAFETY: attributes that are made here and given up here; a stack that nobody else has; the caller's
    // function.
    unsafe {
        libc::pthread_attr_init(how.as_mut_ptr());
        libc::pthread_attr_setstack(how.as_mut_ptr(), stack as *mut c_void, stack_bytes);
        libc::pthread_attr_setdetachstate(how.as_mut_ptr(), detached);
        let started = __real_pthread_create(thread, how.as_ptr(), start, with);
        libc::pthread_attr_destroy(how.as_mut_ptr());
        started
    }
}

unsafe extern "C" {
    fn pthread_attr_getdetachstate(how: *const pthread_attr_t, detached: *mut c_int) -> c_int;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_pthread_create(
    thread: *mut pthread_t,
    how: *const pthread_attr_t,
    start: Start,
    with: *mut c_void,
) -> c_int {
    const STACK_BYTES: usize = 2 << 20;
    if !is_in_range() {
        // SAFETY: the caller's own arguments.
        return unsafe { __real_pthread_create(thread, how, start, with) };
    }
    let (mut detached, mut stack_bytes) = (libc::PTHREAD_CREATE_JOINABLE, STACK_BYTES);
    if !how.is_null() {
        // SAFETY: the caller's attributes, and places for what they say.
        unsafe {
            pthread_attr_getdetachstate(how, &mut detached);
            libc::pthread_attr_getstacksize(how, &mut stack_bytes);
        }
    }
    let stack_bytes = stack_bytes.max(STACK_BYTES);
    let (started, status) = if lent().is_some() {
        order_thread(|answer| Order { start, with, detached, stack_bytes, answer })
    } else {
        let mut started = 0;
        let status = start_thread(&mut started, start, with, detached, stack_bytes);
        (started, status)
    };
    // SAFETY: the caller passes a place for it.
    unsafe { *thread = started };
    status
}

fn raw_call(number: c_long, a: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: it is the caller's own system call.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a[0],
            in("rsi") a[1],
            in("rdx") a[2],
            in("r10") a[3],
            in("r8") a[4],
            in("r9") a[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result
}

fn returned(result: isize) -> c_long {
    if (-4095..0).contains(&result) {
        fail(-result as c_int);
        return -1;
    }
    result as c_long
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    if number != libc::SYS_futex || !is_in_range() {
        return returned(raw_call(number, [a, b, c, d, e, f]));
    }
    // Who sleeps and who wakes may be of different processes.
    let operation = b & !(libc::FUTEX_PRIVATE_FLAG as usize);
    let command = operation as c_int & libc::FUTEX_CMD_MASK;
    if !matches!(command, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET) || lent().is_none() {
        return returned(raw_call(number, [a, operation, c, d, e, f]));
    }
    returned(wait(a, operation, c, d as *const timespec))
}

/// How long a call of a client's sleeps before it looks whether the range has died, ns.
const LOOK_NS: i64 = 20_000_000;

fn now(clock: clockid_t) -> i64 {
    let mut time = timespec { tv_sec: 0, tv_nsec: 0 };
    __wrap_clock_gettime(clock, &mut time);
    ns(&time)
}

const fn ns(time: &timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

/// A wait on a futex in short sleeps: the process that would wake it may be dead.
fn wait(word: usize, operation: usize, value: usize, limit: *const timespec) -> isize {
    let command = operation as c_int & libc::FUTEX_CMD_MASK;
    let clock = match operation as c_int & libc::FUTEX_CLOCK_REALTIME {
        0 => libc::CLOCK_MONOTONIC,
        _ => libc::CLOCK_REALTIME,
    };
    // SAFETY: the caller passes a time or nothing.
    let until = unsafe { limit.as_ref() }.map(|limit| match command {
        libc::FUTEX_WAIT => now(clock).saturating_add(ns(limit)),
        _ => ns(limit),
    });
    loop {
        leave_if_dead();
        let left = until.map_or(LOOK_NS, |until| (until - now(clock)).clamp(0, LOOK_NS));
        let step = timespec { tv_sec: 0, tv_nsec: left };
        let waited = raw_call(
            libc::SYS_futex,
            [word, libc::FUTEX_WAIT as usize, value, &raw const step as usize, 0, 0],
        );
        let is_over = || until.is_some_and(|until| now(clock) >= until);
        if waited != -(libc::ETIMEDOUT as isize) || is_over() {
            return waited;
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    if let Some(context) = lent() {
        leave_if_dead();
        // SAFETY: the gate wrote the address of its process's function, which writes to the caller's place.
        return unsafe {
            let read: Clock = transmute::<u64, Clock>((*context.cast::<Context>()).clock);
            read(clock, time)
        };
    }
    // SAFETY: the caller's own arguments.
    unsafe { __real_clock_gettime(clock, time) }
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_sched_yield() -> c_int {
    leave_if_dead();
    // SAFETY: it has no conditions.
    unsafe { __real_sched_yield() }
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    leave_if_dead();
    let slept = raw_call(
        libc::SYS_clock_nanosleep,
        [clock as usize, flags as usize, time as usize, left as usize, 0, 0],
    );
    leave_if_dead();
    -slept as c_int
}

#[unsafe(no_mangle)]
extern "C" fn __wrap_nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    match __wrap_clock_nanosleep(libc::CLOCK_MONOTONIC, 0, time, left) {
        0 => 0,
        error => {
            fail(error);
            -1
        }
    }
}
