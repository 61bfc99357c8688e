//! POSIX access control lists (POSIX 1003.1e draft 17, `acl(5)`): their form as extended attributes, how they
//! and the mode follow each other, how new files inherit them, and what they allow.
//!
//! A file system keeps an ACL as the extended attribute of its name, in the form that programs and the kernel
//! exchange, and calls what is here wherever a mode is set or made. An ACL that says no more than a mode can
//! is not kept: the mode says it.

use crate::{Attr, Cred, Error, FileType, Result};

/// The name of the attribute that holds who may access a file.
pub const ACCESS: &[u8] = b"system.posix_acl_access";

/// The name of the attribute that holds what is inherited by what is made in a directory.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The only version there is.
const VERSION: u32 = 2;

/// Bytes of the version, and of an entry: tag, permissions, id.
const HEADER: usize = 4;
const ENTRY: usize = 8;

/// The id of entries that name nobody.
const NO_ID: u32 = u32::MAX;

/// Whom an entry is for. The order is the order of entries in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// The file's owner.
    Owner,
    /// A user.
    User(u32),
    /// The file's group.
    OwningGroup,
    /// A group.
    Group(u32),
    /// The most that users and groups, but not the owner, get.
    Mask,
    /// Everybody else.
    Other,
}

impl Tag {
    const fn code(self) -> (u16, u32) {
        match self {
            Self::Owner => (0x01, NO_ID),
            Self::User(id) => (0x02, id),
            Self::OwningGroup => (0x04, NO_ID),
            Self::Group(id) => (0x08, id),
            Self::Mask => (0x10, NO_ID),
            Self::Other => (0x20, NO_ID),
        }
    }

    const fn of(code: u16, id: u32) -> Option<Self> {
        Some(match code {
            0x01 => Self::Owner,
            0x02 => Self::User(id),
            0x04 => Self::OwningGroup,
            0x08 => Self::Group(id),
            0x10 => Self::Mask,
            0x20 => Self::Other,
            _ => return None,
        })
    }
}

/// One entry: whom it is for, and read (4), write (2) and execute (1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// Whom it is for.
    pub tag: Tag,
    /// Permissions, `0o7`.
    pub permissions: u16,
}

/// A valid list: one owner, one owning group and one other, in order, and a mask if it names anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    entries: Vec<AclEntry>,
}

