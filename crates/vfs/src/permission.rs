//! Who may do what: the one place where permissions are decided, as pure functions of attributes, ACLs and
//! credentials.
//!
//! They answer as Linux does, errors and their order included;
//! `crates/front-fuse/tests/mount/permission_table` compares both on every combination of owner, group, ACL,
//! sticky bit and capability. [`crate::Checked`] applies them to a file system; on a FUSE mount the kernel
//! does.

use crate::acl::Acl;
use crate::{Attr, Capabilities, Cred, Error, FileType, Result, SetAttr, SetTime};

/// To read: a bit of what [`may_access`] is asked for.
pub const READ: u16 = 4;
/// To write, or to change a directory.
pub const WRITE: u16 = 2;
/// To execute, or to search a directory.
pub const EXECUTE: u16 = 1;

/// Whether `cred` may do all of `wanted` with an inode that has these attributes and this access ACL.
///
/// # Errors
/// [`Error::PermissionDenied`].
pub fn may_access(attr: &Attr, acl: Option<&Acl>, cred: &Cred, wanted: u16) -> Result<()> {
    if granted(attr, acl, cred, wanted) || is_overridden(attr, cred, wanted) {
        return Ok(());
    }
    Err(Error::PermissionDenied)
}

/// Whether the inode's access ACL, if it has one, has a say in what [`may_access`] answers.
#[must_use]
pub const fn is_for_acl(attr: &Attr, cred: &Cred, wanted: u16) -> bool {
    attr.uid != cred.uid && attr.mode & 0o070 != 0 && !is_overridden(attr, cred, wanted)
}

/// Whether capabilities grant all of `wanted`, whatever the inode says.
const fn is_overridden(attr: &Attr, cred: &Cred, wanted: u16) -> bool {
    if matches!(attr.file_type, FileType::Directory) {
        return (wanted & WRITE == 0 && cred.has(Capabilities::DAC_READ_SEARCH))
            || cred.has(Capabilities::DAC_OVERRIDE);
    }
    (wanted == READ && cred.has(Capabilities::DAC_READ_SEARCH))
        // Nobody executes what nobody may execute.
        || ((wanted & EXECUTE == 0 || attr.mode & 0o111 != 0) && cred.has(Capabilities::DAC_OVERRIDE))
}

/// What owner, ACL and mode grant, capabilities aside.
fn granted(attr: &Attr, acl: Option<&Acl>, cred: &Cred, wanted: u16) -> bool {
    if attr.uid == cred.uid {
        return attr.mode >> 6 & wanted == wanted;
    }
    // Linux asks the list only where the group bits, which are its mask, leave anything.
    if let Some(acl) = acl.filter(|_| attr.mode & 0o070 != 0) {
        return acl.allows(attr, cred, wanted);
    }
    let shift = if cred.is_in(attr.gid) { 3 } else { 0 };
    attr.mode >> shift & wanted == wanted
}

/// Whether `cred` may do what only the owner may.
fn owns(attr: &Attr, cred: &Cred) -> bool {
    attr.uid == cred.uid || cred.has(Capabilities::FOWNER)
}

/// Whether `cred` may take any name out of `dir` where it may write, whosever what it names is.
#[must_use]
pub fn may_take_any(dir: &Attr, cred: &Cred) -> bool {
    dir.mode & 0o1000 == 0 || owns(dir, cred)
}

/// Whether only the owner of `victim` may take its name out of `dir`, and `cred` is somebody else.
///
/// # Errors
/// [`Error::NotPermitted`].
pub fn may_take_from_sticky(dir: &Attr, victim: &Attr, cred: &Cred) -> Result<()> {
    if may_take_any(dir, cred) || owns(victim, cred) { Ok(()) } else { Err(Error::NotPermitted) }
}

/// Whether `cred` may make another name for a file, where names of others' files are restricted
/// (`fs.protected_hardlinks`): it owns the file, or could read and write it and nobody gains rights by it.
///
/// # Errors
/// [`Error::NotPermitted`].
pub fn may_link(source: &Attr, acl: Option<&Acl>, cred: &Cred) -> Result<()> {
    let harmless = source.file_type == FileType::Regular
        && source.mode & 0o4000 == 0
        && source.mode & 0o2010 != 0o2010
        && may_access(source, acl, cred, READ | WRITE).is_ok();
    if harmless || owns(source, cred) { Ok(()) } else { Err(Error::NotPermitted) }
}

/// What Linux restricts beyond modes and access lists, where several users share a directory
/// (`/proc/sys/fs/protected_*`). As most systems have it, unless it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protected {
    /// New names for others' files: [`may_link`].
    pub hardlinks: bool,
    /// Following others' symbolic links: [`may_follow`].
    pub symlinks: bool,
    /// Opening others' files with what would make them, 0 to 2: [`may_open_found`].
    pub regular: u8,
}

