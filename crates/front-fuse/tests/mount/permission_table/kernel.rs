//! The table's operations as system calls, with the credentials of the calling thread.

use std::fs;
use std::path::{Path, PathBuf};

use amphi_vfs::acl::{ACCESS, DEFAULT};
use amphi_vfs::{Capabilities, Cred};
use rustix::fs::{
    self as sys, Access, AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};

use super::cases::{Caller, GROUP, List, OTHER, OWNER, Operation, Subject, attribute_value, new_list};
use super::{Outcome, Target};

/// A mounted directory.
pub struct InKernel {
    root: PathBuf,
}

impl InKernel {
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn subject(&self) -> PathBuf {
        self.root.join("table/subject")
    }

    fn outside(&self, name: &str) -> PathBuf {
        self.root.join("outside").join(name)
    }

    fn describe(path: &Path) -> String {
        let Ok(stat) = sys::lstat(path) else { return "gone".to_owned() };
        let list = |name: &[u8]| {
            let mut value = vec![0; 1024];
            match sys::lgetxattr(path, name, &mut value[..]) {
                Ok(length) => format!("{:?}", &value[..length]),
                Err(_) => "-".to_owned(),
            }
        };
        let size =
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory { 0 } else { stat.st_size };
        format!(
            "{:o} {}:{} {} {} {}",
            stat.st_mode & 0o7777,
            stat.st_uid,
            stat.st_gid,
            size,
            list(ACCESS),
            list(DEFAULT)
        )
    }

    fn call(&self, operation: Operation) -> Result<(), Errno> {
        use Operation as O;
        let (subject, flags) = (self.subject(), OFlags::NOFOLLOW | OFlags::CLOEXEC);
        let inside = |name: &str| self.subject().join(name);
        let open = |more: OFlags| sys::open(&subject, flags | more, Mode::empty());
        match operation {
            O::OpenToRead => open(OFlags::RDONLY).map(drop),
            O::OpenToWrite => open(OFlags::WRONLY).map(drop),
            O::OpenToTruncate => open(OFlags::WRONLY | OFlags::TRUNC).map(drop),
            O::Write => rustix::io::write(&open(OFlags::WRONLY)?, b"x").map(drop),
            O::AccessExecute => sys::accessat(CWD, &subject, Access::EXEC_OK, AtFlags::EACCESS),
            O::Chmod(mode) => sys::chmod(&subject, Mode::from(u32::from(mode))),
            O::Chown(uid, gid) => sys::chown(&subject, uid.map(Uid::from_raw), gid.map(Gid::from_raw)),
            O::TouchNow | O::SetTimes => {
                let tv_nsec = if operation == O::TouchNow { sys::UTIME_NOW } else { 5 };
                let time = Timespec { tv_sec: 5, tv_nsec };
                let times = Timestamps { last_access: time, last_modification: time };
                sys::utimensat(CWD, &subject, &times, AtFlags::empty())
            }
            O::GetAttribute(name) => sys::getxattr(&subject, name, &mut [0; 64][..]).map(drop),
            O::SetAttribute(name) => {
                sys::setxattr(&subject, name, &attribute_value(name), XattrFlags::empty())
            }
            O::RemoveAttribute(name) => sys::removexattr(&subject, name),
            O::SetList => sys::setxattr(&subject, ACCESS, &new_list(), XattrFlags::empty()),
            O::RemoveList => sys::removexattr(&subject, ACCESS),
            O::SetDefaultList => sys::setxattr(&subject, DEFAULT, &new_list(), XattrFlags::empty()),
            O::GetDefaultList => match sys::getxattr(&subject, DEFAULT, &mut [0; 1024][..]) {
                Err(Errno::NODATA) => Ok(()),
                got => got.map(drop),
            },
            O::LinkElsewhere => sys::link(&subject, self.outside("new")),
            O::List => {
                let fd = open(OFlags::RDONLY | OFlags::DIRECTORY)?;
                sys::Dir::new(fd)?.try_for_each(|entry| entry.map(drop))
            }
            O::Search => sys::lstat(inside("theirs")).map(drop),
            O::Create(mode) => {
                sys::mknodat(CWD, inside("new"), FileType::RegularFile, Mode::from(u32::from(mode)), 0)
            }
            O::Mkdir(mode) => sys::mkdir(inside("new"), Mode::from(u32::from(mode))),
            O::Symlink => sys::symlink("target", inside("new")),
            O::MakeFifo => sys::mknodat(CWD, inside("new"), FileType::Fifo, Mode::from(0o666), 0),
            O::MakeDevice => sys::mknodat(
                CWD,
                inside("new"),
                FileType::CharacterDevice,
                Mode::from(0o600),
                sys::makedev(1, 3),
            ),
            O::UnlinkTheirs => sys::unlink(inside("theirs")),
            O::UnlinkOwners => sys::unlink(inside("owners")),
            O::RmdirTheirs => sys::rmdir(inside("sub")),
            O::RenameTheirs => sys::rename(inside("theirs"), inside("new")),
            O::ReplaceOwnersByTheirs => sys::rename(inside("theirs"), inside("owners")),
            O::MoveTheirsOut => sys::rename(inside("theirs"), self.outside("new")),
            O::MoveDirectoryOut => sys::rename(inside("sub"), self.outside("new")),
            O::MoveIn => sys::rename(self.outside("file"), inside("new")),
            O::ExchangeWithOutside => {
                let (one, other) = (inside("sub"), self.outside("file"));
                sys::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)
            }
            O::LinkIn => sys::link(self.outside("file"), inside("new")),
        }
    }
}

