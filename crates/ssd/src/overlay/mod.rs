//! What lies over the pages of a partition: where protected memory keeps newer bytes than flash. The write
//! log fills it; flash only asks which pages have any, and drops those of pages that are written or trimmed
//! whole.

mod chunks;
mod skiplist;

pub(crate) use chunks::Chunk;
pub(crate) use skiplist::PageIndex;
