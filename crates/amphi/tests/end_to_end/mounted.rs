//! The command on a real mount: mounting, looking, unmounting, dying, and coming back.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::accelerated::Agent;
use crate::rig::{Rig, amphi, amphi_ok, can_mount, command, complaint, wait_until};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn files_are_there_after_an_unmount_and_a_mount() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    fs::create_dir(rig.on_mount("d")).unwrap();
    fs::write(rig.on_mount("d/small"), b"small").unwrap();
    let large: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    fs::write(rig.on_mount("large"), &large).unwrap();
    rig.umount();
    assert!(!rig.is_mounted());
    rig.fsck().unwrap();
    rig.mount();
    assert_eq!(fs::read(rig.on_mount("d/small")).unwrap(), b"small");
    assert!(fs::read(rig.on_mount("large")).unwrap() == large, "large differs");
}

/// What the kernel keeps comes to the file system when the file is closed, synchronized or too much, appends
/// at the end; and no program goes past the kernel.
#[test]
fn writes_that_the_kernel_keeps_arrive() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    let mount = || amphi_ok(&["mount", "--free", "-o", "writeback", &rig.image(), &rig.mount_point()]);
    let path = rig.on_mount("many");
    let lines: Vec<_> = (0..5000).map(|number| format!("line {number}\n")).collect();
    let whole = lines.concat();
    mount();
    let mut file = fs::File::create(&path).unwrap();
    lines.iter().for_each(|line| file.write_all(line.as_bytes()).unwrap());
    assert_eq!(fs::read_to_string(&path).unwrap(), whole, "another descriptor sees them");
    file.sync_all().unwrap();
    drop(file);
    rig.kill_daemon();
    mount();
    assert!(fs::read_to_string(&path).unwrap() == whole, "what was synchronized is durable");
    let mut more = fs::OpenOptions::new().append(true).open(&path).unwrap();
    lines.iter().for_each(|line| more.write_all(line.as_bytes()).unwrap());
    drop(more);
    let mut agent = Agent::start(&rig);
    agent.number(&format!("open 1 {} 0", rig.on_mount("other").display()));
    assert_eq!(agent.number("write 1 5000 97"), 5000);
    let counts = agent.end();
    assert!(counts.values().all(|(queue, _)| *queue == 0), "{counts:?}");
    rig.umount();
    rig.fsck().unwrap();
    rig.mount();
    assert!(fs::read_to_string(&path).unwrap() == whole.repeat(2));
    assert_eq!(fs::read(rig.on_mount("other")).unwrap(), [b'a'; 5000]);
}

#[test]
fn a_mounted_image_is_nobody_elses() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    fs::create_dir(rig.path("other")).unwrap();
    for arguments in [&["mount", &rig.image(), &rig.path("other")][..], &["mkfs", &rig.image(), "--force"]] {
        let output = amphi(arguments);
        assert_eq!(output.status.code(), Some(1));
        let said = complaint(&output);
        assert!(said.contains("already mounted at") && said.contains("amphi umount"), "{said}");
    }
    assert_eq!(amphi(&["fsck", &rig.image()]).status.code(), Some(8));
    let again = complaint(&amphi(&["mount", &rig.image(), &rig.mount_point()]));
    assert!(again.contains("already mounted") || again.contains("mounted already"), "{again}");
}

#[test]
fn a_running_mount_answers_by_directory_and_by_image() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    let written = |path: &str| {
        json(&amphi_ok(&["stats", path, "--json"]))["device"]["host_bytes_written"].as_u64().unwrap()
    };
    let before = written(&rig.mount_point());
    fs::write(rig.on_mount("f"), vec![1_u8; 100_000]).unwrap();
    fs::File::open(rig.on_mount("f")).unwrap().sync_all().unwrap();
    let by_directory = written(&rig.mount_point());
    let by_image = written(&rig.image());
    assert!(by_directory >= before + 100_000, "{before} then {by_directory}");
    assert!(by_image >= by_directory);
    let info = json(&amphi_ok(&["info", &rig.image(), "--json"]));
    assert_eq!(info["mounted_at"], rig.mount_point());
    assert_eq!(info["pid"].as_u64().unwrap(), u64::from(rig.daemon_pid()));
    assert!(Path::new(&format!("/proc/{}", rig.daemon_pid())).exists());
}

