//! Extended attributes: one metadata page, with a list of names and values as most formats have it.

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{Error, Result};
use amphi_volume::{attributes_bytes, decode_attributes, encode_attributes};

use crate::core::Core;
use crate::format::{Map, PAGE};
use crate::part::State;
use crate::tx::Tx;

/// Reads an inode's attributes.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn load<D: BlockPort + MemoryArea>(core: &Core<D>, state: &State) -> Result<Attributes> {
    let Some(page) = state.part.attributes_page.checked_sub(1) else { return Ok(Attributes::new()) };
    let damaged = || Error::corrupt("attribute page", u64::from(page), "the list makes no sense");
    if u64::from(page) >= core.layout.plan.pages {
        return Err(damaged());
    }
    core.meta.with(core.layout.page(page), PAGE, decode_attributes)?.ok_or_else(damaged)
}

/// Whether a page holds attributes.
///
/// # Errors
/// [`Error::Io`].
pub fn is_sound<D: BlockPort + MemoryArea>(core: &Core<D>, page: u32) -> Result<bool> {
    core.meta.with(core.layout.page(page), PAGE, |bytes| decode_attributes(bytes).is_some())
}

/// Stores all of an inode's attributes. A page was laid aside if they need one.
///
/// # Errors
/// [`Error::NoSpace`] if they do not fit a page.
pub fn store<D: BlockPort + MemoryArea>(
    tx: &mut Tx<'_, D>,
    state: &mut State,
    attributes: &Attributes,
) -> Result<()> {
    let page = state.part.attributes_page.checked_sub(1);
    if attributes.is_empty() {
        if let Some(page) = page {
            tx.free(Map::Pages, page.into(), 1);
            state.part.attributes_page = 0;
        }
        return Ok(());
    }
    if attributes_bytes(attributes) > PAGE {
        return Err(Error::NoSpace);
    }
    let page = match page {
        Some(page) => page,
        None => tx.page(false)?,
    };
    tx.ops.bytes(tx.core.layout.page(page), &encode_attributes(attributes));
    state.part.attributes_page = page + 1;
    Ok(())
}