impl Target for InKernel {
    fn prepare(&mut self, subject: &Subject) {
        for directory in ["table", "outside"] {
            let path = self.root.join(directory);
            if path.exists() {
                fs::remove_dir_all(&path).unwrap();
            }
            fs::create_dir(&path).unwrap();
            sys::chmod(&path, Mode::from(0o777)).unwrap();
        }
        let path = self.subject();
        let own = |path: &Path, uid: u32, gid: u32, mode: u16| {
            sys::chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid))).unwrap();
            sys::chmod(path, Mode::from(u32::from(mode))).unwrap();
        };
        fs::write(self.outside("file"), b"outside").unwrap();
        own(&self.outside("file"), OTHER, OTHER, 0o644);
        if subject.directory {
            fs::create_dir(&path).unwrap();
            fs::write(path.join("theirs"), b"theirs").unwrap();
            fs::write(path.join("owners"), b"owner's").unwrap();
            fs::create_dir(path.join("sub")).unwrap();
            own(&path.join("theirs"), OTHER, OTHER, 0o600);
            own(&path.join("owners"), OWNER, OWNER, 0o600);
            own(&path.join("sub"), OTHER, OTHER, 0o755);
        } else {
            fs::write(&path, b"contents").unwrap();
        }
        own(&path, OWNER, GROUP, subject.mode);
        let set = |name: &[u8], value: &[u8]| sys::setxattr(&path, name, value, XattrFlags::empty()).unwrap();
        set(b"user.here", b"value");
        set(b"trusted.here", b"value");
        if let Some(value) = subject.list.value(subject.mode) {
            set(ACCESS, &value);
        }
        if subject.inherits {
            set(DEFAULT, &List::Grants.value(0o775).unwrap());
        }
    }

    fn perform(&mut self, _subject: &Subject, caller: &Caller, operation: Operation) -> Outcome {
        become_caller(&caller.cred);
        let result = self.call(operation);
        become_root();
        result.map_err(Errno::raw_os_error)?;
        let places = [self.subject(), self.subject().join("new"), self.outside("new"), self.outside("file")];
        Ok(places.iter().map(|path| Self::describe(path)).collect::<Vec<_>>().join("; "))
    }
}

/// Bits of the kernel's sets for ours.
fn kernel_set(ours: Capabilities) -> CapabilitySet {
    let pairs = [
        (Capabilities::CHOWN, CapabilitySet::CHOWN),
        (Capabilities::DAC_OVERRIDE, CapabilitySet::DAC_OVERRIDE),
        (Capabilities::DAC_READ_SEARCH, CapabilitySet::DAC_READ_SEARCH),
        (Capabilities::FOWNER, CapabilitySet::FOWNER),
        (Capabilities::FSETID, CapabilitySet::FSETID),
        (Capabilities::MKNOD, CapabilitySet::MKNOD),
        (Capabilities::SETFCAP, CapabilitySet::SETFCAP),
        (Capabilities::SYS_ADMIN, CapabilitySet::SYS_ADMIN),
    ];
    pairs.into_iter().filter(|(one, _)| ours.has(*one)).map(|(_, kernels)| kernels).collect()
}

/// Takes the credentials of `cred` for this thread; its saved user stays root, so that it can return.
fn become_caller(cred: &Cred) {
    let groups: Vec<Gid> = cred.groups.iter().map(|id| Gid::from_raw(*id)).collect();
    set_thread_groups(&groups).unwrap();
    let (root, group) = (Gid::from_raw(0), Gid::from_raw(cred.gid));
    set_thread_res_gid(root, group, root).unwrap();
    set_thread_res_uid(Uid::ROOT, Uid::from_raw(cred.uid), Uid::ROOT).unwrap();
    let permitted = capabilities(None).unwrap().permitted;
    let effective = kernel_set(cred.capabilities) & permitted;
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })
        .unwrap();
}

fn become_root() {
    let permitted = capabilities(None).unwrap().permitted;
    set_capabilities(
        None,
        CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() },
    )
    .unwrap();
    let root = Gid::from_raw(0);
    set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).unwrap();
    set_thread_res_gid(root, root, root).unwrap();
    set_thread_groups(&[]).unwrap();
}
