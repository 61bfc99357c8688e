//! The kernel's own file systems on an exported SSD: made, filled, crashed in both ways under load, checked,
//! and read again.
//!
//! The SSD's write buffer is volatile here, so that a flush which did not arrive loses data in the power cut.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::rig::{Rig, amphi_ok, can_mount, complaint, wait_until};

/// One of the kernel's file systems, with its programs.
struct KernelFs {
    name: &'static str,
    mkfs: &'static [&'static str],
    /// Replays the log and leaves the file system such that `check` finds no fault with it.
    replay: fn(&Disk),
    check: &'static [&'static str],
}

const EXT4: KernelFs = KernelFs {
    name: "ext4",
    mkfs: &["mkfs.ext4", "-q", "-F"],
    replay: |disk| {
        let output = run("e2fsck", &["-p", disk.device()]);
        assert!(matches!(output.status.code(), Some(0 | 1)), "e2fsck -p: {}", said(&output));
    },
    check: &["e2fsck", "-f", "-n"],
};

const XFS: KernelFs = KernelFs {
    name: "xfs",
    mkfs: &["mkfs.xfs", "-q", "-f"],
    replay: |disk| {
        disk.mount("xfs");
        disk.umount();
    },
    check: &["xfs_repair", "-n"],
};

const BTRFS: KernelFs = KernelFs {
    name: "btrfs",
    mkfs: &["mkfs.btrfs", "-q", "-f"],
    // Its trees are whole at any time; the log of fsyncs is replayed by the mount that follows.
    replay: |_| {},
    check: &["btrfs", "check"],
};

#[test]
fn ext4_survives_on_an_exported_ssd() {
    survives(&EXT4);
}

#[test]
fn xfs_survives_on_an_exported_ssd() {
    survives(&XFS);
}

#[test]
fn btrfs_survives_on_an_exported_ssd() {
    survives(&BTRFS);
}

/// They differ in what they leave: after a kill the device still has all that it was given, after a power cut
/// what it promised.
#[derive(Clone, Copy, Debug)]
enum Crash {
    /// `kill -9` of the exporter.
    Kill,
    /// `amphi power-cut` with this seed.
    PowerCut(u64),
}

/// Makes, fills, crashes and checks one file system.
fn survives(kernel_fs: &KernelFs) {
    if !can_mount() || !can_attach(kernel_fs) {
        return;
    }
    let mut disk = Disk::new();
    disk.export();
    run_ok(kernel_fs.mkfs[0], &[&kernel_fs.mkfs[1..], &[disk.device()]].concat());
    assert!(disk.count("pages_trimmed") > 100_000, "mkfs discards the whole disk, and the SSD hears of it");
    disk.mount(kernel_fs.name);
    unpack(&disk);
    run_ok("sync", &["-f", &disk.media()]);
    compare(&disk);

    for crash in [Crash::Kill, Crash::PowerCut(7), Crash::PowerCut(8), Crash::PowerCut(9)] {
        let acknowledged = write_until(&disk, crash);
        disk.detach();
        disk.export();
        (kernel_fs.replay)(&disk);
        let checked = run(kernel_fs.check[0], &[&kernel_fs.check[1..], &[disk.device()]].concat());
        assert!(checked.status.success(), "{} after {crash:?}: {}", kernel_fs.check[0], said(&checked));
        disk.mount(kernel_fs.name);
        compare(&disk);
        for number in 0..acknowledged {
            let path = disk.synced(crash, number);
            let found =
                fs::read(&path).unwrap_or_else(|error| panic!("{crash:?}: {}: {error}", path.display()));
            assert!(found == contents(number), "{crash:?}: {} differs", path.display());
        }
        println!("{}: {acknowledged} files synced before {crash:?} are there", kernel_fs.name);
    }
    disk.umount();
    disk.detach();
    disk.rig.umount();
    assert!(!disk.rig.is_mounted());
}

/// Writes and syncs one file after another while `crash` happens, and answers how many were acknowledged.
fn write_until(disk: &Disk, crash: Crash) -> usize {
    const BEFORE_THE_CRASH: usize = 40;
    let directory = disk.synced(crash, 0).parent().expect("a directory").to_owned();
    fs::create_dir(&directory).expect("a directory for synced files");
    let acknowledged = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0.. {
                let path = directory.join(number.to_string());
                let written = fs::File::create(&path).and_then(|mut file| {
                    file.write_all(&contents(number))?;
                    file.sync_all()?;
                    fs::File::open(&directory)?.sync_all()
                });
                if written.is_err() {
                    break;
                }
                acknowledged.store(number + 1, Ordering::Release);
            }
        });
        wait_until("files are synced", || acknowledged.load(Ordering::Acquire) >= BEFORE_THE_CRASH);
        disk.crash(crash);
    });
    acknowledged.into_inner()
}

/// What file `number` holds: from some bytes to some pages.
fn contents(number: usize) -> Vec<u8> {
    (0..number * 7919 % 50_000 + 10).map(|index| ((index * 31) ^ number) as u8).collect()
}

/// This repository's sources, as they are now, and a file that is larger than any one command.
fn unpack(disk: &Disk) {
    let archive = disk.rig.path("sources.tar");
    run_ok("tar", &["-C", &repository(), "-cf", &archive, "crates", "docs"]);
    fs::create_dir(disk.sources()).expect("a directory");
    for place in [disk.sources(), disk.media()] {
        run_ok("tar", &["-C", &place, "-xf", &archive]);
    }
    fs::write(disk.large_file(), large()).expect("the large file fits");
}

/// What was unpacked is there.
fn compare(disk: &Disk) {
    for tree in ["crates", "docs"] {
        run_ok("diff", &["-r", &format!("{}/{tree}", disk.sources()), &format!("{}/{tree}", disk.media())]);
    }
    assert!(fs::read(disk.large_file()).expect("the large file") == large(), "the large file differs");
}

