//! Extended attributes: one metadata page, with a list of names and values.
//!
//! `count (2 B) | { bytes of the name (1 B) | bytes of the value (2 B) | name | value } …`

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{Error, Result};

use crate::core::Core;
use crate::format::{Map, PAGE};
use crate::inode::State;
use crate::tx::Tx;

/// Bytes that a list takes.
pub fn bytes_of(attributes: &Attributes) -> usize {
    2 + attributes.iter().map(|(name, value)| 3 + name.len() + value.len()).sum::<usize>()
}

/// Reads an inode's attributes.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn load<D: BlockPort + MemoryArea>(core: &Core<D>, state: &State<D>) -> Result<Attributes> {
    let Some(page) = state.part.attributes_page.checked_sub(1) else { return Ok(Attributes::new()) };
    let damaged = || Error::corrupt("attribute page", u64::from(page), "the list makes no sense");
    if u64::from(page) >= core.layout.plan.pages {
        return Err(damaged());
    }
    core.meta.with(core.layout.page(page), PAGE, decode)?.ok_or_else(damaged)
}

/// Whether a page holds attributes.
///
/// # Errors
/// [`Error::Io`].
pub fn is_sound<D: BlockPort + MemoryArea>(core: &Core<D>, page: u32) -> Result<bool> {
    core.meta.with(core.layout.page(page), PAGE, |bytes| decode(bytes).is_some())
}

fn decode(bytes: &[u8]) -> Option<Attributes> {
    let (count, mut rest) = bytes.split_first_chunk()?;
    let mut attributes = Attributes::new();
    for _ in 0..u16::from_le_bytes(*count) {
        let ([name_bytes, low, high], behind) = rest.split_first_chunk()?;
        let (name, behind) = behind.split_at_checked(usize::from(*name_bytes))?;
        let (value, behind) = behind.split_at_checked(usize::from(u16::from_le_bytes([*low, *high])))?;
        attributes.push((name.to_vec(), value.to_vec()));
        rest = behind;
    }
    Some(attributes)
}

/// Stores all of an inode's attributes. A page was laid aside if they need one.
///
/// # Errors
/// [`Error::NoSpace`] if they do not fit a page.
pub fn store<D: BlockPort + MemoryArea>(
    tx: &mut Tx<'_, D>,
    state: &mut State<D>,
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
    if bytes_of(attributes) > PAGE {
        return Err(Error::NoSpace);
    }
    let page = match page {
        Some(page) => page,
        None => tx.page(false)?,
    };
    let mut bytes = Vec::with_capacity(bytes_of(attributes));
    bytes.extend((attributes.len() as u16).to_le_bytes());
    for (name, value) in attributes {
        bytes.push(name.len() as u8);
        bytes.extend((value.len() as u16).to_le_bytes());
        bytes.extend(name);
        bytes.extend(value);
    }
    tx.ops.bytes(tx.core.layout.page(page), &bytes);
    state.part.attributes_page = page + 1;
    Ok(())
}
