//! One io_uring with entries of the kernel's FUSE queues: the only place of this crate where memory is shared
//! with the kernel.
//!
//! An entry is memory for one request and its answer. It is registered with one of the kernel's queues, of
//! which every processor has one; a completion says that a request is in it, and committing the answer makes
//! it wait for the next one. Nothing but the kernel's work within our own system calls touches that memory
//! (`IORING_SETUP_DEFER_TASKRUN`), so between them it is ours.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use fuser::Errno;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use memmap2::{Advice, MmapMut, UncheckedAdvice};
use zerocopy::{FromBytes, IntoBytes};

use super::format::{Command, InHeader, OutHeader, RequestHeader};
use crate::answers::Answer;

/// Operations of `IORING_OP_URING_CMD` on a FUSE device.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Where in an entry's memory the two buffers are described that the kernel is told of, and how long that and
/// the first buffer are at most, in bytes.
const BUFFERS_AT: usize = 512;
const HEAD_BYTES: usize = 4096;
const _: () = assert!(size_of::<RequestHeader>() <= BUFFERS_AT && BUFFERS_AT + 32 <= HEAD_BYTES);

/// A huge page of x86-64 and of 64-bit ARM with small pages of 4 KiB, in bytes.
const HUGE_BYTES: usize = 2 << 20;

/// From so many bytes on a payload is worth a huge page: both copies, into it and out of it, look up one
/// address instead of one for each 4 KiB.
const LARGE_BYTES: usize = 128 << 10;

/// The kernel's `struct iovec`.
const IOVEC_BYTES: usize = 2 * size_of::<usize>();

/// Where a submission holds the number of buffers, in bytes.
const SQE_LEN_AT: usize = 24;
const _: () = assert!(size_of::<Entry128>() == 128);

/// What the kernel answers when the mount has ended.
const ENDED: [Errno; 3] = [Errno::ENOTCONN, Errno::ECONNABORTED, Errno::ENODEV];

/// Memory for one request of one of the kernel's queues.
struct Slot {
    qid: u16,
    /// Header, description of the buffers, payload. Pages that no request has needed yet take no memory.
    memory: MmapMut,
    /// Where the payload begins and how long it is, in bytes.
    payload_at: usize,
    payload: usize,
    pages: Pages,
}

/// What the payload lies in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    /// Small pages: most programs move no more than names.
    Small,
    /// Small pages until the next request that brings nothing, since there was a large one.
    HugeNext,
    /// A huge page, if the kernel has one.
    Huge,
}

/// Entries of some of the kernel's queues, served by one thread.
pub(crate) struct Queue {
    // First, so that the kernel is done with the memory before that goes.
    ring: IoUring<Entry128>,
    slots: Vec<Slot>,
}

impl Queue {
    /// An entry of each of the kernel's queues `qids`, with room for `payload` bytes; not yet known to the
    /// kernel. The thread that serves it may be another one.
    ///
    /// # Errors
    /// The kernel has no io_uring for us, or no memory.
    pub(crate) fn new(qids: &[u16], payload: usize) -> io::Result<Self> {
        let mut builder = IoUring::<Entry128>::builder();
        builder.setup_single_issuer().setup_defer_taskrun().setup_r_disabled();
        let ring = builder.build((qids.len().max(1) as u32).next_power_of_two())?;
        let slots = qids.iter().map(|&qid| Slot::new(qid, payload)).collect::<io::Result<_>>()?;
        Ok(Self { ring, slots })
    }

    /// Makes the kernel know the entries: from now on there can be requests in them, for the calling thread
    /// to [`serve`](Self::serve).
    ///
    /// # Errors
    /// The kernel has no memory. What it thinks of each entry is told by [`serve`](Self::serve).
    pub(crate) fn register(&mut self, device: BorrowedFd<'_>) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()?;
        self.ring.submitter().register_files(&[device.as_raw_fd()])?;
        for index in 0..self.slots.len() {
            let command = self.slots[index].registration(index);
            self.push(&command)?;
        }
        self.ring.submit().map(drop)
    }

    /// Passes requests to `serve` until the mount ends. `serve` gets header, operation, payload and the
    /// number of bytes in the payload, and returns the number of bytes of the answer there.
    ///
    /// # Errors
    /// The kernel refuses an entry.
    pub(crate) fn serve(
        &mut self,
        mut serve: impl FnMut(&InHeader, &[u8], &mut [u8], usize) -> Answer<usize>,
    ) -> io::Result<()> {
        let mut alive = self.slots.len();
        while alive > 0 {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => continue,
                Err(cause) => return Err(cause),
            }
            while let Some(completion) = self.next() {
                let index = completion.user_data() as usize;
                match completion.result() {
                    0 => {
                        let command = self.slots[index].answer(index, &mut serve);
                        self.push(&command)?;
                    }
                    result if ENDED.iter().any(|errno| errno.code() == -result) => alive -= 1,
                    result => return Err(io::Error::from_raw_os_error(-result)),
                }
            }
        }
        Ok(())
    }

    /// A completion that has not been seen yet.
    fn next(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    fn push(&mut self, command: &Entry128) -> io::Result<()> {
        // SAFETY: what the command points to is the memory of a slot, which stays where it is until the ring
        // is gone; nothing of it is borrowed while the kernel works, which it does in calls that borrow this
        // queue as a whole.
        unsafe { self.ring.submission().push(command) }
            .map_err(|_| io::Error::other("more commands than entries"))
    }
}