fn large() -> Vec<u8> {
    (0..5_000_000_u32).flat_map(u32::to_le_bytes).collect()
}

fn repository() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../..").to_owned()
}

/// Whether loop devices and the file system can be had; says so if not.
fn can_attach(kernel_fs: &KernelFs) -> bool {
    let missing = if !rustix::process::geteuid().is_root() {
        Some("only root can attach loop devices".to_owned())
    } else if !Path::new("/dev/loop-control").exists() || run("losetup", &["--find"]).status.code() != Some(0)
    {
        Some("there are no loop devices here".to_owned())
    } else if !fs::read_to_string("/proc/filesystems")
        .is_ok_and(|list| list.lines().any(|line| line.trim() == kernel_fs.name))
    {
        Some(format!("the kernel has no {}", kernel_fs.name))
    } else if Command::new(kernel_fs.mkfs[0]).arg("-V").output().is_err() {
        Some(format!("{} is not installed", kernel_fs.mkfs[0]))
    } else {
        None
    };
    if let Some(reason) = &missing {
        println!("SKIPPED: {}: {reason}", kernel_fs.name);
    }
    missing.is_none()
}

/// An exported SSD, a loop device on it, and a place to mount. All are taken away when it is dropped, also by
/// a failed test.
struct Disk {
    rig: Rig,
    device: Option<String>,
}

/// Finding a free loop device and taking it are two steps of `losetup`; tests that run at once would race in
/// between.
static ATTACHING: Mutex<()> = Mutex::new(());

impl Disk {
    /// An empty SSD with a volatile write buffer.
    fn new() -> Self {
        let rig = Rig::empty();
        let profile =
            fs::read_to_string(format!("{}/profiles/mssd-pcie3.toml", repository())).expect("a profile");
        let volatile = profile.replace("block_durability = \"completion\"", "block_durability = \"flush\"");
        assert_ne!(profile, volatile, "the profile says what this test changes");
        fs::write(rig.path("volatile.toml"), volatile).expect("a profile");
        amphi_ok(&[
            "mkfs",
            &rig.image(),
            "--fs",
            "none",
            "--size",
            "512M",
            "--profile",
            &rig.path("volatile.toml"),
        ]);
        fs::create_dir(rig.path("media")).expect("a mount point");
        Self { rig, device: None }
    }

    /// Exports the SSD and attaches a loop device.
    fn export(&mut self) {
        amphi_ok(&["export", "--free", &self.rig.image(), &self.rig.mount_point()]);
        let _alone = ATTACHING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let file = format!("{}/ssd", self.rig.mount_point());
        let printed = run_ok("losetup", &["--find", "--show", "--direct-io=on", &file]);
        self.device = Some(printed.trim().to_owned());
    }

    fn device(&self) -> &str {
        self.device.as_deref().expect("an attached disk")
    }

    fn media(&self) -> String {
        self.rig.path("media")
    }

    /// What was unpacked, beside the disk.
    fn sources(&self) -> String {
        self.rig.path("sources")
    }

    fn large_file(&self) -> PathBuf {
        Path::new(&self.media()).join("large")
    }

    fn synced(&self, crash: Crash, number: usize) -> PathBuf {
        Path::new(&self.media()).join(format!("before {crash:?}")).join(number.to_string())
    }

    /// Ends the exporter.
    fn crash(&self, crash: Crash) {
        match crash {
            Crash::Kill => self.rig.kill_daemon(),
            Crash::PowerCut(seed) => {
                amphi_ok(&["power-cut", &self.rig.mount_point(), "--seed", &seed.to_string()]);
            }
        }
    }

    fn mount(&self, name: &str) {
        run_ok("mount", &["-t", name, self.device(), &self.media()]);
    }

    fn umount(&self) {
        // As in `Rig::umount`.
        wait_until("nobody uses the disk's mount", || {
            let output = Command::new("umount").arg(self.media()).output().expect("umount starts");
            let busy = complaint(&output).contains("busy");
            assert!(output.status.success() || busy, "umount: {}", complaint(&output));
            output.status.success()
        });
    }

    /// One of the SSD's counters.
    fn count(&self, name: &str) -> u64 {
        let stats = amphi_ok(&["stats", &self.rig.mount_point(), "--json"]);
        let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
        stats["device"][name].as_u64().expect("a counter")
    }

    /// Takes mount and loop device away, whether or not somebody still answers below them.
    fn detach(&mut self) {
        let media = self.media();
        let table = fs::read_to_string("/proc/self/mountinfo").expect("/proc");
        if table.lines().any(|line| line.split(' ').nth(4) == Some(&media)) {
            run_ok("umount", &["--lazy", &media]);
        }
        let Some(device) = self.device.take() else { return };
        run_ok("losetup", &["--detach", &device]);
        let backing = format!("/sys/block/{}/loop/backing_file", device.trim_start_matches("/dev/"));
        let own = format!("{}/ssd", self.rig.mount_point());
        wait_until(&format!("{device} is detached"), || {
            fs::read_to_string(&backing).map_or(true, |file| !file.starts_with(&own))
        });
        // Btrfs remembers the devices it has seen, by name; the file system comes back under another.
        let _ = Command::new("btrfs").args(["device", "scan", "--forget"]).output();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The failure is what matters; a second panic would hide it.
            let _ = Command::new("umount").args(["--lazy", &self.media()]).output();
            if let Some(device) = self.device.take() {
                let _ = Command::new("losetup").args(["--detach", &device]).output();
            }
        } else {
            self.detach();
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Runs a program, which must succeed, and returns what it printed.
fn run_ok(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    assert!(output.status.success(), "{program} {arguments:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), complaint(output))
}