impl Default for Protected {
    fn default() -> Self {
        Self { hardlinks: true, symlinks: true, regular: 1 }
    }
}

/// Whether `cred` may follow a symbolic link that ends a path, where others' are restricted
/// (`fs.protected_symlinks`): it is its own or the directory's owner's, or not everybody can make links
/// there. No capability helps.
///
/// # Errors
/// [`Error::PermissionDenied`].
pub const fn may_follow(dir: &Attr, link: &Attr, cred: &Cred) -> Result<()> {
    let is_shared = dir.mode & 0o1002 == 0o1002;
    let is_trusted = link.uid == cred.uid || link.uid == dir.uid;
    if is_shared && !is_trusted { Err(Error::PermissionDenied) } else { Ok(()) }
}

/// Whether `cred` may open a file that is there with what would have made it, where that is restricted
/// (`fs.protected_regular`): not in a sticky directory where everybody may write, at level 2 or a group,
/// unless the file is its own or the directory's owner's. No capability helps.
///
/// # Errors
/// [`Error::PermissionDenied`].
pub const fn may_open_found(dir: &Attr, file: &Attr, level: u8, cred: &Cred) -> Result<()> {
    let writers = if level >= 2 { 0o022 } else { 0o002 };
    let is_shared = level > 0 && dir.mode & 0o1000 != 0 && dir.mode & writers != 0;
    let is_trusted = file.uid == cred.uid || file.uid == dir.uid;
    if is_shared && !is_trusted { Err(Error::PermissionDenied) } else { Ok(()) }
}

/// Whether `cred` may make a node of this type where it may make files.
///
/// # Errors
/// [`Error::NotPermitted`].
pub const fn may_make(file_type: FileType, cred: &Cred) -> Result<()> {
    let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
    if is_device && !cred.has(Capabilities::MKNOD) { Err(Error::NotPermitted) } else { Ok(()) }
}

/// The mode of what `cred` makes in `dir`: who is not in the group that the directory passes on cannot make
/// programs that run as it.
#[must_use]
pub fn mode_made(dir: &Attr, file_type: FileType, mode: u16, cred: &Cred) -> u16 {
    let passes_group = dir.mode & 0o2000 != 0 && file_type != FileType::Directory;
    if passes_group && mode & 0o2010 == 0o2010 { without_foreign_group(mode, dir.gid, cred) } else { mode }
}

/// A mode without its set-group-id bit, unless `cred` belongs to the group.
#[must_use]
pub fn without_foreign_group(mode: u16, gid: u32, cred: &Cred) -> u16 {
    if cred.is_in(gid) || cred.has(Capabilities::FSETID) { mode } else { mode & !0o2000 }
}

/// The mode of a file (not a directory) after its contents, owner or group have changed: without set-user-id,
/// and without set-group-id where that means execution or `cred` does not belong to the group.
#[must_use]
pub fn mode_after_change(mode: u16, gid: u32, cred: &Cred) -> u16 {
    let mode = mode & !0o4000;
    if mode & 0o010 != 0 { mode & !0o2000 } else { without_foreign_group(mode, gid, cred) }
}

/// Checks a change of attributes and returns it as it may be made: a set-group-id bit for a group of others
/// is left out.
///
/// # Errors
/// [`Error::NotPermitted`], [`Error::PermissionDenied`]; [`Error::IsDirectory`] and [`Error::Invalid`] for
/// the size of what has none.
pub fn may_change(attr: &Attr, acl: Option<&Acl>, change: &SetAttr, cred: &Cred) -> Result<SetAttr> {
    let mut change = *change;
    if change.size.is_some() {
        match attr.file_type {
            FileType::Regular => may_access(attr, acl, cred, WRITE)?,
            FileType::Directory => return Err(Error::IsDirectory),
            _ => return Err(Error::Invalid("not a regular file")),
        }
    }
    let is_owner = attr.uid == cred.uid;
    let gives_away = change.uid.is_some_and(|uid| !is_owner || uid != attr.uid);
    let foreign_group = |gid| !is_owner || (gid != attr.gid && !cred.is_in(gid));
    if (gives_away || change.gid.is_some_and(foreign_group)) && !cred.has(Capabilities::CHOWN) {
        return Err(Error::NotPermitted);
    }
    // Set-id bits go with the old owner, and taking them is a change of mode.
    let sheds = (change.uid.is_some() || change.gid.is_some())
        && attr.file_type != FileType::Directory
        && mode_after_change(attr.mode, attr.gid, cred) != attr.mode;
    if sheds && !owns(attr, cred) {
        return Err(Error::NotPermitted);
    }
    if let Some(mode) = change.mode {
        if !owns(attr, cred) {
            return Err(Error::NotPermitted);
        }
        change.mode = Some(without_foreign_group(mode, change.gid.unwrap_or(attr.gid), cred));
    }
    match (change.atime, change.mtime) {
        (None, None) => {}
        (Some(SetTime::Now), Some(SetTime::Now)) if !owns(attr, cred) => may_access(attr, acl, cred, WRITE)?,
        _ if !owns(attr, cred) => return Err(Error::NotPermitted),
        _ => {}
    }
    Ok(change)
}

