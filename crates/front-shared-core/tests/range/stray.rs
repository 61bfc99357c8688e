//! Stray stores of a program into the range between its calls (AU-2).
#![allow(unsafe_code)]

use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_front_shared::layout::IMAGE_AT;
use amphi_front_shared::{Client, Protection};
use amphi_rt::random::Generator;
use amphi_vfs::{FileSystem, Ino};

use crate::rig::{READY, Rig, make, name, read, say_and_wait, write};

const STORES: u64 = 1000;

static FAULTS: AtomicU64 = AtomicU64::new(0);

/// The instruction at which a program goes on whose store has faulted: the handler puts it there.
extern "C" fn on_fault(_signal: c_int, _about: *mut libc::siginfo_t, context: *mut c_void) {
    FAULTS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the kernel passes the interrupted thread's registers. The only store that faults is that of
    // `store`, which keeps in r11 where it goes on.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        registers[libc::REG_RIP as usize] = registers[libc::REG_R11 as usize];
    }
}

/// Stores a byte, or faults.
fn store(address: u64) {
    // SAFETY: nothing: that is the point. In a range that is closed it changes nothing.
    unsafe {
        asm!("lea r11, [rip + 2f]", "mov byte ptr [{at}], 0xa5", "2:", at = in(reg) address, out("r11") _, options(nostack));
    }
}

pub fn store_astray(client: &Client, words: &[&str]) {
    // SAFETY: a handler that does what its comment says.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut()), 0);
    }
    let mut random = Generator::new(words[0].parse().expect("a seed"));
    let (base, memory_bytes, image_bytes) = client.range();
    for number in 0..STORES {
        // Half of them where most of what is in use lies: the header, the program and the first of the heap.
        let address = match number % 4 {
            0 => base + random.below(memory_bytes),
            1 => base + IMAGE_AT + random.below(image_bytes),
            _ => base + random.below(64 << 20),
        };
        store(address);
        if number % 100 == 0 {
            client.statfs().expect("the file system is unharmed");
        }
    }
    assert_eq!(FAULTS.load(Ordering::Relaxed), STORES, "each stray store faults");
    say_and_wait(READY);
}

pub fn nothing_is_harmed(place: u64, protection: Protection) {
    let rig = Rig::start("bytefs", place, protection);
    let client = rig.client();
    let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 7) as u8).collect();
    let file = make(&client, Ino::ROOT, "data").expect("a new name").attr.ino;
    write(&client, file, 0, &data).expect("room");
    client.fsync(file, false).expect("the device works");
    let mut other = rig.other("stray 5");
    other.await_line(READY);
    other.tell();
    other.end();
    assert_eq!(read(&client, file, data.len()), Ok(data));
    make(&client, Ino::ROOT, "more").expect("the file system works on");
    assert_eq!(client.lookup(Ino::ROOT, name("data")).expect("it is there").attr.ino, file);
    assert_eq!(rig.manager.ranges(), 1, "and it is the same range");
    drop(client);
    rig.manager.stop().expect("it is flushed and closed");
}
