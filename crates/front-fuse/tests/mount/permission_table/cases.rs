//! Who does what to what: the rows and columns of the table.

use std::fmt;

use amphi_vfs::acl::{Acl, AclEntry, Tag};
use amphi_vfs::{Capabilities, Cred};

/// The subject's owner and group, and users that its ACLs and directories know.
pub const OWNER: u32 = 1000;
pub const GROUP: u32 = 2000;
pub const OTHER: u32 = 1003;
pub const LISTED_USER: u32 = 1004;
pub const LISTED_GROUP: u32 = 2005;

/// Somebody.
pub struct Caller {
    pub name: &'static str,
    pub cred: Cred,
}

pub fn callers() -> Vec<Caller> {
    let user = |name, uid, gid, groups: &[u32], capabilities| Caller {
        name,
        cred: Cred { groups: groups.to_vec(), capabilities, ..Cred::user(uid, gid) },
    };
    let none = Capabilities::NONE;
    let mut all = vec![
        user("the owner", OWNER, 1000, &[], none),
        user("the owner, of the group", OWNER, 1000, &[GROUP], none),
        user("a member", 1001, GROUP, &[], none),
        user("a member by a second group", 1002, 1002, &[7, GROUP], none),
        user("a stranger", OTHER, OTHER, &[], none),
        user("a listed user", LISTED_USER, 1004, &[], none),
        user("a listed user of the group", LISTED_USER, GROUP, &[], none),
        user("a member of a listed group", 1005, 1005, &[LISTED_GROUP], none),
        user("root", 0, 0, &[], Capabilities::ALL),
        user("root without capabilities", 0, 0, &[], none),
        user("the owner with CAP_FSETID", OWNER, 1000, &[], Capabilities::FSETID),
    ];
    let alone = [
        ("CAP_CHOWN", Capabilities::CHOWN),
        ("CAP_DAC_OVERRIDE", Capabilities::DAC_OVERRIDE),
        ("CAP_DAC_READ_SEARCH", Capabilities::DAC_READ_SEARCH),
        ("CAP_FOWNER", Capabilities::FOWNER),
        ("CAP_FSETID", Capabilities::FSETID),
        ("CAP_MKNOD", Capabilities::MKNOD),
        ("CAP_SETFCAP", Capabilities::SETFCAP),
        ("CAP_SYS_ADMIN", Capabilities::SYS_ADMIN),
    ];
    all.extend(alone.map(|(name, capability)| user(name, OTHER, OTHER, &[], capability)));
    all
}

/// An access ACL beside the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    None,
    /// Grants a user and a group everything, within the mode's group bits.
    Grants,
    /// Names the user and the group, with nothing.
    Denies,
}

impl List {
    /// The attribute's value beside permission bits `mode`; the owning group gets read only.
    pub fn value(self, mode: u16) -> Option<Vec<u8>> {
        let named = match self {
            Self::None => return None,
            Self::Grants => 7,
            Self::Denies => 0,
        };
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let entries = vec![
            entry(Tag::Owner, mode >> 6 & 7),
            entry(Tag::User(LISTED_USER), named),
            entry(Tag::OwningGroup, 4),
            entry(Tag::Group(LISTED_GROUP), named),
            entry(Tag::Mask, mode >> 3 & 7),
            entry(Tag::Other, mode & 7),
        ];
        Some(Acl::new(entries).unwrap().encode())
    }
}

/// A file or directory to do something to. It belongs to [`OWNER`] and [`GROUP`].
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    pub directory: bool,
    pub mode: u16,
    pub list: List,
    /// A directory's default ACL.
    pub inherits: bool,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.directory { "a directory" } else { "a file" };
        let inherits = if self.inherits { ", default list" } else { "" };
        write!(f, "{kind} {:04o}, list: {:?}{inherits}", self.mode, self.list)
    }
}

