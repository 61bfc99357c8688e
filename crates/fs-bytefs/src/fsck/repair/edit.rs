//! Changing pages in memory: what a repair does is laid over the device page by page and written only once it
//! is known to help.

use amphi_volume::Bits;
use std::cell::RefCell;
use std::collections::BTreeSet;

use amphi_device::{BlockPort, BytePort, Error as DeviceError, Lpa, Structure, TxId, WriteLog};

use super::super::FsckError;
use super::super::finding::EntryAt;
use super::super::read::{Overlay, Page};
use super::super::state::State;
use crate::format::{
    DIRENT_HEADER, DirentHeader, INODE_BYTES, InodeLower, InodeUpper, LINE, Layout, OPTION_BYTES, PAGE,
    SUPER_STATE_OFFSET, SuperState, Superblock,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Bytes stored under one transaction; a repair that needs more takes several.
const TRANSACTION_BYTES: usize = 8 << 20;

/// Pages changed so far.
pub(super) struct Edit<'d, D> {
    device: &'d D,
    pub layout: Layout,
    pub overlay: Overlay,
    /// Pages in use on the device as it is. They are never taken, though the repair frees some: until its
    /// transaction commits, a power loss brings them back.
    in_use: Bits,
    /// Pages taken, which nothing on the device refers to yet.
    fresh: BTreeSet<u32>,
    /// Pages that the device could not read once. They are not asked for again: who was told that an inode
    /// cannot be read must not come to overwrite it.
    unreadable: RefCell<BTreeSet<u32>>,
}

impl<'d, D: BlockPort + WriteLog> Edit<'d, D> {
    pub fn new(device: &'d D, state: &State) -> Self {
        let in_use = state.claims.bits.clone();
        Self {
            device,
            layout: state.layout,
            overlay: Overlay::new(),
            in_use,
            fresh: BTreeSet::new(),
            unreadable: RefCell::default(),
        }
    }

    /// A page as it would be, to change; `None` if the device cannot read it.
    pub fn page(&mut self, page: u32) -> Result<Option<&mut Page>, FsckError> {
        if !self.overlay.contains_key(&page) {
            let Some(bytes) = self.read(page)? else { return Ok(None) };
            self.overlay.insert(page, bytes);
        }
        Ok(self.overlay.get_mut(&page).map(|bytes| &mut **bytes))
    }

    /// A page as it would be, to read only.
    pub fn look(&self, page: u32) -> Result<Option<Box<Page>>, FsckError> {
        match self.overlay.get(&page) {
            Some(bytes) => Ok(Some(bytes.clone())),
            None => self.read(page),
        }
    }

