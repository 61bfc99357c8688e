//! Which firmware stands on the media.

use std::sync::Arc;

use crate::ba_buffer::BaBuffer;
use crate::log::Log;
use crate::page_cache::PageCache;
use crate::protected::Protected;

/// The firmware's personality, with what it alone keeps.
#[derive(Debug)]
pub(crate) enum Personality {
    /// A transactional write log over the pages.
    Log(Arc<Log>),
    /// A cache of whole pages.
    PageCache(Arc<PageCache>),
    /// A memory area beside the pages: the host's, or the one of a file system that is the firmware.
    Memory(Box<Protected>),
    /// A buffer that pages are pinned onto.
    BaBuffer(Box<BaBuffer>),
}