#[test]
fn umount_refuses_while_a_file_is_in_use() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    let held = fs::File::create(rig.on_mount("held")).unwrap();
    let output = amphi(&["umount", &rig.mount_point()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("in use"), "{}", complaint(&output));
    assert!(fs::metadata(rig.on_mount("held")).is_ok(), "the mount still works");
    drop(held);
    rig.umount();
    rig.fsck().unwrap();
}

#[test]
fn a_killed_daemons_mount_is_cleared_and_recovered() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    fs::write(rig.on_mount("f"), b"synced").unwrap();
    fs::File::open(rig.on_mount("f")).unwrap().sync_all().unwrap();
    fs::create_dir(rig.on_mount("metadata needs no fsync")).unwrap();
    rig.kill_daemon();
    assert!(fs::metadata(rig.on_mount("f")).is_err(), "the mount is dead");
    rig.mount();
    assert_eq!(fs::read(rig.on_mount("f")).unwrap(), b"synced");
    assert!(rig.on_mount("metadata needs no fsync").is_dir());
    rig.kill_daemon();
    // Taking a dead mount away is what `umount` is for, too.
    rig.umount();
    assert!(!rig.is_mounted());
    rig.mount();
    rig.umount();
    rig.fsck().unwrap();
}

#[test]
fn a_power_cut_ends_the_mount_at_once_and_loses_nothing_synced() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    let pid = rig.daemon_pid();
    fs::write(rig.on_mount("f"), vec![3_u8; 50_000]).unwrap();
    fs::File::open(rig.on_mount("f")).unwrap().sync_all().unwrap();
    let held = fs::File::open(rig.on_mount("f")).unwrap();
    amphi_ok(&["power-cut", &rig.mount_point(), "--seed", "5"]);
    assert!(!rig.is_mounted());
    wait_until("the daemon is gone", || {
        fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| line.is_empty())
    });
    assert!(held.sync_all().is_err(), "an open file of a dead mount works no more");
    drop(held);
    rig.mount();
    assert!(fs::read(rig.on_mount("f")).unwrap() == vec![3_u8; 50_000]);
    let stats = json(&amphi_ok(&["stats", &rig.mount_point(), "--json"]));
    assert_eq!(stats["device"]["power_cuts"], 1);
    rig.umount();
    rig.fsck().unwrap();
}

#[test]
fn a_termination_signal_unmounts_and_flushes() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    let mut daemon = rig.mount_as_child(&["--free"]);
    fs::write(rig.on_mount("f"), b"not synced by anybody").unwrap();
    assert!(Command::new("kill").arg(daemon.id().to_string()).status().unwrap().success());
    assert!(daemon.wait());
    assert!(!rig.is_mounted());
    rig.mount();
    assert_eq!(fs::read(rig.on_mount("f")).unwrap(), b"not synced by anybody");
}

#[test]
fn a_read_only_mount_changes_nothing() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    amphi_ok(&["mount", "--free", "-o", "ro", &rig.image(), &rig.mount_point()]);
    let error = fs::write(rig.on_mount("f"), b"x").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn mounting_where_it_cannot_be_done_says_why() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    let output = amphi(&["mount", &rig.image(), &rig.path("nowhere")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("nowhere"), "{}", complaint(&output));
    fs::write(rig.path("file"), b"").unwrap();
    let output = amphi(&["mount", &rig.image(), &rig.path("file")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(complaint(&output).contains("file"), "{}", complaint(&output));
    // Neither attempt holds the image.
    rig.fsck().unwrap();
}

#[test]
fn a_full_file_system_says_so_and_works_on() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("64M");
    rig.mount();
    let chunk = vec![9_u8; 1 << 20];
    let mut file = fs::File::create(rig.on_mount("filler")).unwrap();
    let error =
        (0..100).find_map(|_| std::io::Write::write_all(&mut file, &chunk).err()).expect("64 MiB are full");
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    drop(file);
    fs::remove_file(rig.on_mount("filler")).unwrap();
    fs::write(rig.on_mount("small"), b"fits again").unwrap();
    rig.umount();
    rig.fsck().unwrap();
}

/// A disk that is full, or a reader that went away, is no reason to end a mount.
#[test]
fn what_a_daemon_cannot_say_is_dropped() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("64M");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut daemon = command(&["mount", &rig.image(), &rig.mount_point(), "--free", "--foreground"])
        .env("AMPHI_LOG", "trace")
        .stderr(full)
        .stdout(Stdio::null())
        .spawn()
        .expect("amphi starts");
    wait_until("it is mounted", || rig.is_mounted());
    fs::write(rig.on_mount("f"), b"x").expect("the mount is served");
    assert_eq!(fs::read(rig.on_mount("f")).unwrap(), b"x");
    rig.umount();
    assert!(daemon.wait().expect("an end").success());
}