/// Whether `cred` may read the extended attribute `name`.
///
/// # Errors
/// [`Error::NoData`] for what it may not know of; [`Error::PermissionDenied`].
pub fn may_get_attribute(attr: &Attr, acl: Option<&Acl>, name: &[u8], cred: &Cred) -> Result<()> {
    if name.starts_with(b"security.") || name.starts_with(b"system.") {
        return Ok(());
    }
    if name.starts_with(b"trusted.") {
        return if may_list_attribute(name, cred) { Ok(()) } else { Err(Error::NoData) };
    }
    if name.starts_with(b"user.") && !holds_user_attributes(attr) {
        return Err(Error::NoData);
    }
    may_access(attr, acl, cred, READ)
}

/// Whether `cred` may set or remove the extended attribute `name`.
///
/// # Errors
/// [`Error::NotPermitted`], [`Error::PermissionDenied`].
pub fn may_set_attribute(attr: &Attr, acl: Option<&Acl>, name: &[u8], cred: &Cred) -> Result<()> {
    let permitted = if crate::acl::is_name(name) {
        owns(attr, cred)
    } else if name == b"security.capability" {
        cred.has(Capabilities::SETFCAP)
    } else if name.starts_with(b"security.") {
        cred.has(Capabilities::SYS_ADMIN)
    } else if name.starts_with(b"trusted.") {
        may_list_attribute(name, cred)
    } else if name.starts_with(b"system.") {
        true
    } else {
        let is_user = name.starts_with(b"user.");
        let sticky = attr.file_type == FileType::Directory && attr.mode & 0o1000 != 0;
        let refused = is_user && (!holds_user_attributes(attr) || (sticky && !owns(attr, cred)));
        if !refused {
            return may_access(attr, acl, cred, WRITE);
        }
        false
    };
    if permitted { Ok(()) } else { Err(Error::NotPermitted) }
}

/// Whether `cred` may know that there is an extended attribute `name`.
#[must_use]
pub fn may_list_attribute(name: &[u8], cred: &Cred) -> bool {
    !name.starts_with(b"trusted.") || cred.has(Capabilities::SYS_ADMIN)
}

const fn holds_user_attributes(attr: &Attr) -> bool {
    matches!(attr.file_type, FileType::Regular | FileType::Directory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ino, TimeSpec};

    fn file(mode: u16) -> Attr {
        let time = TimeSpec::default();
        Attr {
            ino: Ino(2),
            generation: 0,
            file_type: FileType::Regular,
            mode,
            nlink: 1,
            uid: 10,
            gid: 20,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let member = Cred { groups: vec![20], ..Cred::user(11, 11) };
        for (mode, cred, wanted, granted) in [
            (0o077, Cred::user(10, 20), READ, false),
            (0o707, member.clone(), READ, false),
            (0o070, member, READ | WRITE | EXECUTE, true),
            (0o770, Cred::user(11, 11), READ, false),
            (0o004, Cred::user(11, 11), READ, true),
        ] {
            assert_eq!(may_access(&file(mode), None, &cred, wanted).is_ok(), granted, "{mode:o} {cred:?}");
        }
    }

    #[test]
    fn nobody_executes_what_nobody_may_execute() {
        assert!(may_access(&file(0o600), None, &Cred::ROOT, READ | WRITE).is_ok());
        assert!(may_access(&file(0o600), None, &Cred::ROOT, EXECUTE).is_err());
        assert!(may_access(&file(0o601), None, &Cred::ROOT, EXECUTE).is_ok());
    }

    #[test]
    fn set_id_bits_follow_their_group() {
        let stranger = Cred::user(10, 99);
        let change = SetAttr { mode: Some(0o2755), ..SetAttr::default() };
        assert_eq!(may_change(&file(0o644), None, &change, &stranger).unwrap().mode, Some(0o755));
        assert_eq!(mode_after_change(0o6755, 20, &stranger), 0o755);
        assert_eq!(mode_after_change(0o2644, 20, &Cred::user(10, 20)), 0o2644);
    }
}
