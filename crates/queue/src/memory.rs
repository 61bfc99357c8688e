//! The memory that both sides share, reached so that nothing the other side does there can be undefined here:
//! words are atomics, entries are copied by atomics, data by whole copies.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memmap2::{MmapMut, MmapOptions, MmapRaw};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::format::Header;
use crate::geometry::Geometry;
use crate::marks::Marks;

/// A mapping of the shared memory, with its geometry.
#[derive(Debug)]
pub struct Memory {
    map: MmapRaw,
    geometry: Geometry,
}

impl Memory {
    /// Memory of this process alone, with an empty queue in it: its client and its server are tasks of one
    /// program.
    ///
    /// # Errors
    /// There is no memory.
    pub fn private(geometry: Geometry) -> io::Result<Self> {
        let memory = Self { map: MmapMut::map_anon(geometry.bytes())?.into(), geometry };
        memory.begin();
        Ok(memory)
    }

    /// Maps `file`, which has the size that the geometry asks for and holds zeros, and begins an empty queue
    /// in it. The file must not become shorter while it is mapped (seal it).
    ///
    /// # Errors
    /// The file is too small or cannot be mapped.
    pub fn create(file: &impl AsRawFd, geometry: Geometry) -> io::Result<Self> {
        let map = MmapOptions::new().len(geometry.bytes()).map_raw(file)?;
        let memory = Self { map, geometry };
        memory.begin();
        Ok(memory)
    }

    /// Maps `file`, in which a server has begun a queue.
    ///
    /// # Errors
    /// The file cannot be mapped, holds no queue of this version, or is shorter than it says.
    pub fn attach(file: &impl AsRawFd) -> io::Result<Self> {
        let refuse = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let map = MmapRaw::map_raw(file)?;
        if map.len() < crate::format::PAGE {
            return Err(refuse("the shared memory is shorter than its header"));
        }
        let smallest = Geometry::new(1, crate::format::PAGE as u32).expect("one lane of one page");
        let unread = Self { map, geometry: smallest };
        let geometry = Geometry::of(&unread.entry::<Header>(0))
            .ok_or_else(|| refuse("the shared memory holds no queue of this version"))?;
        if unread.map.len() < geometry.bytes() {
            return Err(refuse("the shared memory is shorter than its header says"));
        }
        Ok(Self { geometry, ..unread })
    }

    fn begin(&self) {
        self.put_entry(0, &self.geometry.header());
    }

    /// How the memory is divided.
    #[must_use]
    pub const fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The word at byte `at`, which must be aligned and inside.
    pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.map.len());
        // A search may let the other side go on here.
        amphi_rt::task::point();
        // SAFETY: inside the mapping, which lives as long as `self`, and aligned, since mappings begin on
        // pages; both sides reach words as atomics only.
        unsafe { &*self.map.as_mut_ptr().add(at).cast::<AtomicU32>() }
    }

    fn eights(&self, at: usize, bytes: usize) -> &[AtomicU64] {
        assert!(at.is_multiple_of(8) && bytes.is_multiple_of(8) && at + bytes <= self.map.len());
        // SAFETY: as for `word`.
        unsafe { std::slice::from_raw_parts(self.map.as_mut_ptr().add(at).cast::<AtomicU64>(), bytes / 8) }
    }

    /// A copy of the structure at byte `at`, whose size is a multiple of 8.
    pub(crate) fn entry<T: FromBytes + FromZeros + IntoBytes>(&self, at: usize) -> T {
        let mut copy = T::new_zeroed();
        for (to, from) in copy.as_mut_bytes().chunks_exact_mut(8).zip(self.eights(at, size_of::<T>())) {
            to.copy_from_slice(&from.load(Ordering::Relaxed).to_ne_bytes());
        }
        copy
    }

    /// Puts a copy of `value`, whose size is a multiple of 8, at byte `at`.
    pub(crate) fn put_entry<T: IntoBytes + Immutable>(&self, at: usize, value: &T) {
        for (from, to) in value.as_bytes().as_chunks::<8>().0.iter().zip(self.eights(at, size_of::<T>())) {
            to.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
    }

    /// The payload area of a lane.
    #[must_use]
    pub fn payload(&self, lane: u32) -> Payload<'_> {
        let (at, len) = (self.geometry.payload_at(lane), self.geometry.payload_bytes() as usize);
        assert!(at + len <= self.map.len());
        // SAFETY: inside the mapping.
        Payload { start: unsafe { self.map.as_mut_ptr().add(at) }, len, memory: PhantomData }
    }
}

impl Marks {
    /// A table without any marks: 4 MB, which no stack should have to hold.
    pub(crate) fn none() -> Box<Self> {
        // SAFETY: it is made of atomic numbers alone, for which zero is a value.
        unsafe { Box::<Self>::new_zeroed().assume_init() }
    }
}

/// A part of the memory of both sides that holds names and data.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    start: *mut u8,
    len: usize,
    memory: PhantomData<&'a Memory>,
}

impl<'a> Payload<'a> {
    /// Memory that a client hands over with a command by another way than a queue: a call.
    ///
    /// # Safety
    /// For as long as `'a`, `len` bytes from `start` can be read and written, and nobody but the client and
    /// who carries out its command does.
    #[must_use]
    pub const unsafe fn over(start: *mut u8, len: usize) -> Self {
        Self { start, len, memory: PhantomData }
    }

    /// Where it begins, to be handed over.
    #[must_use]
    pub const fn start(&self) -> *mut u8 {
        self.start
    }

    /// Its bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part of `len` bytes from `at`; none if it is not inside.
    #[must_use]
    pub fn part(&self, at: u32, len: u32) -> Option<Self> {
        let (at, len) = (at as usize, len as usize);
        if at.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: inside of what `self` is.
        Some(Self { start: unsafe { self.start.add(at) }, len, memory: PhantomData })
    }

    /// Copies `from`, which fits, to the beginning.
    pub fn put(&self, from: &[u8]) {
        assert!(from.len() <= self.len, "{} bytes do not fit into {}", from.len(), self.len);
        // SAFETY: inside of the memory; `from` is memory of this program's own.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start, from.len()) }
    }

    /// Copies the beginning to `to`, which is no longer.
    pub fn take(&self, to: &mut [u8]) {
        assert!(to.len() <= self.len, "{} bytes were asked for of {}", to.len(), self.len);
        // SAFETY: inside of the memory; `to` is memory of this program's own.
        unsafe { std::ptr::copy_nonoverlapping(self.start, to.as_mut_ptr(), to.len()) }
    }

    /// A copy.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = vec![0; self.len];
        self.take(&mut copy);
        copy
    }

    /// The bytes themselves, for data that are copied from here and never looked at: the other side may
    /// change them meanwhile.
    #[must_use]
    pub(crate) fn data(&self) -> &'a [u8] {
        // SAFETY: memory that outlives `'a`. A client that stores here during its own command
        // races with one copy of bytes whose values decide nothing, as a program does that changes a buffer
        // while the kernel writes it.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// As [`data`](Self::data), to be filled.
    #[must_use]
    pub(crate) fn data_mut(&self) -> &'a mut [u8] {
        // SAFETY: as for `data`. A lane has one server thread at a time, which makes one such slice for each
        // command.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}
