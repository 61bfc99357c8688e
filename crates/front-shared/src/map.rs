//! A range as a client maps it: the shared memory and the SSD's image, at the addresses that they have in
//! every process.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::io;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
};

use crate::layout::{
    CONTEXTS, Context, Header, IMAGE_AT, MAGIC, MARKS_AT, MEMORY_BYTES, PAGE, PROGRAM_AT, context_at,
};
use crate::planted::{self, Bug};
use amphi_queue::Marks;

/// A mapped range. It is one process's: a child that `fork` makes has nothing at its addresses.
#[derive(Debug)]
pub(crate) struct Map {
    base: u64,
    image_bytes: u64,
    text: (u64, u64),
    /// A word that reads as zero in a child.
    own: *const AtomicU64,
}

// SAFETY: the addresses are good until it is dropped, and everything behind them that it touches is atomic.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

const fn at(address: u64) -> *mut c_void {
    address as usize as *mut c_void
}

impl Map {
    /// Maps a range, closed to nobody yet.
    ///
    /// # Errors
    /// Something else has its addresses, or there is no memory; [`io::Errno::PROTO`]: it is none of this
    /// version.
    pub(crate) fn attach(memory: &OwnedFd, image: &OwnedFd, base: u64, image_bytes: u64) -> io::Result<Self> {
        let read_write = ProtFlags::READ | ProtFlags::WRITE;
        let sharing = match planted::has(Bug::OwnCopy) {
            true => MapFlags::PRIVATE,
            false => MapFlags::SHARED,
        };
        let flags = MapFlags::FIXED_NOREPLACE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous page, of which nobody has a reference.
        let own = unsafe { mmap_anonymous(ptr::null_mut(), PAGE as usize, read_write, MapFlags::PRIVATE)? };
        let mut map = Self { base, image_bytes: 0, text: (0, 0), own: own.cast() };
        // SAFETY: the page is ours.
        unsafe { madvise(own, PAGE as usize, Advice::LinuxWipeOnFork)? };
        map.own_word().store(1, Ordering::Relaxed);
        // SAFETY: nothing that exists is replaced, so no reference can be to these addresses.
        unsafe { mmap(at(base), MEMORY_BYTES as usize, read_write, flags | sharing, memory.as_fd(), 0) }
            .inspect_err(|_| map.base = 0)?;
        let header = map.header();
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(io::Errno::PROTO);
        }
        map.text = (header.text_at.load(Ordering::Relaxed), header.text_bytes.load(Ordering::Relaxed));
        let (text, text_bytes) = (at(map.text.0), map.text.1 as usize);
        // SAFETY: whole pages of the mapping, which hold instructions and nothing that is written.
        unsafe { mprotect(text, text_bytes, MprotectFlags::READ | MprotectFlags::EXEC)? };
        let place = at(base + IMAGE_AT);
        // SAFETY: as for the memory.
        unsafe { mmap(place, image_bytes as usize, read_write, flags | MapFlags::SHARED, image.as_fd(), 0)? };
        map.image_bytes = image_bytes;
        for (start, bytes) in [(base, MEMORY_BYTES), (base + IMAGE_AT, image_bytes)] {
            for advice in [Advice::LinuxDontFork, Advice::LinuxDontDump] {
                // SAFETY: the mapping is ours; a child does not get it, which it learns from `own`.
                unsafe { madvise(at(start), bytes as usize, advice)? };
            }
        }
        Ok(map)
    }

    fn own_word(&self) -> &AtomicU64 {
        // SAFETY: a page of ours that is mapped as long as `self` lives.
        unsafe { &*self.own }
    }

    /// Whether this process is the one that has the mapping.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.own_word().load(Ordering::Relaxed) == 1
    }

    /// The header. The range is open.
    #[inline]
    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the first page of the range is mapped as long as `self` lives, and all of it is atomic.
        unsafe { &*at(self.base).cast::<Header>() }
    }

    /// Where a context is.
    #[inline]
    pub(crate) fn context(&self, number: usize) -> *mut Context {
        at(context_at(self.base, number % CONTEXTS)).cast()
    }

    /// The owner word of a context. The range is open.
    #[inline]
    pub(crate) fn owner(&self, number: usize) -> &AtomicU64 {
        // SAFETY: a context's page is mapped as long as `self` lives, and the word is atomic.
        unsafe { &(*self.context(number)).owner }
    }

    /// The parts of the range that hold data, with their bytes.
    fn data(&self) -> [(u64, u64); 3] {
        let after = self.text.0 + self.text.1;
        [
            (self.base, self.text.0 - self.base),
            (after, self.base + MEMORY_BYTES - after),
            (self.base + IMAGE_AT, self.image_bytes),
        ]
    }

    /// Lets nobody in this process, or everybody, read and write the range's data.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn set_closed(&self, closed: bool) -> io::Result<()> {
        let flags = if closed { MprotectFlags::empty() } else { MprotectFlags::READ | MprotectFlags::WRITE };
        for (start, bytes) in self.data() {
            // SAFETY: the mapping is ours. References into it live while it is open alone.
            unsafe { mprotect(at(start), bytes as usize, flags)? };
        }
        Ok(())
    }

    /// Puts the range's pages, instructions too, under a protection key.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn give_key(&self, key: u32) -> io::Result<()> {
        let set = |start: u64, bytes: u64, flags: i32| {
            // SAFETY: as in `set_closed`.
            let done = unsafe { libc::syscall(libc::SYS_pkey_mprotect, start, bytes, flags, key) };
            if done == 0 { Ok(()) } else { Err(io::Errno::NOMEM) }
        };
        for (start, bytes) in self.data() {
            set(start, bytes, libc::PROT_READ | libc::PROT_WRITE)?;
        }
        set(self.text.0, self.text.1, libc::PROT_READ | libc::PROT_EXEC)
    }

    /// The marks of what the kernel has been told. The range is open.
    pub(crate) fn marks(&self) -> &Marks {
        // SAFETY: a part of the range that is mapped as long as `self` lives, and all of it is atomic.
        unsafe { &*at(self.base + MARKS_AT).cast::<Marks>() }
    }

    /// Takes away everything but the header, the contexts and the marks, so that nothing of a dead range is
    /// kept, and its image is nobody's.
    pub(crate) fn withdraw(&self) {
        fence(Ordering::SeqCst);
        let first = self.base + PROGRAM_AT;
        for (start, bytes) in
            [(first, self.base + MEMORY_BYTES - first), (self.base + IMAGE_AT, self.image_bytes)]
        {
            // SAFETY: nobody of this process is inside, and nobody comes in: the range is dead. Nobody else
            // can take these addresses.
            let _without_it_the_memory_stays = unsafe {
                mmap_anonymous(
                    at(start),
                    bytes as usize,
                    ProtFlags::empty(),
                    MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
                )
            };
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if self.base != 0 && self.is_here() {
            // SAFETY: nobody has a reference any more. The image is unmapped if it was mapped.
            unsafe {
                let _was_mapped = munmap(at(self.base), MEMORY_BYTES as usize);
                if self.image_bytes > 0 {
                    let _was_mapped = munmap(at(self.base + IMAGE_AT), self.image_bytes as usize);
                }
            }
        }
        // SAFETY: as above.
        let _was_mapped = unsafe { munmap(self.own.cast_mut().cast(), PAGE as usize) };
    }
}
