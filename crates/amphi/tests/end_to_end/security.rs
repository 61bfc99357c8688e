//! What nobody else gets: other users into a mount, anybody into an image, the daemon more than it needs.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::rig::{Rig, amphi_ok, can_mount};

/// A user without capabilities.
const USER: u32 = 4321;

/// An image that is not mounted, and a user who could get to it; nothing where the tests are not root or
/// cannot mount.
fn prepared() -> Option<Rig> {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: this has to be root");
        return None;
    }
    can_mount().then(|| {
        let rig = Rig::new("256M");
        fs::set_permissions(rig.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        rig
    })
}

fn user_can(rig: &Rig, script: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).current_dir(rig.path("")).uid(USER).gid(USER);
    shell.output().unwrap().status.success()
}

#[test]
fn an_image_is_its_owners_alone() {
    let rig = Rig::new("64M");
    assert_eq!(fs::metadata(rig.image()).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_mount_is_its_users_alone_unless_others_are_allowed() {
    let Some(rig) = prepared() else { return };
    rig.mount();
    fs::set_permissions(rig.mount_point(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(rig.on_mount("f"), b"for root").unwrap();
    fs::set_permissions(rig.on_mount("f"), fs::Permissions::from_mode(0o666)).unwrap();
    assert!(!user_can(&rig, "cat mount/f"), "another user got in");
    rig.umount();
    rig.mount_for_all();
    assert!(user_can(&rig, "cat mount/f && echo x > mount/mine"));
    fs::set_permissions(rig.on_mount("f"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!user_can(&rig, "cat mount/f"), "within the files' permissions");
    rig.umount();
    rig.fsck().unwrap();
}

/// A hexadecimal or decimal field of `/proc/PID/status`.
fn field(status: &str, name: &str) -> u64 {
    let text =
        status.lines().find_map(|line| line.strip_prefix(name)).expect("a status has the field").trim();
    u64::from_str_radix(text, 16).expect("a number")
}

#[test]
fn the_daemon_keeps_no_more_than_it_needs() {
    const SYS_ADMIN: u64 = 1 << 21;
    const DAC_OVERRIDE: u64 = 1 << 1;
    let Some(rig) = prepared() else { return };
    for (owner, allowed) in [(0, SYS_ADMIN), (USER, SYS_ADMIN | DAC_OVERRIDE)] {
        chown(rig.image(), Some(owner), Some(owner)).unwrap();
        rig.mount();
        fs::write(rig.on_mount("f"), b"works").unwrap();
        let tasks = fs::read_dir(format!("/proc/{}/task", rig.daemon_pid())).unwrap();
        let mut threads = 0;
        for task in tasks {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
                let held = field(&status, set);
                // What this process never had was never the daemon's to give up.
                let beyond =
                    if set == "CapBnd:" { held & parents_permitted() & !allowed } else { held & !allowed };
                assert_eq!(beyond, 0, "{set} {held:x} of a thread, image of user {owner}");
            }
            assert_eq!(field(&status, "NoNewPrivs:"), 1);
            threads += 1;
        }
        assert!(threads > 2, "{threads} threads");
        rig.umount();
        rig.fsck().unwrap();
    }
    // It can still do what only it must: end a mount that is in use.
    rig.mount();
    let held = fs::File::create(rig.on_mount("held")).unwrap();
    amphi_ok(&["power-cut", &rig.mount_point()]);
    assert!(!rig.is_mounted());
    drop(held);
}

fn parents_permitted() -> u64 {
    field(&fs::read_to_string("/proc/self/status").unwrap(), "CapPrm:")
}

/// As on ext4: whoever has changed a program does not run it with its owner's rights, not even at once.
#[test]
fn a_program_that_another_user_wrote_to_is_not_set_uid_any_more() {
    let Some(rig) = prepared() else { return };
    amphi_ok(&["mount", "--free", "-o", "allow_other,suid,dev", &rig.image(), &rig.mount_point()]);
    fs::set_permissions(rig.mount_point(), fs::Permissions::from_mode(0o755)).unwrap();
    for (number, change) in
        ["dd if=mount/f of=mount/f bs=1 count=1 conv=notrunc", "fallocate -l 9999999 mount/f"]
            .iter()
            .enumerate()
    {
        let program = rig.on_mount("f");
        fs::copy("/usr/bin/id", &program).unwrap();
        chown(&program, Some(0), Some(0)).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o6777)).unwrap();
        assert!(user_can(&rig, "test $(mount/f -u) = 0"), "it is set-uid before");
        assert!(
            user_can(&rig, &format!("{change} 2>/dev/null && test $(mount/f -u) = {USER}")),
            "change {number}"
        );
        assert_eq!(fs::metadata(&program).unwrap().mode() & 0o7777, 0o777, "change {number}");
    }
    rig.umount();
}
