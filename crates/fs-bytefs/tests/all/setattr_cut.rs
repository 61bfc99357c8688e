//! `setattr` with the power cut at each of its steps: what follows from a change of attributes (an access ACL
//! that follows the mode, capabilities that go with the owner) is in the same transaction as the change.

use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, DataMode, FormatOptions, MountOptions, fsck};
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Attr, Cred, FileSystem, FileType, Ino, Name, SetAttr, WriteMode, XattrMode, acl};

const CAPABILITY: &[u8] = b"security.capability";
const OTHER: &[u8] = b"user.other";

/// An ACL with one named user, in the format of `system.posix_acl_access`; chmod to 0644 changes its mask
/// from rwx to r.
fn access_list() -> Vec<u8> {
    let entries: [(u16, u16, u32); 5] =
        [(0x01, 7, u32::MAX), (0x02, 7, 1000), (0x04, 7, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// The attributes that matter here.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    mode: u16,
    uid: u32,
    size: u64,
    xattrs: Vec<Option<Vec<u8>>>,
}

fn see(fs: &ByteFs<Ssd>, ino: Ino) -> Seen {
    let Attr { mode, uid, size, .. } = fs.getattr(ino).expect("the file is there");
    let xattrs = [acl::ACCESS, CAPABILITY, OTHER].map(|name| fs.getxattr(ino, name).ok()).to_vec();
    Seen { mode, uid, size, xattrs }
}

/// Cuts the power at each step of `change` to a file that `prepare` has made: afterwards it is as before or
/// as after the change.
fn whole_or_not_at_all(data: DataMode, prepare: impl Fn(&ByteFs<Ssd>, Ino), change: &SetAttr) {
    let options = MountOptions { data, write_back_interval_ns: 0, ..MountOptions::default() };
    let mut outcomes = [0, 0];
    for steps in 0.. {
        let device = Arc::new(Ssd::in_memory(&Profile::named("free").expect("built in"), 64 << 20));
        ByteFs::format(&*device, &FormatOptions::default()).expect("it can be formatted");
        let fs = ByteFs::mount(Arc::clone(&device), options.clone()).expect("it can be mounted");
        let name = Name::new(b"file").expect("a valid name");
        let ino =
            fs.create(Ino::ROOT, name, FileType::Regular, 0o770, 0, &Cred::ROOT).expect("created").attr.ino;
        prepare(&fs, ino);
        let before = see(&fs, ino);
        device.cut_after_steps(steps, steps);
        let done = fs.setattr(ino, change, &Cred::ROOT);
        let after = done.is_ok().then(|| see(&fs, ino));
        let finished = device.has_power();
        device.power_cut(steps);
        drop(fs);
        let device = Arc::into_inner(device).expect("the file system was its only other user");
        let device = Arc::new(device.restart().expect("it powers up"));
        let fs = ByteFs::mount(Arc::clone(&device), options.clone()).expect("it mounts");
        let found = see(&fs, ino);
        if let Some(after) = &after {
            assert_eq!(&found, after, "after {steps} steps: it was answered");
            outcomes[1] += 1;
        } else {
            let (mode, uid) = (change.mode.unwrap_or(before.mode), change.uid.unwrap_or(before.uid));
            // The size before is of data that need not be there.
            let unchanged =
                (found.mode, found.uid, &found.xattrs) == (before.mode, before.uid, &before.xattrs);
            let changed = (found.mode, found.uid) == (mode, uid) && found.xattrs != before.xattrs;
            assert!(
                unchanged || changed,
                "after {steps} steps: {found:?} is neither {before:?} nor what was asked for"
            );
            outcomes[usize::from(changed)] += 1;
        }
        let report = fsck::check(&*device, &mut |_| {}).expect("it can be checked");
        assert!(
            report.findings.iter().all(|finding| finding.severity == fsck::Severity::Info),
            "{:?}",
            report.findings
        );
        if finished {
            break;
        }
    }
    assert!(outcomes[0] > 2 && outcomes[1] > 0, "{outcomes:?}");
}

fn set(fs: &ByteFs<Ssd>, ino: Ino, name: &[u8], value: &[u8]) {
    fs.setxattr(ino, name, value, XattrMode::Set).expect("it can be set");
}

#[test]
fn capabilities_go_with_the_owner() {
    let change = SetAttr { uid: Some(1000), ..SetAttr::default() };
    whole_or_not_at_all(DataMode::Ordered, |fs, ino| set(fs, ino, CAPABILITY, &[1; 20]), &change);
}

#[test]
fn capabilities_among_other_attributes_go_with_the_owner_and_mode() {
    let prepare = |fs: &ByteFs<Ssd>, ino| {
        set(fs, ino, CAPABILITY, &[1; 20]);
        set(fs, ino, acl::ACCESS, &access_list());
        set(fs, ino, OTHER, &[2; 900]);
    };
    let change = SetAttr { uid: Some(1000), mode: Some(0o644), ..SetAttr::default() };
    whole_or_not_at_all(DataMode::Ordered, prepare, &change);
}

#[test]
fn an_access_list_follows_the_mode_and_not_the_write_back_before_it() {
    let prepare = |fs: &ByteFs<Ssd>, ino| {
        set(fs, ino, acl::ACCESS, &access_list());
        fs.fsync(ino, false).expect("it can be synced");
        fs.write(ino, 0, &[7; 5000], WriteMode::default(), &Cred::ROOT).expect("it can be written");
    };
    let change = SetAttr { mode: Some(0o644), size: Some(9000), ..SetAttr::default() };
    for data in [DataMode::Ordered, DataMode::Journal] {
        whole_or_not_at_all(data, prepare, &change);
    }
}
