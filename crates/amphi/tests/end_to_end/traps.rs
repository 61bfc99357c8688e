//! What file systems behind FUSE are known to get wrong, each on a ByteFS mount; the image is clean
//! afterwards.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{
    FlockOperation, OFlags, XattrFlags, fcntl_lock, flock, getxattr_query, listxattr, listxattr_query,
    setxattr,
};
use rustix::io::Errno;

use crate::rig::{Rig, can_mount, wait_until};

/// A user without capabilities.
const USER: u32 = 4321;

/// A mounted image; nothing where mounting is impossible.
fn mounted() -> Option<Rig> {
    can_mount().then(|| {
        let rig = Rig::new("256M");
        if rustix::process::geteuid().is_root() {
            rig.mount_for_all()
        } else {
            rig.mount()
        }
        rig
    })
}

/// As [`mounted`], and the tests are root.
fn mounted_by_root() -> Option<Rig> {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: this has to be root");
        return None;
    }
    let rig = mounted()?;
    // The user has to get as far as the mount.
    fs::set_permissions(rig.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(rig.mount_point(), fs::Permissions::from_mode(0o777)).unwrap();
    Some(rig)
}

fn leave(rig: &Rig) {
    rig.umount();
    rig.fsck().unwrap();
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().mode() & 0o7777
}

#[test]
fn set_id_bits_go_with_a_users_write_truncate_and_chown() {
    let Some(rig) = mounted_by_root() else { return };
    let path = rig.on_mount("program");
    let prepare = || {
        fs::write(&path, b"program").unwrap();
        chown(&path, Some(USER), Some(USER)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        assert_eq!(mode(&path), 0o6777);
    };
    for script in ["printf x >> program", "printf x > program", "truncate -s 3 program", "chgrp 4321 program"]
    {
        prepare();
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(rig.mount_point()).uid(USER).gid(USER);
        assert!(shell.status().unwrap().success(), "{script}");
        assert_eq!(mode(&path), 0o777, "{script}");
    }
    prepare();
    chown(&path, Some(0), Some(0)).unwrap();
    assert_eq!(mode(&path), 0o777, "a chown by root");
    leave(&rig);
}

#[test]
fn directories_moved_between_parents_take_their_link_along() {
    let Some(rig) = mounted() else { return };
    for name in ["from", "from/moved", "from/moved/child", "from/stays", "to", "to/empty", "to/other"] {
        fs::create_dir(rig.on_mount(name)).unwrap();
    }
    let links = |name: &str| rig.on_mount(name).metadata().unwrap().nlink();
    assert_eq!((links("from"), links("to"), links("from/moved")), (4, 4, 3));
    fs::rename(rig.on_mount("from/moved"), rig.on_mount("to/moved")).unwrap();
    assert_eq!((links("from"), links("to"), links("to/moved")), (3, 5, 3));
    fs::rename(rig.on_mount("from/stays"), rig.on_mount("to/empty")).unwrap();
    assert_eq!((links("from"), links("to")), (2, 5), "over an empty directory");
    fs::write(rig.on_mount("from/file"), b"").unwrap();
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    let (file, directory) = (rig.on_mount("from/file"), rig.on_mount("to/moved"));
    rustix::fs::renameat_with(rustix::fs::CWD, &file, rustix::fs::CWD, &directory, flags).unwrap();
    assert_eq!((links("from"), links("to")), (3, 4), "exchanged with a file");
    let parent = fs::metadata(rig.on_mount("from/file/..")).unwrap().ino();
    assert_eq!(parent, rig.on_mount("from").metadata().unwrap().ino());
    leave(&rig);
    rig.mount();
    assert_eq!((links("from"), links("to"), links("from/file")), (3, 4, 3), "after a new mount");
}

#[test]
fn files_open_by_handle_after_the_kernel_forgot_them() {
    let Some(rig) = mounted_by_root() else { return };
    fs::write(rig.path("handle.c"), include_str!("../../../front-fuse/tests/mount/file_handle.c")).unwrap();
    let compile = Command::new("cc").args(["-o", &rig.path("handle"), &rig.path("handle.c")]).status();
    if !compile.is_ok_and(|status| status.success()) {
        println!("SKIPPED: there is no working C compiler");
        return;
    }
    fs::create_dir(rig.on_mount("d")).unwrap();
    let output = Command::new(rig.path("handle")).arg(rig.mount_point()).arg(rig.on_mount("d/f")).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    leave(&rig);
}

/// Not a test but the process that [`a_process_that_waits_for_a_lock_can_be_killed`] starts: waits for a
/// lock, and says so before.
#[test]
#[ignore = "the other process of another test"]
fn waiting_for_a_lock() {
    let Ok(path) = std::env::var("AMPHI_TEST_LOCK") else { return };
    let file = File::options().read(true).write(true).open(&path).unwrap();
    fs::write(format!("{}.{}", path, std::process::id()), b"").unwrap();
    if std::env::var_os("AMPHI_TEST_LOCK_FLOCK").is_some() {
        flock(&file, FlockOperation::LockExclusive).unwrap();
    } else {
        fcntl_lock(&file, FlockOperation::LockExclusive).unwrap();
    }
}

fn waiter(path: &Path, by_flock: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "traps::waiting_for_a_lock", "--ignored"]).env("AMPHI_TEST_LOCK", path);
    if by_flock {
        command.env("AMPHI_TEST_LOCK_FLOCK", "1");
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ready = format!("{}.{}", path.display(), child.id());
    wait_until("the other process is about to wait", || Path::new(&ready).exists());
    std::thread::sleep(Duration::from_millis(50));
    child
}