#[test]
fn logs_are_set_aside_and_hold_no_colours() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    use std::os::unix::fs::MetadataExt;
    let rig = Rig::new("64M");
    let metadata = fs::metadata(rig.image()).unwrap();
    let log = format!("/run/amphi/{:x}-{:x}.log", metadata.dev(), metadata.ino());
    let mounted =
        command(&["mount", &rig.image(), &rig.mount_point(), "--free"]).env("AMPHI_LOG", "trace").status();
    assert!(mounted.is_ok_and(|status| status.success()));
    rig.umount();
    fs::OpenOptions::new().append(true).open(&log).and_then(|mut file| file.write_all(b"first\n")).unwrap();
    rig.mount();
    rig.umount();
    assert!(fs::read_to_string(format!("{log}.1")).unwrap().ends_with("first\n"), "set aside");
    assert!(!fs::read_to_string(&log).unwrap().contains("first"), "a new one");
    for file in [log.clone(), format!("{log}.1")] {
        let text = fs::read(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(!text.contains(&0x1b), "{file} holds escape sequences");
        fs::remove_file(file).unwrap();
    }
}

/// Another mount namespace has a copy of the mount: the one here is gone, the image is not free, and both are
/// said.
#[test]
fn an_unmount_says_who_holds_the_mount_elsewhere() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let rig = Rig::new("64M");
    rig.mount();
    let mut elsewhere = Command::new("unshare")
        .args(["--mount", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("unshare");
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let pid = elsewhere.id().to_string();
    wait_until("it has a namespace of its own", || namespace(&pid) != namespace("self"));
    let output = amphi(&["umount", &rig.mount_point(), "--timeout", "1"]);
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("process {pid} (")) && said.contains("another mount namespace"), "{said}");
    assert!(!rig.is_mounted(), "it is gone here");
    let fsck = amphi(&["fsck", &rig.image()]);
    assert!(complaint(&fsck).contains(&format!("process {pid} (")), "{}", complaint(&fsck));
    drop(elsewhere.stdin.take());
    elsewhere.wait().unwrap();
    wait_until("the daemon ends with the last mount", || amphi(&["fsck", &rig.image()]).status.success());
}

/// A second mount of the same file system in the same namespace holds it as well, and is named.
#[test]
fn an_unmount_names_a_bind_mount_that_holds_the_image() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let rig = Rig::new("64M");
    rig.mount();
    let second = rig.path("second");
    fs::create_dir(&second).unwrap();
    let bound = Command::new("mount").args(["--bind", &rig.mount_point(), &second]).status();
    assert!(bound.is_ok_and(|status| status.success()));
    let output = amphi(&["umount", &rig.mount_point(), "--timeout", "1"]);
    let unbound = Command::new("umount").arg(&second).status();
    assert!(unbound.is_ok_and(|status| status.success()));
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("still mounted at {second}")), "{said}");
    wait_until("the daemon ends with the last mount", || amphi(&["fsck", &rig.image()]).status.success());
}

