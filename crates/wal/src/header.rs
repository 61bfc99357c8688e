//! The log's header page: it makes a log, and says where its records begin.

use amphi_device::{BaBuffer, BlockDurability, Structure};

use crate::error::Result;
use crate::format::Header;
use crate::place::Place;

/// Makes an empty log, whatever was there.
///
/// # Errors
/// The place is not on the device, or part of it is pinned. The device's.
pub fn create<D: BaBuffer>(device: &D, place: &Place) -> Result<()> {
    place.check(device)?;
    write_header(device, place, &Header::new(amphi_rt::random::u64(), place.pages, 0, 0, 1))
}

/// Writes the header; on return it is durable.
pub(crate) fn write_header<D: BaBuffer>(device: &D, place: &Place, header: &Header) -> Result<()> {
    device.write(place.at, &header.page(), Structure::Journal)?;
    Ok(flush_if_volatile(device)?)
}

/// Makes completed block writes durable.
pub(crate) fn flush_if_volatile<D: BaBuffer>(device: &D) -> amphi_device::Result<()> {
    match device.contract().block_durability {
        BlockDurability::Completion => Ok(()),
        BlockDurability::Flush => device.flush(),
    }
}
