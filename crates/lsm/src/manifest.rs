//! The manifest: which tables there are, written as a whole into one of two places in turn. The newer whole
//! one counts.
//!
//! A record of changes alone would be shorter. A table's record is 24 B and the table about 2 MB, so even
//! 10,000 tables are 240 KB for each that is added, and nothing has to be replayed.

use amphi_device::{BlockPort, Lpa, Structure};

use crate::format::{self, PAGE, Superblock, TableRecord};
use crate::{Error, Result};

const TAG: Structure = Structure::Pointer;

/// What the manifest says.
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    /// How often it was written.
    pub generation: u64,
    /// All changes up to this sequence number are in tables.
    pub flushed: u64,
    /// The number of the next table.
    pub next_number: u64,
    /// The tables.
    pub tables: Vec<TableRecord>,
}

impl Manifest {
    /// The newest that is whole. One that cannot be read may be the newest, and what only it names would be
    /// lost: so it is an error.
    ///
    /// # Errors
    /// [`Error::Damaged`] if none is; the device's.
    pub fn read<D: BlockPort>(device: &D, first: Lpa, superblock: &Superblock) -> Result<Self> {
        let mut newest: Option<Self> = None;
        for which in 0..2 {
            let mut bytes = vec![0; superblock.manifest_pages.get() as usize * PAGE];
            device.read(first.plus(superblock.manifest(which)), &mut bytes, TAG)?;
            let Some((header, tables)) = format::decode_manifest(superblock.salt.get(), &bytes) else {
                continue;
            };
            let generation = header.generation.get();
            if newest.as_ref().is_none_or(|newest| newest.generation < generation) {
                let (flushed, next_number) = (header.flushed.get(), header.next_number.get());
                newest = Some(Self { generation, flushed, next_number, tables });
            }
        }
        newest.ok_or(Error::Damaged { what: "both manifests", at: first.0 + superblock.manifest(0) })
    }

    /// Writes it with the next generation, beside the one that counts, and makes it durable.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for more tables than it has room for; the device's.
    pub fn write<D: BlockPort>(&mut self, device: &D, first: Lpa, superblock: &Superblock) -> Result<()> {
        let generation = self.generation + 1;
        let salt = superblock.salt.get();
        let bytes = format::encode_manifest(salt, generation, self.flushed, self.next_number, &self.tables);
        let limit = superblock.manifest_pages.get() as usize * PAGE;
        if bytes.len() > limit {
            return Err(Error::TooLarge { what: "the manifest", bytes: bytes.len(), limit });
        }
        device.write(first.plus(superblock.manifest(generation % 2)), &bytes, TAG)?;
        device.flush()?;
        self.generation = generation;
        Ok(())
    }
}
