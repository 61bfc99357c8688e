//! Calls that change what the process may do, or what its paths mean: the daemon knows it as it was when it
//! connected, so from then on the kernel is asked.
#![allow(unsafe_code)]

use libc::{c_char, c_int, gid_t, size_t, uid_t};

use crate::next::next;
use crate::{mounts, placeholder};

macro_rules! switch_off_after {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => {$(
        $(#[$doc])*
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            placeholder::make_all_real(true);
            mounts::switch_off();
            next!($name($($argument: $type),*) -> c_int)
        }
    )*};
}

switch_off_after! {
    /// See the module.
    setuid(uid: uid_t);
    /// See the module.
    seteuid(uid: uid_t);
    /// See the module.
    setreuid(ruid: uid_t, euid: uid_t);
    /// See the module.
    setresuid(ruid: uid_t, euid: uid_t, suid: uid_t);
    /// See the module.
    setfsuid(uid: uid_t);
    /// See the module.
    setgid(gid: gid_t);
    /// See the module.
    setegid(gid: gid_t);
    /// See the module.
    setregid(rgid: gid_t, egid: gid_t);
    /// See the module.
    setresgid(rgid: gid_t, egid: gid_t, sgid: gid_t);
    /// See the module.
    setfsgid(gid: gid_t);
    /// See the module.
    setgroups(count: size_t, groups: *const gid_t);
    /// See the module.
    initgroups(user: *const c_char, group: gid_t);
    /// See the module.
    capset(header: *mut libc::c_void, data: *const libc::c_void);
    /// See the module.
    chroot(path: *const c_char);
    /// See the module.
    unshare(flags: c_int);
    /// See the module.
    setns(fd: c_int, kind: c_int);
    /// A limit on the size of files is the kernel's to keep.
    setrlimit(resource: c_int, limit: *const libc::c_void);
    /// See above.
    setrlimit64(resource: c_int, limit: *const libc::c_void);
}
