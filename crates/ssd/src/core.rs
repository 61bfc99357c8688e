//! The firmware's state: everything that exists while the device has power.
//!
//! What outlives power is in the [`Image`](crate::image::Image); this holds the rest and is rebuilt from the
//! image at power-up.
//!
//! A host thread's stage is locked with nothing else.

use std::ops::Deref;
use std::sync::Arc;

use amphi_device::{Error, Result};

use crate::media::Media;
use crate::personality::Personality;
use crate::ports::Stages;

/// The firmware's state. All that is true of its [`Media`] is true of it.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) media: Arc<Media>,
    pub(crate) personality: Personality,
    pub(crate) stages: Stages,
}

impl Deref for Core {
    type Target = Media;

    fn deref(&self) -> &Media {
        &self.media
    }
}

impl Core {
    /// Refuses a byte range outside the window.
    pub(crate) fn check_bytes(&self, what: &'static str, at: u64, len: usize) -> Result<()> {
        match at.checked_add(len as u64) {
            Some(end) if end <= self.window_bytes() => Ok(()),
            _ => Err(Error::OutOfRange { what, at, len: len as u64, bytes: self.window_bytes() }),
        }
    }
}
