//! What clients read in answers: a listing's row of names, and the kinds of files as the system has them.

use amphi_vfs::FileType;
use zerocopy::FromBytes;

use crate::format::{ListedName, kind};

/// The first entry of a listing's row, its name, and the bytes that it takes, of which the last entry's
/// padding may be missing. None: there is no more, or what there is makes no sense.
#[must_use]
pub fn first_listed(row: &[u8]) -> Option<(ListedName, &[u8], usize)> {
    let (head, behind) = ListedName::read_from_prefix(row).ok()?;
    let name = behind.get(..usize::from(head.len.get()))?;
    Some((head, name, (size_of::<ListedName>() + name.len()).next_multiple_of(8)))
}

/// The type's bits in Linux's `st_mode`; these shifted right by 12 are `d_type`. Of no kind: 0.
#[must_use]
pub const fn type_bits(of: u16) -> u32 {
    let file_type = match of {
        kind::REGULAR => FileType::Regular,
        kind::DIRECTORY => FileType::Directory,
        kind::SYMLINK => FileType::Symlink,
        kind::FIFO => FileType::Fifo,
        kind::SOCKET => FileType::Socket,
        kind::CHAR => FileType::CharDevice,
        kind::BLOCK => FileType::BlockDevice,
        _ => return 0,
    };
    file_type.mode_bits() as u32
}

#[cfg(test)]
mod tests {
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    #[test]
    fn a_row_is_read_entry_by_entry_and_no_further_than_it_goes() {
        let mut row = Vec::new();
        for name in [&b"a"[..], b"eight888", b""] {
            let head = ListedName { len: (name.len() as u16).into(), ..ListedName::new_zeroed() };
            row.extend_from_slice(head.as_bytes());
            row.extend_from_slice(name);
            row.resize(row.len().next_multiple_of(8), 0);
        }
        let (mut at, mut names) = (0, Vec::new());
        while let Some((_, name, bytes)) = first_listed(row.get(at..).unwrap_or_default()) {
            names.push(name.to_vec());
            at += bytes;
        }
        assert_eq!(names, [&b"a"[..], b"eight888", b""]);
        assert_eq!(at, row.len());
        assert!(first_listed(&row[..24]).is_none(), "a name that is not there");
        assert!(first_listed(&row[..23]).is_none());
    }
}