impl Acl {
    /// Checks that `entries` are a list as `acl(5)` wants it.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn new(entries: Vec<AclEntry>) -> Result<Self> {
        let invalid = Error::Invalid("an access control list that acl_valid(3) would refuse");
        let codes: Vec<u16> = entries.iter().map(|entry| entry.tag.code().0).collect();
        let count = |code| codes.iter().filter(|&&other| other == code).count();
        let names_somebody = count(0x02) + count(0x08) > 0;
        let sound = codes.is_sorted()
            && (count(0x01), count(0x04), count(0x20)) == (1, 1, 1)
            && count(0x10) <= 1
            && (!names_somebody || count(0x10) == 1)
            && entries.iter().all(|entry| entry.permissions <= 7)
            && entries.iter().all(|entry| !matches!(entry.tag, Tag::User(NO_ID) | Tag::Group(NO_ID)));
        if sound { Ok(Self { entries }) } else { Err(invalid) }
    }

    /// Reads the form that programs and the kernel exchange. No entries at all are no list.
    ///
    /// # Errors
    /// [`Error::Invalid`]; [`Error::Unsupported`] for another version.
    pub fn decode(value: &[u8]) -> Result<Option<Self>> {
        if value.is_empty() {
            return Ok(None);
        }
        let invalid = Error::Invalid("not an access control list");
        let (version, rest) = value.split_first_chunk::<HEADER>().ok_or(invalid.clone())?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Error::Unsupported("access control lists of another version than 2"));
        }
        let (chunks, odd) = rest.as_chunks::<ENTRY>();
        if !odd.is_empty() {
            return Err(invalid);
        }
        let mut entries = Vec::with_capacity(chunks.len());
        for &[t0, t1, p0, p1, i0, i1, i2, i3] in chunks {
            let id = u32::from_le_bytes([i0, i1, i2, i3]);
            let tag = Tag::of(u16::from_le_bytes([t0, t1]), id).ok_or(invalid.clone())?;
            entries.push(AclEntry { tag, permissions: u16::from_le_bytes([p0, p1]) });
        }
        if entries.is_empty() { Ok(None) } else { Self::new(entries).map(Some) }
    }

    /// The form that programs and the kernel exchange.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            let (code, id) = entry.tag.code();
            value.extend_from_slice(&code.to_le_bytes());
            value.extend_from_slice(&entry.permissions.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    /// The entries, in order.
    #[must_use]
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    fn position(&self, tag: Tag) -> Option<usize> {
        self.entries.iter().position(|entry| entry.tag == tag)
    }

    fn permissions(&self, tag: Tag) -> Option<u16> {
        self.position(tag).map(|at| self.entries[at].permissions)
    }

    /// The entry that the mode's group bits stand for: the mask, if there is one.
    fn group_class(&self) -> Tag {
        if self.position(Tag::Mask).is_some() { Tag::Mask } else { Tag::OwningGroup }
    }

    /// The nine permission bits of a mode that this list implies.
    #[must_use]
    pub fn mode(&self) -> u16 {
        let of = |tag| self.permissions(tag).unwrap_or(0);
        of(Tag::Owner) << 6 | of(self.group_class()) << 3 | of(Tag::Other)
    }

    /// Whether the mode says all that this list says.
    #[must_use]
    pub const fn is_only_a_mode(&self) -> bool {
        self.entries.len() == 3
    }

    /// Takes over the nine permission bits of a new `mode`.
    pub fn set_mode(&mut self, mode: u16) {
        for (tag, shift) in [(Tag::Owner, 6), (self.group_class(), 3), (Tag::Other, 0)] {
            if let Some(at) = self.position(tag) {
                self.entries[at].permissions = mode >> shift & 7;
            }
        }
    }

    /// What a file gets that is made with `mode` in a directory whose default ACL this is: its access ACL,
    /// unless its mode says all, and its mode.
    #[must_use]
    pub fn inherited(&self, mode: u16) -> (Option<Self>, u16) {
        let mut access = self.clone();
        let mut granted = mode & !0o777;
        for (tag, shift) in [(Tag::Owner, 6), (access.group_class(), 3), (Tag::Other, 0)] {
            if let Some(at) = access.position(tag) {
                let entry = &mut access.entries[at];
                entry.permissions &= mode >> shift & 7;
                granted |= entry.permissions << shift;
            }
        }
        ((!access.is_only_a_mode()).then_some(access), granted)
    }

    /// Whether `cred` gets all of `wanted` (`0o7`) of a file with `attr`. Capabilities are another matter.
    #[must_use]
    pub fn allows(&self, attr: &Attr, cred: &Cred, wanted: u16) -> bool {
        let mask = self.permissions(Tag::Mask).unwrap_or(7);
        let mut in_a_group = false;
        for entry in &self.entries {
            let grants = entry.permissions & wanted == wanted;
            let is_group = match entry.tag {
                Tag::Owner if attr.uid == cred.uid => return grants,
                Tag::User(id) if id == cred.uid => return grants && mask & wanted == wanted,
                Tag::OwningGroup => cred.is_in(attr.gid),
                Tag::Group(id) => cred.is_in(id),
                Tag::Other => return grants && !in_a_group,
                _ => false,
            };
            if is_group {
                in_a_group = true;
                if grants {
                    return mask & wanted == wanted;
                }
            }
        }
        false
    }
}

/// Extended attributes: names and values.
pub type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// What setting an attribute with an ACL's name does to an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The attribute's new value; none removes it, and it may not be there.
    pub value: Option<Vec<u8>>,
    /// The nine permission bits the mode takes over, if it does.
    pub mode: Option<u16>,
}

/// Whether `name` is an ACL's.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

/// What setting attribute `name` of a file of this type to `value` does, if the name is an ACL's.
///
/// # Errors
/// As [`Acl::decode`]; [`Error::Unsupported`] for a symbolic link; [`Error::PermissionDenied`] for a default
/// ACL of what is no directory.
pub fn change(name: &[u8], value: &[u8], file_type: FileType) -> Result<Option<Change>> {
    if !is_name(name) {
        return Ok(None);
    }
    if file_type == FileType::Symlink {
        return Err(Error::Unsupported("access control lists of symbolic links"));
    }
    let acl = Acl::decode(value)?;
    if name == DEFAULT {
        if file_type != FileType::Directory && acl.is_some() {
            return Err(Error::PermissionDenied);
        }
        return Ok(Some(Change { value: acl.map(|acl| acl.encode()), mode: None }));
    }
    let mode = acl.as_ref().map(Acl::mode);
    let value = acl.filter(|acl| !acl.is_only_a_mode()).map(|acl| acl.encode());
    Ok(Some(Change { value, mode }))
}

