//! Calls that the queue knows nothing of, before which a placeholder becomes real.
//!
//! They take what arguments they like, some of them any number, so each is a few instructions that keep all
//! registers in which arguments come, let [`before`] see them, and go on to libc's own as if nothing had been
//! in between. For `vfork` and `clone` that is more than convenience: nothing of the library's may be on the
//! stack when they return twice.
#![allow(unsafe_code)]

use std::ffi::CStr;

use libc::{c_char, c_int, c_long, c_ulong, c_void};

use super::with_place;
use crate::next::Next;
use crate::pointers::may_be;
use crate::{descriptors, mounts, placeholder, process, unseen};

/// Where in a call's arguments descriptors are.
#[derive(Clone, Copy, Debug)]
enum Where {
    /// The arguments of the mask's bits are some.
    At(u8),
    /// As above, and contents are moved that the kernel has to know the end of.
    Contents(u8),
    /// The first is one; the second asks for something, perhaps how far it is to the end.
    Control,
    /// The first is one, of which records are locked.
    Locks,
    /// The first is a path, which may lead to one.
    Path,
    /// The first two are a list for `poll`.
    List,
    /// Anywhere.
    Anywhere,
    /// Another process gets all of them.
    Process,
    /// The program that takes this one's place gets all of them.
    Program,
    /// As for the system call whose number is first.
    Number,
}

/// A call, and libc's own.
pub(super) struct Passed {
    descriptors: Where,
    next: Next,
}

/// System calls that programs make by their number and that have nothing to do with files.
const HARMLESS: [c_long; 22] = [
    libc::SYS_futex,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    libc::SYS_getcpu,
    libc::SYS_membarrier,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setattr,
    libc::SYS_sched_getattr,
    libc::SYS_ioprio_set,
    libc::SYS_ioprio_get,
    libc::SYS_mbind,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    libc::SYS_prctl,
    libc::SYS_clock_gettime,
    libc::SYS_madvise,
];

/// Those that make a process.
const CHILDREN: [c_long; 4] = [libc::SYS_vfork, libc::SYS_clone, libc::SYS_clone3, libc::SYS_fork];

/// Makes a descriptor real. One that cannot be fails in the kernel.
fn make_or_fail(fd: c_int) {
    let _ = placeholder::make_real(fd);
}

/// The descriptors among a call's arguments.
fn at(arguments: &[usize; 6], mask: u8) -> impl Iterator<Item = c_int> {
    (0..6).filter(move |index| mask & 1 << index != 0).map(|index| arguments[index] as c_int)
}

/// Sees to placeholders; where the call goes on.
unsafe extern "C" fn before(arguments: &[usize; 6], passed: &Passed) -> *mut c_void {
    let contents = match passed.descriptors {
        Where::Contents(mask) => mask,
        Where::Control if arguments[1] as c_ulong == libc::FIONREAD => 1,
        // As libc's call of the name, a place further on.
        Where::Number => match arguments[0] as c_long {
            libc::SYS_sendfile => 0b110,
            libc::SYS_copy_file_range | libc::SYS_splice => 0b1010,
            libc::SYS_mmap => 0b10_0000,
            libc::SYS_ioctl if arguments[2] as c_ulong == libc::FIONREAD => 0b10,
            _ => 0,
        },
        _ => 0,
    };
    if contents != 0 {
        for fd in at(arguments, contents) {
            make_or_fail(fd);
            descriptors::let_kernel_know(fd);
        }
    }
    match passed.descriptors {
        Where::Number if arguments[0] as c_long == libc::SYS_rt_sigaction => mounts::mask_signals(),
        Where::Number if unseen::BEGINNINGS.contains(&(arguments[0] as c_long)) => placeholder::no_more(),
        Where::Number if arguments[0] as c_long == libc::SYS_fcntl => placeholder::no_more(),
        Where::Locks => placeholder::no_more(),
        _ => {}
    }
    if descriptors::has_placeholders() {
        let first = arguments[0];
        match passed.descriptors {
            Where::At(mask) => at(arguments, mask).for_each(make_or_fail),
            Where::Control | Where::Locks => make_or_fail(first as c_int),
            Where::Contents(_) => {}
            Where::Path if may_be(first as *const c_char, 1) => {
                // SAFETY: the program passes a path, which ends with a zero byte.
                let path = unsafe { CStr::from_ptr(first as *const c_char) }.to_bytes();
                with_place(libc::AT_FDCWD, path, |_| ());
            }
            Where::Path => {}
            Where::List if may_be(first as *const libc::pollfd, 1) => {
                // SAFETY: the program passes a list of so many.
                let list = unsafe { std::slice::from_raw_parts(first as *const libc::pollfd, arguments[1]) };
                list.iter().for_each(|polled| make_or_fail(polled.fd));
            }
            Where::List => {}
            Where::Number if HARMLESS.contains(&(first as c_long)) => {}
            Where::Anywhere | Where::Number | Where::Process | Where::Program => {
                placeholder::make_all_real(true);
            }
        }
    }
    let makes_child = match passed.descriptors {
        Where::Process => true,
        Where::Number => CHILDREN.contains(&(arguments[0] as c_long)),
        _ => false,
    };
    if makes_child {
        process::before_unheard_child();
    }
    if matches!(passed.descriptors, Where::Process | Where::Program) {
        descriptors::share_all();
    }
    if matches!(passed.descriptors, Where::Program) {
        mounts::leave();
    }
    passed.next.get()
}

