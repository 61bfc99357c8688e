//! One command on a file system, from arguments to an answer.

use std::io;

use amphi_queue::Payload;
use amphi_queue::format::{Completion, PATH_BYTES_MAX, Span, Submission, code};

use crate::errno::{errno, error};

/// Where the second name lies in a lane's payload area, and where data begin.
const SECOND_AT: u32 = PATH_BYTES_MAX as u32;
const DATA_AT: u32 = 2 * SECOND_AT;
/// Bytes of a lane's payload area.
pub const PAYLOAD_BYTES: u32 = 1 << 20;
/// Bytes of data that one command moves at the most.
pub const DATA_BYTES_MAX: usize = (PAYLOAD_BYTES - DATA_AT) as usize;

/// A command, its names and its data.
#[derive(Default)]
pub struct Request<'a> {
    /// The command, without its spans.
    pub command: Submission,
    /// A path.
    pub first: &'a [u8],
    /// Another path, or the name of an attribute.
    pub second: &'a [u8],
    /// What goes along, or where the answer goes.
    pub data: Data<'a>,
}

/// Data of a command, at most [`DATA_BYTES_MAX`].
#[derive(Default)]
pub enum Data<'a> {
    /// None.
    #[default]
    None,
    /// Data to write.
    Given(&'a [u8]),
    /// Room for an answer.
    Room(&'a mut [u8]),
}

impl Data<'_> {
    const fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Given(data) => data.len(),
            Self::Room(room) => room.len(),
        }
    }
}

impl Request<'_> {
    /// Lets `exchange` carry it out in a lane.
    ///
    /// # Errors
    /// What the answer says; a name is too long.
    pub fn carry_out(
        self,
        payload: Payload<'_>,
        exchange: impl FnOnce(Submission) -> io::Result<Completion>,
    ) -> io::Result<Completion> {
        let Self { command, first, second, mut data } = self;
        if first.len() > PATH_BYTES_MAX || second.len() > PATH_BYTES_MAX {
            return Err(error(libc::ENAMETOOLONG));
        }
        let part = |at, len: usize| {
            let span = Span::new(at, u32::try_from(len).map_err(|_| error(libc::EINVAL))?);
            let part = payload.part(at, span.len.get()).ok_or_else(|| error(libc::EINVAL))?;
            Ok::<_, io::Error>((span, part))
        };
        let (first_span, first_part) = part(0, first.len())?;
        let (second_span, second_part) = part(SECOND_AT, second.len())?;
        let (data_span, data_part) = part(DATA_AT, data.len())?;
        first_part.put(first);
        second_part.put(second);
        if let Data::Given(data) = data {
            data_part.put(data);
        }
        let completion =
            exchange(Submission { first: first_span, second: second_span, data: data_span, ..command })?;
        match completion.status.get() {
            code::DONE => {}
            status => return Err(error(errno(status))),
        }
        if let Data::Room(room) = &mut data {
            // Who answers is believed to be the mount's owner, not to be without error.
            let len = (completion.len.get() as usize).min(room.len());
            data_part.take(&mut room[..len]);
        }
        Ok(completion)
    }
}