impl Slot {
    fn new(qid: u16, payload: usize) -> io::Result<Self> {
        let memory = MmapMut::map_anon(HEAD_BYTES + HUGE_BYTES + payload.next_multiple_of(HUGE_BYTES))?;
        let begin = memory.as_ptr() as usize;
        let payload_at = (begin + HEAD_BYTES).next_multiple_of(HUGE_BYTES) - begin;
        // A kernel without huge pages refuses: so much the better.
        let _ = memory.advise(Advice::NoHugePage);
        Ok(Self { qid, memory, payload_at, payload, pages: Pages::Small })
    }

    /// Has the payload, in which there must be nothing, lie in a huge page from now on.
    fn begin_huge(&mut self) {
        self.pages = Pages::Huge;
        let room = self.payload.next_multiple_of(HUGE_BYTES);
        if self.memory.advise_range(Advice::HugePage, self.payload_at, room).is_ok() {
            // SAFETY: the range is within this slot's own anonymous memory, borrowed by nobody; its bytes
            // become zero, and there was nothing in them.
            let emptied = unsafe {
                self.memory.unchecked_advise_range(UncheckedAdvice::DontNeed, self.payload_at, room)
            };
            if let Err(cause) = emptied {
                tracing::debug!("a payload stays in small pages: {cause}");
            }
        }
    }

    /// The command that makes the kernel use this entry.
    fn registration(&mut self, index: usize) -> Entry128 {
        let begin = self.memory.as_ptr() as usize;
        let buffers = [begin, size_of::<RequestHeader>(), begin + self.payload_at, self.payload];
        self.memory[BUFFERS_AT..BUFFERS_AT + 2 * IOVEC_BYTES].copy_from_slice(buffers.as_bytes());
        let described = opcode::UringCmd80::new(types::Fixed(0), REGISTER)
            .cmd(self.command(0))
            .addr(Some((begin + BUFFERS_AT) as u64))
            .build()
            .user_data(index as u64);
        // SAFETY: a submission is 128 bytes of plain data for the kernel, in both directions; `io_uring` has
        // no other way to give a command a length.
        unsafe {
            let mut bytes = std::mem::transmute::<Entry128, [u8; 128]>(described);
            bytes[SQE_LEN_AT..SQE_LEN_AT + 4].copy_from_slice(2_u32.as_bytes());
            std::mem::transmute::<[u8; 128], Entry128>(bytes)
        }
    }

    /// Has the request in this entry served; the command that commits the answer.
    fn answer(
        &mut self,
        index: usize,
        serve: &mut impl FnMut(&InHeader, &[u8], &mut [u8], usize) -> Answer<usize>,
    ) -> Entry128 {
        let (header, _) =
            RequestHeader::ref_from_prefix(&self.memory).expect("a page is large enough and aligned");
        let given = header.ring.payload_sz as usize;
        if self.pages == Pages::HugeNext && given == 0 {
            self.begin_huge();
        }
        let (head, payload) = self.memory.split_at_mut(self.payload_at);
        let payload = &mut payload[..self.payload];
        let (header, _) = RequestHeader::mut_from_prefix(head).expect("a page is large enough and aligned");
        let (request, _) = InHeader::read_from_prefix(&header.in_out).expect("it is shorter than its place");
        let (length, error) = match serve(&request, &header.op_in, payload, given) {
            Ok(length) => (length as u32, 0),
            Err(errno) => (0, -errno.code()),
        };
        let len = size_of::<OutHeader>() as u32 + length;
        if self.pages == Pages::Small && given.max(length as usize) >= LARGE_BYTES {
            self.pages = Pages::HugeNext;
        }
        let answer = OutHeader { len, error, unique: request.unique };
        header.in_out[..size_of::<OutHeader>()].copy_from_slice(answer.as_bytes());
        header.ring.payload_sz = length;
        let commit_id = header.ring.commit_id;
        opcode::UringCmd80::new(types::Fixed(0), COMMIT_AND_FETCH)
            .cmd(self.command(commit_id))
            .build()
            .user_data(index as u64)
    }

    fn command(&self, commit_id: u64) -> [u8; 80] {
        let mut bytes = [0; 80];
        let command = Command { flags: 0, commit_id, qid: self.qid, padding: [0; 6] };
        bytes[..size_of::<Command>()].copy_from_slice(command.as_bytes());
        bytes
    }
}