/// Keeps what the program passed, asks [`before`] and goes on. The call is in `r11`.
#[unsafe(naked)]
unsafe extern "C" fn pass() {
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "sub rsp, 192",
        "mov [rsp], rdi",
        "mov [rsp + 8], rsi",
        "mov [rsp + 16], rdx",
        "mov [rsp + 24], rcx",
        "mov [rsp + 32], r8",
        "mov [rsp + 40], r9",
        "mov [rsp + 48], rax",
        "movaps [rsp + 64], xmm0",
        "movaps [rsp + 80], xmm1",
        "movaps [rsp + 96], xmm2",
        "movaps [rsp + 112], xmm3",
        "movaps [rsp + 128], xmm4",
        "movaps [rsp + 144], xmm5",
        "movaps [rsp + 160], xmm6",
        "movaps [rsp + 176], xmm7",
        "mov rdi, rsp",
        "mov rsi, r11",
        "call {before}",
        "mov r11, rax",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "mov rcx, [rsp + 24]",
        "mov r8, [rsp + 32]",
        "mov r9, [rsp + 40]",
        "mov rax, [rsp + 48]",
        "movaps xmm0, [rsp + 64]",
        "movaps xmm1, [rsp + 80]",
        "movaps xmm2, [rsp + 96]",
        "movaps xmm3, [rsp + 112]",
        "movaps xmm4, [rsp + 128]",
        "movaps xmm5, [rsp + 144]",
        "movaps xmm6, [rsp + 160]",
        "movaps xmm7, [rsp + 176]",
        "leave",
        "jmp r11",
        before = sym before,
    )
}

macro_rules! passed {
    ($($descriptors:expr => $($name:ident)*;)*) => {$($(
        /// See the module.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            static PASSED: Passed = Passed {
                descriptors: $descriptors,
                next: Next::new(match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => c"",
                }),
            };
            std::arch::naked_asm!("lea r11, [rip + {call}]", "jmp {pass}", call = sym PASSED, pass = sym pass)
        }
    )*)*};
}

passed! {
    Where::At(1) =>
        fdopen fchdir fstatfs fstatfs64 fstatvfs fstatvfs64 flock
        getdents64 mkfifoat mknodat futimesat scandirat scandirat64 name_to_handle_at open_by_handle_at
        posix_fadvise posix_fadvise64 readahead syncfs fpathconf isatty isfdtype tcgetattr ttyname ttyname_r
        dprintf vdprintf
        __dprintf_chk __vdprintf_chk vmsplice __read __write __lseek __pread64 __pwrite64 __fcntl;
    Where::At(0b10) => __fxstat __fxstat64;
    Where::Control => ioctl;
    Where::Locks => lockf lockf64;
    Where::Contents(0b11) => sendfile sendfile64 tee;
    Where::Contents(0b101) => splice;
    Where::At(0b100) => epoll_ctl;
    Where::At(0b1000) => fanotify_mark;
    Where::List => poll ppoll __poll_chk __ppoll_chk;
    Where::Path => fopen fopen64 realpath __realpath_chk canonicalize_file_name;
    Where::Anywhere =>
        select pselect sendmmsg aio_read aio_read64 aio_write aio_write64 aio_fsync aio_fsync64 lio_listio
        lio_listio64;
    Where::Process => vfork clone _Fork popen;
    Where::Program => execl execlp execle execveat;
    Where::Number => syscall;
}
