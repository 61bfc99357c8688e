//! Where extended attributes are kept: one page per inode that has any, loaded by block at first use, updated
//! by bytes.
//!
//! The page holds a header and the attributes packed one after another. A change builds the new page, and
//! only the lines that differ travel, in one transaction with the inode.

use amphi_device::{BlockPort, Lpa, Structure, WriteLog};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;

use crate::base::Base;
use crate::commit::tx::Tx;
use crate::format::{LINE, LINES_PER_PAGE, PAGE, XattrHeader};
use crate::space::group_bits::Run;

/// What an inode knows of the page of its attributes.
#[derive(Default)]
pub struct Xattrs {
    /// The page; 0: there is none.
    pub lba: u32,
    /// The inode says otherwise on the device.
    pub moved: bool,
    /// The page as the device has it, once loaded.
    page: Option<Box<[u8; PAGE]>>,
    /// Lines of `page` that are known; of a page fresh from the allocator those behind are whatever was there
    /// before.
    lines_known: usize,
}

impl Xattrs {
    /// Attributes not yet loaded from page `lba`, or none.
    pub fn at(lba: u32) -> Self {
        Self { lba, ..Self::default() }
    }

    /// Pages taken.
    pub const fn pages(&self) -> u64 {
        (self.lba != 0) as u64
    }

    /// Reads the attributes.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn load<D: BlockPort + WriteLog>(&mut self, base: &Base<D>, ino: u32) -> Result<Attributes> {
        if self.lba == 0 {
            return Ok(Attributes::new());
        }
        let mut page = Box::new([0; PAGE]);
        base.read_metadata(Lpa(u64::from(self.lba)), &mut page[..], Structure::Inode).map_err(io_error)?;
        let attributes = XattrHeader::decode(&page, ino);
        let attributes =
            attributes.map_err(|error| Error::corrupt("inode", u64::from(ino), error.to_string()))?;
        self.page = Some(page);
        self.lines_known = LINES_PER_PAGE;
        Ok(attributes)
    }

    /// Blocks that storing these attributes takes, of an inode that has `known`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if they do not fit into one page, as on ext4.
    pub fn needs(attributes: &Attributes, known: Option<&Self>) -> Result<u64> {
        if !XattrHeader::fits(attributes) {
            return Err(Error::NoSpace);
        }
        Ok(u64::from(!attributes.is_empty() && known.is_none_or(|known| known.lba == 0)))
    }

    /// Adds to `tx` what makes the page hold these attributes. The inode is written afterwards.
    ///
    /// # Errors
    /// As [`needs`](Self::needs).
    pub fn store<D: BlockPort + WriteLog>(
        &mut self,
        ino: u32,
        attributes: &Attributes,
        tx: &mut Tx<'_, D>,
    ) -> Result<()> {
        if attributes.is_empty() {
            self.moved |= self.lba != 0;
            self.free(tx);
            return Ok(());
        }
        let mut page = Box::new([0; PAGE]);
        let used = XattrHeader::encode(&mut page, ino, attributes).ok_or(Error::NoSpace)?;
        if self.lba == 0 {
            self.lba = tx.allocate_block();
            self.moved = true;
        }
        self.write(page, used, tx);
        Ok(())
    }

    /// Adds the lines of the first `used` bytes of `page` that the device lacks to `tx`.
    fn write<D: BlockPort + WriteLog>(&mut self, mut page: Box<[u8; PAGE]>, used: usize, tx: &mut Tx<'_, D>) {
        let lines = used.div_ceil(LINE);
        for (i, line) in page.as_chunks::<LINE>().0.iter().enumerate().take(lines) {
            let at = i * LINE;
            let known = self.page.as_ref().filter(|_| i < self.lines_known);
            if known.is_none_or(|disk| disk[at..at + LINE] != line[..]) {
                tx.write(Lpa(u64::from(self.lba)).byte(at), line, Structure::Inode);
            }
        }
        if let Some(disk) = &self.page {
            page[lines * LINE..].copy_from_slice(&disk[lines * LINE..]);
        }
        self.page = Some(page);
        self.lines_known = self.lines_known.max(lines);
    }

    /// Frees the page, if there is one, when `tx` commits.
    pub fn free<D: BlockPort + WriteLog>(&mut self, tx: &mut Tx<'_, D>) {
        if self.lba != 0 {
            tx.free_blocks(Run { start: u64::from(std::mem::take(&mut self.lba)), len: 1 });
            (self.page, self.lines_known) = (None, 0);
        }
    }
}