    fn read(&self, page: u32) -> Result<Option<Box<Page>>, FsckError> {
        if self.unreadable.borrow().contains(&page) {
            return Ok(None);
        }
        let mut bytes = Box::new([0; PAGE]);
        match self.device.read(Lpa(u64::from(page)), &mut bytes[..], Structure::Other) {
            Ok(()) => Ok(Some(bytes)),
            Err(DeviceError::Media(_)) => {
                self.unreadable.borrow_mut().insert(page);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes a page that nothing uses, filled with `bytes`. `None` if there is none.
    pub fn take_page(&mut self, state: &mut State, bytes: Box<Page>) -> Option<u32> {
        let page = state.free_page(&self.in_use)?;
        self.fresh.insert(page);
        self.overlay.insert(page, bytes);
        Some(page)
    }

    fn bytes_of(&mut self, ino: u32) -> Result<Option<&mut [u8]>, FsckError> {
        let (page, at) = self.layout.inode_page(ino);
        Ok(self.page(page as u32)?.map(|bytes| &mut bytes[at..at + INODE_BYTES]))
    }

    /// Both halves of an inode, each if it can be decoded.
    pub fn inode(&mut self, ino: u32) -> Result<(Option<InodeLower>, Option<InodeUpper>), FsckError> {
        let Some(bytes) = self.bytes_of(ino)? else { return Ok((None, None)) };
        Ok((InodeLower::decode(&bytes[..LINE], ino).ok(), InodeUpper::decode(&bytes[LINE..], ino).ok()))
    }

    /// Writes both halves of an inode.
    pub fn set_inode(&mut self, ino: u32, lower: InodeLower, upper: InodeUpper) -> Result<bool, FsckError> {
        let Some(bytes) = self.bytes_of(ino)? else { return Ok(false) };
        let mut new = [0; INODE_BYTES];
        new[..LINE].copy_from_slice(&lower.encode(ino));
        new[LINE..].copy_from_slice(&upper.encode(ino));
        let changes = bytes != new;
        bytes.copy_from_slice(&new);
        Ok(changes)
    }

    fn set_bit(&mut self, (page, bit): (u64, u64), on: bool) -> Result<bool, FsckError> {
        let Some(bytes) = self.page(page as u32)? else { return Ok(false) };
        let byte = &mut bytes[bit as usize / 8];
        let mask = 1 << (bit % 8);
        let changes = (*byte & mask != 0) != on;
        *byte = if on { *byte | mask } else { *byte & !mask };
        Ok(changes)
    }

    /// Marks an inode used.
    pub fn mark_inode(&mut self, ino: u32) -> Result<bool, FsckError> {
        self.set_bit(self.layout.inode_bit(ino), true)
    }

    /// Frees an inode, and blots it out, so that an entry which still names it does not make it look in use.
    pub fn free_inode(&mut self, ino: u32) -> Result<bool, FsckError> {
        let Some(bytes) = self.bytes_of(ino)? else { return Ok(false) };
        bytes.fill(0);
        self.set_bit(self.layout.inode_bit(ino), false)
    }

    /// Marks pages used or free.
    pub fn mark_pages(&mut self, first: u32, pages: u32, used: bool) -> Result<bool, FsckError> {
        let mut changes = false;
        for page in u64::from(first)..u64::from(first) + u64::from(pages) {
            changes |= self.set_bit(self.layout.block_bit(page), used)?;
        }
        Ok(changes)
    }

    /// Empties an orphan slot.
    pub fn clear_slot(&mut self, slot: u32) -> Result<bool, FsckError> {
        let per_page = (PAGE / 4) as u32;
        let Some(bytes) = self.page(self.layout.orphans + slot / per_page)? else { return Ok(false) };
        let at = (slot % per_page) as usize * 4;
        bytes[at..at + 4].fill(0);
        Ok(true)
    }

    /// Takes the mount options out of the superblock, which is sound otherwise.
    pub fn clear_mount_options(&mut self) -> Result<bool, FsckError> {
        let Some(bytes) = self.page(0)? else { return Ok(false) };
        let Ok((superblock, _)) = Superblock::mut_from_prefix(&mut bytes[..]) else { return Ok(false) };
        superblock.options = [0; OPTION_BYTES];
        superblock.crc = superblock.checksum().into();
        Ok(true)
    }

    /// Empties a slot of the data journal.
    pub fn clear_journal_slot(&mut self, slot: u32) -> Result<bool, FsckError> {
        let Some(bytes) = self.page(self.layout.journal)? else { return Ok(false) };
        let at = slot as usize * LINE;
        bytes[at..at + LINE].fill(0);
        Ok(true)
    }

    /// Writes the mount state anew: never mounted, not clean.
    pub fn reset_super_state(&mut self) -> Result<bool, FsckError> {
        let Some(bytes) = self.page(0)? else { return Ok(false) };
        bytes[SUPER_STATE_OFFSET..SUPER_STATE_OFFSET + LINE]
            .copy_from_slice(&SuperState::new_zeroed().encode());
        Ok(true)
    }

    /// Writes an entry's header; the name may follow it in the same line.
    pub fn set_header(&mut self, at: EntryAt, header: DirentHeader) -> Result<bool, FsckError> {
        let Some(bytes) = self.page(at.page)? else { return Ok(false) };
        let offset = usize::from(at.offset);
        bytes[offset..offset + DIRENT_HEADER].copy_from_slice(header.as_bytes());
        Ok(true)
    }

    /// An entry's header.
    pub fn header(&mut self, at: EntryAt) -> Result<Option<DirentHeader>, FsckError> {
        let Some(bytes) = self.page(at.page)? else { return Ok(None) };
        Ok(DirentHeader::read_from_prefix(&bytes[usize::from(at.offset)..]).ok().map(|(header, _)| header))
    }

    /// Makes an entry's space free.
    pub fn free_entry(&mut self, at: EntryAt) -> Result<bool, FsckError> {
        let Some(header) = self.header(at)? else { return Ok(false) };
        self.set_header(at, free_entry(usize::from(header.lines)))
    }

    /// Writes everything to the device: first, by block, the pages that nothing refers to yet, then the
    /// changed lines of the others under as few transactions as possible. Returns the bytes stored.
    pub fn write(&self) -> Result<u64, FsckError> {
        for page in &self.fresh {
            if let Some(bytes) = self.overlay.get(page) {
                self.device.write(Lpa(u64::from(*page)), &bytes[..], Structure::Other)?;
            }
        }
        self.device.flush()?;
        let mut transaction = Transaction { device: self.device, number: 1, pending: 0, total: 0 };
        for (page, new) in self.overlay.iter().filter(|(page, _)| !self.fresh.contains(page)) {
            let mut old = Box::new([0; PAGE]);
            self.device.read(Lpa(u64::from(*page)), &mut old[..], Structure::Other)?;
            let differs = |line: usize| old[line..line + LINE] != new[line..line + LINE];
            for line in (0..PAGE).step_by(LINE).filter(|&line| differs(line)) {
                transaction.store(Lpa(u64::from(*page)).byte(line), &new[line..line + LINE])?;
            }
        }
        transaction.commit()?;
        // Empties the log and its list of committed transactions, so that whoever comes next numbers from
        // one.
        self.device.recover()?;
        Ok(transaction.total)
    }
}

/// The header of `lines` free lines.
pub(super) fn free_entry(lines: usize) -> DirentHeader {
    DirentHeader { ino: 0.into(), file_type: 0, lines: lines as u8, name_bytes: 0.into() }
}

/// Stores that become durable together.
struct Transaction<'d, D> {
    device: &'d D,
    number: u32,
    pending: usize,
    total: u64,
}

impl<D: BytePort + WriteLog> Transaction<'_, D> {
    fn store(&mut self, at: u64, line: &[u8]) -> Result<(), FsckError> {
        if self.pending + line.len() > TRANSACTION_BYTES {
            self.commit()?;
        }
        self.device.store(at, line, TxId::new(self.number), Structure::Other)?;
        self.device.flush_lines(at, line.len());
        self.pending += line.len();
        self.total += line.len() as u64;
        Ok(())
    }

    fn commit(&mut self) -> Result<(), FsckError> {
        self.device.fence();
        self.device.verify_read()?;
        if let Some(number) = TxId::new(self.number) {
            self.device.commit(number)?;
        }
        self.number += 1;
        self.pending = 0;
        Ok(())
    }
}