pub fn subjects() -> Vec<Subject> {
    let mut all = Vec::new();
    for list in [List::None, List::Grants, List::Denies] {
        for mode in [0, 0o700, 0o070, 0o007, 0o404, 0o644, 0o6775, 0o2674] {
            all.push(Subject { directory: false, mode, list, inherits: false });
        }
        for mode in [0o700, 0o030, 0o003, 0o755, 0o1777, 0o1070, 0o2773, 0o444] {
            let inherits = mode & 0o2000 != 0 && list != List::None;
            all.push(Subject { directory: true, mode, list, inherits });
        }
    }
    all
}

/// What to do. Names ending in `Theirs` concern what belongs to a stranger, in `Owners` what belongs to the
/// subject's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    OpenToRead,
    OpenToWrite,
    OpenToTruncate,
    Write,
    AccessExecute,
    Chmod(u16),
    Chown(Option<u32>, Option<u32>),
    TouchNow,
    SetTimes,
    GetAttribute(&'static str),
    SetAttribute(&'static str),
    RemoveAttribute(&'static str),
    SetList,
    RemoveList,
    SetDefaultList,
    GetDefaultList,
    LinkElsewhere,
    List,
    Search,
    Create(u16),
    Mkdir(u16),
    Symlink,
    MakeFifo,
    MakeDevice,
    UnlinkTheirs,
    UnlinkOwners,
    RmdirTheirs,
    RenameTheirs,
    ReplaceOwnersByTheirs,
    MoveTheirsOut,
    MoveDirectoryOut,
    MoveIn,
    ExchangeWithOutside,
    LinkIn,
}

impl Operation {
    /// Whether it changes anything, access times aside.
    pub const fn changes(self) -> bool {
        use Operation as O;
        !matches!(
            self,
            O::OpenToRead
                | O::OpenToWrite
                | O::AccessExecute
                | O::GetAttribute(_)
                | O::GetDefaultList
                | O::List
                | O::Search
        )
    }
}

/// What applies to a file or to a directory.
pub fn operations(directory: bool) -> Vec<Operation> {
    use Operation as O;
    let mut all = vec![
        O::OpenToRead,
        O::AccessExecute,
        O::Chmod(0o640),
        O::Chmod(0o6755),
        O::Chown(Some(OWNER), None),
        O::Chown(Some(OTHER), None),
        O::Chown(None, Some(GROUP)),
        O::Chown(None, Some(1000)),
        O::Chown(None, Some(LISTED_GROUP)),
        O::TouchNow,
        O::SetTimes,
        O::GetAttribute("user.here"),
        O::SetAttribute("user.new"),
        O::RemoveAttribute("user.here"),
        O::GetAttribute("trusted.here"),
        O::SetAttribute("trusted.new"),
        O::SetAttribute("security.amphi"),
        O::SetList,
        O::RemoveList,
    ];
    if directory {
        all.extend([
            O::SetDefaultList,
            O::GetDefaultList,
            O::List,
            O::Search,
            O::Create(0o2775),
            O::Create(0o4666),
            O::Mkdir(0o2777),
            O::Symlink,
            O::MakeFifo,
            O::MakeDevice,
            O::UnlinkTheirs,
            O::UnlinkOwners,
            O::RmdirTheirs,
            O::RenameTheirs,
            O::ReplaceOwnersByTheirs,
            O::MoveTheirsOut,
            O::MoveDirectoryOut,
            O::MoveIn,
            O::ExchangeWithOutside,
            O::LinkIn,
        ]);
    } else {
        all.extend([
            O::OpenToWrite,
            O::OpenToTruncate,
            O::Write,
            O::SetAttribute("security.capability"),
            O::LinkElsewhere,
        ]);
    }
    all
}

/// The value that [`Operation::SetAttribute`] sets.
pub fn attribute_value(name: &str) -> Vec<u8> {
    if name == "security.capability" {
        // What `setcap cap_chown=p` writes.
        return [&[0, 0, 0, 2, 1][..], &[0; 15]].concat();
    }
    b"value".to_vec()
}

/// What [`Operation::SetList`] and [`Operation::SetDefaultList`] set.
pub fn new_list() -> Vec<u8> {
    List::Grants.value(0o754).unwrap()
}
