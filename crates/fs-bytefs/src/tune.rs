//! Changing an unmounted file system's superblock: its label, UUID and default mount options, and its size,
//! which can grow.
//!
//! Each is one transaction, after the device has recovered: a crash leaves the old superblock or the new one.
//! Growing needs no more than that, because new allocation groups bring their bitmaps and inodes with them;
//! nothing moves.

use amphi_device::{BlockPort, Lpa, Structure, TxId, WriteLog};
use zerocopy::IntoBytes;

use crate::format::{AG_PAGES, LABEL_BYTES, LINE, Layout, OPTION_BYTES, PAGE, Superblock};
use crate::mount::{Info, MountError, read_super, recognise, write_block_bitmap};
use crate::options::MountOptions;

pub use amphi_volume::Changes;

/// What growing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    /// Bytes before.
    pub before: u64,
    /// Bytes now.
    pub after: u64,
}

/// Changes what the superblock says of the file system on `device`, which nobody uses meanwhile.
///
/// # Errors
/// [`MountError::Unsuitable`] if a label or options are too long, [`MountError::Options`];
/// [`MountError::Format`], [`MountError::Device`].
pub fn tune<D: BlockPort + WriteLog>(device: &D, changes: &Changes) -> Result<Info, MountError> {
    let unsuitable = |why: String| Err(MountError::Unsuitable(why));
    recognise(device)?;
    if changes.label.as_ref().is_some_and(|label| label.len() > LABEL_BYTES) {
        return unsuitable(format!("the label is longer than {LABEL_BYTES} bytes"));
    }
    if let Some(options) = &changes.options {
        if options.len() > OPTION_BYTES {
            return unsuitable(format!("the mount options are longer than {OPTION_BYTES} bytes"));
        }
        MountOptions::default().set_all(options).map_err(MountError::Options)?;
    }
    device.recover()?;
    let (mut sb, state) = read_super(device)?;
    if let Some(label) = &changes.label {
        sb.label = padded(label);
    }
    if let Some(uuid) = changes.uuid {
        sb.uuid = uuid;
    }
    if let Some(options) = &changes.options {
        sb.options = padded(options);
    }
    commit(device, sb, &[])?;
    Ok(Info::of(&sb, &state))
}

fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    bytes
}

/// Lets the file system on `device`, which nobody uses meanwhile, grow to `pages` pages, or to all that the
/// device has. A rest that is too short for an allocation group is left.
///
/// # Errors
/// [`MountError::Unsuitable`] if it has more pages already, or the device or a file system has no room for as
/// many; [`MountError::Format`], [`MountError::Device`].
pub fn grow<D: BlockPort + WriteLog>(device: &D, pages: Option<u64>) -> Result<Grown, MountError> {
    recognise(device)?;
    device.recover()?;
    let (mut sb, _) = read_super(device)?;
    let old = sb.layout();
    let most = u64::from(u32::MAX);
    let room = device.capacity_pages().min(most);
    let pages = pages.unwrap_or_else(|| room.max(old.pages));
    let bytes = |pages: u64| pages * PAGE as u64;
    if pages < old.pages {
        let (now, wanted) = (bytes(old.pages), bytes(pages));
        return Err(MountError::Unsuitable(format!(
            "it has {now} bytes and would be cut to {wanted}; a ByteFS can grow but not shrink"
        )));
    }
    if pages > room {
        let limit = if pages > most { "a ByteFS has at most" } else { "the device has" };
        return Err(MountError::Unsuitable(format!("{limit} {} bytes, fewer than asked for", bytes(room))));
    }
    let new = old.grown(pages);
    for ag in old.ags()..new.ags() {
        write_block_bitmap(device, &new, ag)?;
        for page in new.inode_bitmap(ag)..new.inode_table(ag) {
            device.write(Lpa(page), &[0; PAGE], Structure::Bitmap)?;
        }
    }
    device.flush()?;
    let stores = clear_bits(device, &old)?;
    sb.set_layout(&new);
    commit(device, sb, &stores)?;
    Ok(Grown { before: bytes(old.pages), after: bytes(new.pages) })
}

/// Lines to be stored at these byte addresses.
type Lines = Vec<(u64, [u8; LINE])>;

/// What clears the bits behind the end of the last allocation group, which mean nothing so far.
fn clear_bits<D: BlockPort>(device: &D, layout: &Layout) -> Result<Lines, MountError> {
    let used = (layout.pages % AG_PAGES) as usize;
    let mut lines = Lines::new();
    if used == 0 {
        return Ok(lines);
    }
    let at = Lpa(layout.block_bitmap(layout.ags() - 1));
    let mut page = Box::new([0; PAGE]);
    device.read(at, &mut page[..], Structure::Bitmap)?;
    let mut cleared = page.clone();
    cleared[used.div_ceil(8)..].fill(0);
    if !used.is_multiple_of(8) {
        cleared[used / 8] &= (1 << (used % 8)) - 1;
    }
    for from in (0..PAGE).step_by(LINE).filter(|&from| page[from..from + LINE] != cleared[from..from + LINE])
    {
        let mut line = [0; LINE];
        line.copy_from_slice(&cleared[from..from + LINE]);
        lines.push((at.byte(from), line));
    }
    Ok(lines)
}

/// Writes the superblock, with its checksum renewed, and `lines` in one transaction. The device has just
/// recovered, so the number is free.
fn commit<D: WriteLog>(
    device: &D,
    mut sb: Superblock,
    lines: &[(u64, [u8; LINE])],
) -> Result<(), MountError> {
    const NUMBER: u32 = 1;
    sb.crc = sb.checksum().into();
    let tx = TxId::new(NUMBER);
    let store = |at: u64, bytes: &[u8], tag| {
        device.store(at, bytes, tx, tag)?;
        device.flush_lines(at, bytes.len());
        Ok::<(), amphi_device::Error>(())
    };
    for (at, line) in lines {
        store(*at, line, Structure::Bitmap)?;
    }
    store(0, sb.as_bytes(), Structure::Superblock)?;
    device.fence();
    device.verify_read()?;
    tx.map_or(Ok(()), |tx| device.commit(tx))?;
    // Empties the list of committed transactions, so that the next mount numbers from one.
    device.recover()?;
    Ok(())
}
