//! A small virtual machine with Debian's kernel on an exported SSD, for file systems that the running kernel
//! lacks, and so that figures do not depend on which kernel runs.
//!
//! The machine is QEMU's. Its memory file system holds busybox, the modules that the disk and the file system
//! need, and the program `amphi` with the libraries that it is linked with; so the steps in the machine are
//! the code that runs outside of it. Both ends talk by lines over a virtio port.
//!
//! - `wanted` what is to run in it
//! - `package` a kernel package of Debian's, unpacked: the kernel, and modules with what they depend on
//! - `ramdisk` the memory file system
//! - `qemu` the machine as a process, from power on to power off
//! - `guest` what the program does inside: steps, as it is told

mod guest;
mod package;
mod qemu;
mod ramdisk;
mod wanted;

pub use guest::serve;
pub(super) use guest::{ACT, BEGIN, DONE, FAILED, PREPARE, READY};
pub(super) use qemu::Machine;
pub(super) use wanted::Wanted;