/// What a file made with `mode` by `cred` in a directory with this default ACL (the attribute's value) gets:
/// its mode, and the attributes it starts with. Without a default ACL the umask counts.
///
/// # Errors
/// [`Error::Corrupt`] if the directory's attribute is no ACL.
pub fn inherit(
    default: Option<&[u8]>,
    mode: u16,
    file_type: FileType,
    cred: &Cred,
) -> Result<(u16, Attributes)> {
    if file_type == FileType::Symlink {
        return Ok((mode, Vec::new()));
    }
    let Some(value) = default else { return Ok((mode & !(cred.umask & 0o777), Vec::new())) };
    let damaged = || Error::corrupt("default ACL", None, "it is none");
    let acl = Acl::decode(value).ok().flatten().ok_or_else(damaged)?;
    let (access, mode) = acl.inherited(mode);
    let mut attributes = Vec::new();
    if let Some(access) = access {
        attributes.push((ACCESS.to_vec(), access.encode()));
    }
    if file_type == FileType::Directory {
        attributes.push((DEFAULT.to_vec(), value.to_vec()));
    }
    Ok((mode, attributes))
}

/// The value of an access ACL after a `chmod` to `mode`.
///
/// # Errors
/// [`Error::Corrupt`] if `value` is no ACL.
pub fn after_chmod(value: &[u8], mode: u16) -> Result<Vec<u8>> {
    let acl = Acl::decode(value).ok().flatten();
    let mut acl = acl.ok_or_else(|| Error::corrupt("access ACL", None, "it is none"))?;
    acl.set_mode(mode);
    Ok(acl.encode())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(Tag, u16)]) -> Acl {
        let entries = entries.iter().map(|&(tag, permissions)| AclEntry { tag, permissions }).collect();
        Acl::new(entries).unwrap()
    }

    fn named() -> Acl {
        acl(&[
            (Tag::Owner, 7),
            (Tag::User(5), 6),
            (Tag::OwningGroup, 4),
            (Tag::Group(9), 1),
            (Tag::Mask, 5),
            (Tag::Other, 0),
        ])
    }

    #[test]
    fn lists_survive_their_encoding() {
        assert_eq!(Acl::decode(&named().encode()), Ok(Some(named())));
        assert_eq!(Acl::decode(&[]), Ok(None));
        assert_eq!(Acl::decode(&[2, 0, 0, 0]), Ok(None));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let good = named().encode();
        for length in [1, 3, 5, good.len() - 1, good.len() - 8] {
            assert!(Acl::decode(&good[..length]).is_err(), "{length} bytes");
        }
        assert!(matches!(Acl::decode(&[1, 0, 0, 0]), Err(Error::Unsupported(_))));
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let base = [entry(Tag::Owner, 7), entry(Tag::OwningGroup, 7), entry(Tag::Other, 7)];
        assert!(Acl::new(base.to_vec()).is_ok());
        assert!(Acl::new([base[1], base[0], base[2]].to_vec()).is_err(), "out of order");
        assert!(Acl::new(base[..2].to_vec()).is_err(), "nobody else");
        assert!(Acl::new([&base[..1], &base].concat()).is_err(), "two owners");
        let named = [base[0], entry(Tag::User(1), 7), base[1], base[2]];
        assert!(Acl::new(named.to_vec()).is_err(), "a user and no mask");
        assert!(Acl::new([entry(Tag::Owner, 8), base[1], base[2]].to_vec()).is_err(), "a fourth bit");
    }

    #[test]
    fn mode_and_list_follow_each_other() {
        let mut acl = named();
        assert_eq!(acl.mode(), 0o750);
        acl.set_mode(0o4624);
        assert_eq!(acl.mode(), 0o624);
        assert_eq!(acl.permissions(Tag::OwningGroup), Some(4), "the mask follows, the group does not");
    }

    #[test]
    fn files_inherit_what_their_mode_lets_through() {
        let (access, mode) = named().inherited(0o2666);
        assert_eq!(mode, 0o2640);
        assert_eq!(access.unwrap().permissions(Tag::Mask), Some(4));
        let plain = acl(&[(Tag::Owner, 6), (Tag::OwningGroup, 4), (Tag::Other, 4)]);
        assert_eq!(plain.inherited(0o777), (None, 0o644));
    }

    #[test]
    fn the_umask_counts_only_without_a_default_list() {
        let cred = Cred { umask: 0o077, ..Cred::user(1, 1) };
        let (mode, attributes) = inherit(None, 0o666, FileType::Regular, &cred).unwrap();
        assert_eq!((mode, attributes.len()), (0o600, 0));
        let value = named().encode();
        let (mode, attributes) = inherit(Some(&value), 0o777, FileType::Directory, &cred).unwrap();
        assert_eq!((mode, attributes.len()), (0o750, 2));
        assert!(matches!(inherit(Some(b"x"), 0, FileType::Fifo, &cred), Err(Error::Corrupt(_))));
    }
}