/// As at boot: `mount -a` with a table and a helper of the test's own, in a mount namespace of its own.
#[test]
fn mount_8_mounts_by_the_table() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let rig = Rig::new("64M");
    let helper = rig.path("sbin");
    fs::create_dir(&helper).unwrap();
    amphi_ok(&["install-helper", "--to", &helper]);
    // A second time replaces the link.
    amphi_ok(&["install-helper", "--to", &helper]);
    let line = |first: &str| {
        let options = format!("{first},noexec,nofail,_netdev,x-systemd.automount,free,allow_other");
        format!("{} {} fuse.amphi {options} 0 0\n", rig.image(), rig.mount_point())
    };
    let (later, now) = (rig.path("later"), rig.path("now"));
    fs::write(&later, line("defaults,noauto")).unwrap();
    fs::write(&now, line("defaults,auto")).unwrap();
    // mount(8) looks for helpers in /sbin alone, which in this namespace is the test's own directory.
    let script = format!(
        "mount --bind {helper} /sbin && \
         mount -a -T {later} && ! grep -q ' {mount} ' /proc/self/mountinfo && \
         mount -a -T {now} && grep ' {mount} ' /proc/self/mountinfo | grep -q noexec && \
         cp /bin/true {mount}/ && ! {mount}/true && {amphi} umount {mount}",
        mount = rig.mount_point(),
        amphi = env!("CARGO_BIN_EXE_amphi"),
    );
    let mounted = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().expect("unshare");
    assert!(mounted.status.success(), "{}", complaint(&mounted));
    amphi_ok(&["fsck", &rig.image()]);
}

/// As in a container: the session that the command belongs to began outside of its PID namespace.
#[test]
fn a_mount_works_where_its_session_began_in_another_pid_namespace() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let rig = Rig::new("64M");
    let script = format!(
        "{amphi} mount --free {image} {mount} && echo kept > {mount}/f && {amphi} umount {mount}",
        amphi = env!("CARGO_BIN_EXE_amphi"),
        image = rig.image(),
        mount = rig.mount_point(),
    );
    let mounted = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "sh", "-c", &script])
        .output()
        .expect("unshare");
    assert!(mounted.status.success(), "{}", complaint(&mounted));
    rig.mount();
    assert_eq!(fs::read(rig.on_mount("f")).unwrap(), b"kept\n");
}

#[test]
fn an_image_that_cannot_be_written_is_mounted_and_checked_all_the_same() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let rig = Rig::new("64M");
    rig.mount();
    fs::write(rig.on_mount("f"), b"kept").unwrap();
    rig.kill_daemon();
    amphi(&["umount", &rig.mount_point()]);
    let before = fs::read(rig.image()).unwrap();
    // A crashed file system on a medium that is read-only: recovery is done in memory.
    let medium = rig.path("medium");
    fs::create_dir(&medium).unwrap();
    let bind = |words: &[&str]| assert!(Command::new("mount").args(words).status().unwrap().success());
    bind(&["--bind", &rig.path(""), &medium]);
    bind(&["-o", "remount,bind,ro", &medium]);
    let image = format!("{medium}/ssd.img");
    amphi_ok(&["fsck", "-n", &image]);
    assert!(!amphi(&["fsck", &image]).status.success(), "the check that may change something cannot");
    assert!(!amphi(&["mount", &image, &rig.mount_point(), "--free"]).status.success());
    amphi_ok(&["mount", &image, &rig.mount_point(), "--free", "-o", "ro"]);
    assert!(rig.on_mount("f").exists());
    // No lock keeps a second daemon away. It would take the first one's socket, and `umount` would ask it.
    let other = rig.path("other");
    fs::create_dir(&other).unwrap();
    let second = amphi(&["mount", &image, &other, "--free", "-o", "ro"]);
    assert!(!second.status.success() && complaint(&second).contains("already"), "{}", complaint(&second));
    rig.umount();
    bind(&["--make-private", &medium]);
    // The daemon has the image until it has ended, a moment after the mount.
    wait_until("nobody uses the medium", || {
        Command::new("umount").arg(&medium).status().expect("umount").success()
    });
    assert!(fs::read(rig.image()).unwrap() == before, "the image stays as it was");
}
