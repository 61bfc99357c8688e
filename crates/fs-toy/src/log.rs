//! How a change of the map becomes durable: as one record behind the last one. A record that is torn fails
//! its checksum and ends the log, so it counts as a whole or not at all. When a half of the device is full,
//! the other half begins with a record of the whole map, and then the superblock, which is one page, names
//! that half.

use std::sync::Arc;

use amphi_device::{BlockPort, Lpa, PAGE_BYTES, Structure};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::format::{RecordHeader, Superblock};

const HEADER: usize = size_of::<RecordHeader>();

/// The log of a device.
pub struct Log<D> {
    pub device: Arc<D>,
    pub superblock: Superblock,
    /// Page of the half where the next record goes.
    next: u64,
    /// Its number.
    number: u64,
}

type Result<T> = std::result::Result<T, amphi_device::Error>;

impl<D: BlockPort> Log<D> {
    /// The log that a superblock names, before its first record.
    pub const fn new(device: Arc<D>, superblock: Superblock) -> Self {
        Self { device, superblock, next: 0, number: 0 }
    }

    fn half_pages(&self) -> u64 {
        Superblock::half_pages(self.superblock.pages.get())
    }

    /// Bytes of a record that a half holds as its only one.
    pub fn record_bytes_max(&self) -> u64 {
        self.half_pages() * PAGE_BYTES as u64 - HEADER as u64
    }

    fn lpa(&self, page: u64) -> Lpa {
        Lpa(1 + (self.superblock.generation.get() & 1) * self.half_pages() + page)
    }

    /// Reads the next record's body. `None` where the log ends.
    ///
    /// # Errors
    /// The device fails.
    pub fn read(&mut self) -> Result<Option<Vec<u8>>> {
        if self.next == self.half_pages() {
            return Ok(None);
        }
        let mut bytes = vec![0; PAGE_BYTES];
        self.device.read(self.lpa(self.next), &mut bytes, Structure::Journal)?;
        let Ok((header, _)) = RecordHeader::read_from_prefix(&bytes) else { return Ok(None) };
        let len = HEADER + header.bytes.get() as usize;
        let pages = len.div_ceil(PAGE_BYTES) as u64;
        let due = (self.superblock.generation, self.number);
        if (header.generation, header.number.get()) != due || pages > self.half_pages() - self.next {
            return Ok(None);
        }
        bytes.resize(pages as usize * PAGE_BYTES, 0);
        self.device.read(self.lpa(self.next), &mut bytes, Structure::Journal)?;
        if header.crc.get() != header.checksum(&bytes[HEADER..len]) {
            return Ok(None);
        }
        self.next += pages;
        self.number += 1;
        bytes.truncate(len);
        Ok(Some(bytes.split_off(HEADER)))
    }

    /// Writes a record, which is durable then. False if this half has no room for it.
    ///
    /// # Errors
    /// The device fails.
    pub fn append(&mut self, body: &[u8]) -> Result<bool> {
        let pages = (HEADER + body.len()).div_ceil(PAGE_BYTES) as u64;
        if pages > self.half_pages() - self.next {
            return Ok(false);
        }
        let mut header = RecordHeader::new_zeroed();
        (header.generation, header.number) = (self.superblock.generation, self.number.into());
        header.bytes = (body.len() as u32).into();
        header.crc = header.checksum(body).into();
        let mut bytes = Vec::with_capacity(pages as usize * PAGE_BYTES);
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(body);
        bytes.resize(pages as usize * PAGE_BYTES, 0);
        self.device.write(self.lpa(self.next), &bytes, Structure::Journal)?;
        self.device.flush()?;
        self.next += pages;
        self.number += 1;
        Ok(true)
    }

    /// Begins anew in the other half, with a record of the whole map.
    ///
    /// # Errors
    /// The device fails, or the half is too small.
    pub fn begin_anew(&mut self, whole: &[u8]) -> Result<()> {
        let old = self.superblock.generation;
        self.superblock.generation = (old.get() + 1).into();
        (self.next, self.number) = (0, 0);
        if !self.append(whole)? {
            return Err(amphi_device::Error::NoSpace(
                "a half of the toy's log holds less than its map".into(),
            ));
        }
        self.write_superblock()
    }

    /// Writes page 0.
    ///
    /// # Errors
    /// The device fails.
    pub fn write_superblock(&self) -> Result<()> {
        self.device.write(Lpa(0), &self.superblock.encode(), Structure::Superblock)?;
        self.device.flush()
    }
}
