//! Reading the device in large, overlapping block commands, page by page to the caller, with pages that a
//! repair has changed laid over.

use std::collections::BTreeMap;

use amphi_device::{BlockPort, Completion, Error as DeviceError, Lpa, Structure};

use super::FsckError;
use crate::format::PAGE;

/// One page's bytes.
pub(super) type Page = [u8; PAGE];

/// Pages changed by a repair but not written yet, by page number.
pub(super) type Overlay = BTreeMap<u32, Box<Page>>;

/// Takes the index of a run, a page number, and the page or the media error that it has.
pub(super) type PageSink<'a> = dyn FnMut(usize, u32, Result<&Page, DeviceError>) + 'a;

/// Consecutive device pages to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub first: u32,
    pub pages: u32,
}

/// Pages read by one command at most, and all commands in flight together.
const COMMAND_PAGES: u32 = 256;
const WINDOW_PAGES: u32 = 1024;
const WINDOW_COMMANDS: usize = 64;

/// Reads pages of a device through an overlay.
pub(super) struct Reader<'d, D> {
    device: &'d D,
    overlay: &'d Overlay,
    buffer: Vec<u8>,
}

/// Part of a run that one command reads.
struct Piece {
    run: usize,
    first: u32,
    pages: u32,
}

impl<'d, D: BlockPort> Reader<'d, D> {
    pub fn new(device: &'d D, overlay: &'d Overlay) -> Self {
        Self { device, overlay, buffer: Vec::new() }
    }

    /// Reads all `runs` and calls `each` with the run's index, the page number and the page, in order. A page
    /// with a media error is passed as that error; any other failure of the device ends the reading.
    pub fn read(&mut self, runs: &[Run], tag: Structure, each: &mut PageSink<'_>) -> Result<(), FsckError> {
        let mut window: Vec<Piece> = Vec::with_capacity(WINDOW_COMMANDS);
        let mut pages = 0;
        for (run, &Run { first, pages: mut left }) in runs.iter().enumerate() {
            let mut first = first;
            while left > 0 {
                if pages == WINDOW_PAGES || window.len() == WINDOW_COMMANDS {
                    self.read_window(&window, tag, each)?;
                    window.clear();
                    pages = 0;
                }
                let take = left.min(COMMAND_PAGES).min(WINDOW_PAGES - pages);
                window.push(Piece { run, first, pages: take });
                (first, left, pages) = (first + take, left - take, pages + take);
            }
        }
        self.read_window(&window, tag, each)
    }

    fn read_window(
        &mut self,
        window: &[Piece],
        tag: Structure,
        each: &mut PageSink<'_>,
    ) -> Result<(), FsckError> {
        let bytes = window.iter().map(|piece| piece.pages as usize * PAGE).sum();
        if self.buffer.len() < bytes {
            self.buffer.resize(bytes, 0);
        }
        let mut rest = &mut self.buffer[..bytes];
        let mut tickets = Vec::with_capacity(window.len());
        for piece in window {
            let (mine, others) = rest.split_at_mut(piece.pages as usize * PAGE);
            rest = others;
            tickets.push(self.device.submit_read(Lpa(u64::from(piece.first)), mine, tag));
        }
        let outcomes: Vec<_> = tickets.into_iter().map(|t| t.and_then(Completion::wait)).collect();
        let mut rest = &mut self.buffer[..bytes];
        for (piece, outcome) in window.iter().zip(outcomes) {
            let (mine, others) = rest.split_at_mut(piece.pages as usize * PAGE);
            rest = others;
            let retry = match outcome {
                Ok(()) => false,
                Err(DeviceError::Media(_)) => true,
                Err(other) => return Err(other.into()),
            };
            for (page, bytes) in (piece.first..).zip(mine.as_chunks_mut::<PAGE>().0) {
                let outcome = match self.overlay.get(&page) {
                    Some(changed) => Ok(&**changed),
                    None if retry => match self.device.read(Lpa(u64::from(page)), bytes, tag) {
                        Err(DeviceError::Media(at)) => Err(DeviceError::Media(at)),
                        Err(other) => return Err(other.into()),
                        Ok(()) => Ok(&*bytes),
                    },
                    None => Ok(&*bytes),
                };
                each(piece.run, page, outcome);
            }
        }
        Ok(())
    }

    /// Reads one page.
    pub fn page(&mut self, page: u32, tag: Structure) -> Result<Result<Box<Page>, DeviceError>, FsckError> {
        let mut found = Ok(Box::new([0; PAGE]));
        self.read(&[Run { first: page, pages: 1 }], tag, &mut |_, _, bytes| {
            found = bytes.map(|bytes| Box::new(*bytes));
        })?;
        Ok(found)
    }
}