#[test]
fn a_process_that_waits_for_a_lock_can_be_killed() {
    let Some(rig) = mounted() else { return };
    for by_flock in [true, false] {
        let path = rig.on_mount("lock");
        let held = File::create(&path).unwrap();
        if by_flock {
            flock(&held, FlockOperation::LockExclusive).unwrap();
        } else {
            fcntl_lock(&held, FlockOperation::LockExclusive).unwrap();
        }
        let (mut killed, mut patient) = (waiter(&path, by_flock), waiter(&path, by_flock));
        for child in [&mut killed, &mut patient] {
            assert!(child.try_wait().unwrap().is_none(), "a lock that is held was given (flock: {by_flock})");
        }
        killed.kill().unwrap();
        wait_until("the killed process is gone", || killed.try_wait().unwrap().is_some());
        assert_eq!(killed.wait().unwrap().signal(), Some(9));
        drop(held);
        wait_until("the other process has the lock", || patient.try_wait().unwrap().is_some());
        assert!(patient.wait().unwrap().success());
    }
    leave(&rig);
}

/// Bytes of the file that direct and buffered I/O share, and how often they change it.
const SHARED: usize = 256 << 10;
const CHANGES: u32 = 2000;

#[test]
fn direct_and_buffered_io_never_see_stale_bytes() {
    let Some(rig) = mounted() else { return };
    let path = rig.on_mount("shared");
    let mut expected = vec![0_u8; SHARED];
    fs::write(&path, &expected).unwrap();
    let open = |flags: OFlags| {
        OpenOptions::new().read(true).write(true).custom_flags(flags.bits() as i32).open(&path).unwrap()
    };
    let (direct, buffered) = (open(OFlags::DIRECT), open(OFlags::empty()));
    let mut room = vec![0_u8; SHARED + 4096];
    let start = room.as_ptr().align_offset(4096);
    let room = &mut room[start..start + SHARED];
    let seed = 0x5EED_u64;
    let mut state = seed;
    let mut draw = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    for step in 0..CHANGES {
        let by_direct = draw(2) == 0;
        let (unit, file) = if by_direct { (512, &direct) } else { (1, &buffered) };
        let offset = draw(SHARED / unit) * unit;
        let length = (1 + draw(16384 / unit)) * unit;
        let length = length.min(SHARED - offset);
        let here = offset..offset + length;
        if draw(2) == 0 {
            room[..length].fill(step as u8);
            expected[here].fill(step as u8);
            file.write_all_at(&room[..length], offset as u64).unwrap();
        } else {
            file.read_exact_at(&mut room[..length], offset as u64).unwrap();
            assert!(
                room[..length] == expected[here],
                "seed {seed:#x}, step {step}: {length} bytes at {offset} are stale (direct: {by_direct})"
            );
        }
    }
    drop((direct, buffered));
    leave(&rig);
    rig.mount();
    assert!(fs::read(&path).unwrap() == expected, "seed {seed:#x}: the file differs after a new mount");
}

#[test]
fn lists_of_extended_attributes_have_their_size() {
    let Some(rig) = mounted() else { return };
    let path = rig.on_mount("f");
    fs::write(&path, b"").unwrap();
    assert_eq!(listxattr_query(&path), Ok(0));
    let mut names = Vec::new();
    let full = loop {
        let name = format!("user.{:03}.{}", names.len(), "n".repeat(names.len() % 200));
        match setxattr(&path, &name, b"v", XattrFlags::CREATE) {
            Ok(()) => names.push(name),
            Err(error) => break error,
        }
        if names.len() == 300 {
            break Errno::NOSPC;
        }
    };
    assert!(matches!(full, Errno::NOSPC | Errno::TOOBIG), "{full}");
    assert!(names.len() >= 8, "room for {} attributes only", names.len());
    let size: usize = names.iter().map(|name| name.len() + 1).sum();
    assert_eq!(listxattr_query(&path), Ok(size), "asking for the size");
    assert_eq!(listxattr(&path, &mut vec![0_u8; size - 1]), Err(Errno::RANGE), "one byte too few");
    let mut list = vec![0_u8; size];
    assert_eq!(listxattr(&path, &mut list), Ok(size), "exactly enough");
    let mut listed: Vec<_> = list.split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
    listed.sort_unstable();
    names.sort_unstable();
    assert!(listed.iter().copied().eq(names.iter().map(String::as_bytes)));
    assert_eq!(getxattr_query(&path, &names[0]), Ok(1), "the size of a value");
    leave(&rig);
}
