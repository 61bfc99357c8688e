//! One command, from a program's arguments to an answer.

use amphi_queue::format::{Completion, Span, Submission, code};

use crate::errno::{Verdict, verdict};
use crate::threads;

/// Where the second path lies in a lane's payload area, and where data begin.
const SECOND_AT: u32 = 4096;
const DATA_AT: u32 = 8192;
/// Bytes of data that one command moves at the most: what the kernel gives FUSE in one request.
pub const DATA_BYTES_MAX: usize = (1 << 20) - DATA_AT as usize;

/// Bytes of a symbolic link's target, at the most.
pub const PATH_ROOM: usize = 4096;

/// A place: an open directory of the queue's, or 0 for the root, and a path from there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    /// Which mount.
    pub mount: usize,
    /// The queue's handle, or 0.
    pub handle: u64,
    /// Relative.
    pub path: &'a [u8],
}

/// What came of a command.
pub type Answer = Result<Completion, Verdict>;

/// Submits one command and waits. `fill` puts data into the data area, `empty` takes an answer out of it.
pub fn run(
    mount: usize,
    first: &[u8],
    second: &[u8],
    command: Submission,
    data: usize,
    fill: impl FnOnce(&amphi_queue::Payload<'_>),
    empty: impl FnOnce(&amphi_queue::Payload<'_>, &Completion),
) -> Answer {
    if first.len() > SECOND_AT as usize
        || second.len() > (DATA_AT - SECOND_AT) as usize
        || data > DATA_BYTES_MAX
    {
        return Err(Verdict::AskKernel);
    }
    let done = threads::with_lane(mount, |lane| {
        let payload = lane.payload();
        let part = |at, len| payload.part(at, len).ok_or(Verdict::AskKernel);
        part(0, first.len() as u32)?.put(first);
        part(SECOND_AT, second.len() as u32)?.put(second);
        let area = part(DATA_AT, data as u32)?;
        fill(&area);
        let submission = Submission {
            first: Span::new(0, first.len() as u32),
            second: Span::new(SECOND_AT, second.len() as u32),
            data: Span::new(DATA_AT, data as u32),
            ..command
        };
        // A daemon that has ended leaves a mount on which the kernel's answer is the right one.
        let completion = lane.exchange(submission).ok_or(Verdict::AskKernel)?;
        match completion.status.get() {
            code::DONE => {
                empty(&area, &completion);
                Ok(completion)
            }
            status => Err(verdict(status)),
        }
    });
    done.unwrap_or(Err(Verdict::AskKernel))
}

/// As [`run`], without data.
pub fn plain(mount: usize, first: &[u8], second: &[u8], command: Submission) -> Answer {
    run(mount, first, second, command, 0, |_| {}, |_, _| {})
}
