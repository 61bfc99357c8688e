//! Suites of others on a mount: pjdfstest (what POSIX promises), fsx (contents under random operations),
//! stress-ng's file system class and dbench (load). They take minutes and need programs that
//! `cargo xtask test --only suites` installs, so that they run there and not with the other tests. Each ends
//! with an unmount and a check of the image. On ByteFS they run through `/dev/fuse`, where the kernel can be
//! made to offer them through its rings, and by `amphi run` (`accelerated`); shorter on every other file
//! system (`others`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use crate::rig::{Rig, amphi_ok, can_mount, is_long};
use crate::rings;

mod accelerated;
mod others;

/// Operations that fsx does in all, and with `--long`.
const FSX_OPERATIONS: u64 = 1_000_000;
const FSX_OPERATIONS_LONG: u64 = 4_000_000;
/// Through rings without `--long`; with it, [`FSX_OPERATIONS`].
const FSX_OPERATIONS_RINGS: u64 = 300_000;

/// The file system on which they run longest.
const BYTEFS: &str = "bytefs";

/// How requests of a mount come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Device,
    Rings,
}

impl Transport {
    const fn name(self) -> &'static str {
        match self {
            Self::Device => "through /dev/fuse",
            Self::Rings => "through rings",
        }
    }

    /// Mounts for all users; false, and said, where the kernel has no rings.
    fn mount(self, rig: &Rig) -> bool {
        if self == Self::Rings {
            return rings::mount(rig, ",allow_other");
        }
        let options = "transport=device,allow_other";
        amphi_ok(&["mount", "--free", "-o", options, &rig.image(), &rig.mount_point()]);
        true
    }
}

/// Whether suites can run here; says so if not.
fn can_run(programs: &[&str]) -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: the external suites have to be root");
        return false;
    }
    for program in programs {
        let found = std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()));
        if !found {
            println!("SKIPPED: {program} is not installed; `cargo xtask test --only suites` installs it");
            return false;
        }
    }
    can_mount()
}

/// A program that is killed after `seconds`: a file system that hangs must not hang the suite.
fn limited(seconds: u64, program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &seconds.to_string(), program]);
    command
}

/// What a program said, both streams.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Unmounts and checks; `after` is what ran.
fn leave(rig: &Rig, after: &str) {
    rig.umount();
    rig.fsck().unwrap_or_else(|error| panic!("after {after}: {error}"));
}

#[test]
fn pjdfstest() {
    pjdfstest_by(BYTEFS, Transport::Device);
}

#[test]
fn pjdfstest_through_rings() {
    pjdfstest_by(BYTEFS, Transport::Rings);
}

fn pjdfstest_by(file_system: &str, transport: Transport) {
    if !can_run(&["pjdfstest"]) {
        return;
    }
    let rig = Rig::of(file_system, "1G");
    if !transport.mount(&rig) {
        return;
    }
    pjdfstest_configuration(&rig);
    let mut command = limited(600, "pjdfstest");
    command.args(["-c", &rig.path("pjdfstest.toml"), "-s", &rig.path(""), "-p", &rig.mount_point()]);
    let report = said(&command.output().unwrap());
    let summary = report.lines().rfind(|line| line.starts_with("Summary")).unwrap_or("no summary");
    println!("pjdfstest on {file_system} {}: {summary}", transport.name());
    let failed: Vec<&str> = report.lines().filter(|line| line.contains("FAILED")).collect();
    assert!(summary.contains(": 0 failed"), "{summary}\n{}", failed.join("\n"));
    leave(&rig, "pjdfstest");
}

/// Which optional features it tests, and whose users it may be.
fn pjdfstest_configuration(rig: &Rig) {
    let configuration = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutimensat = {}\nutime_now = {}\n\
        [settings]\nnaptime = 0.01\nallow_remount = false\n\
        [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";
    fs::write(rig.path("pjdfstest.toml"), configuration).unwrap();
}

/// What fsx does to a file: a name, the alignment of offsets and sizes, the size of the file, weights.
struct Mix {
    name: &'static str,
    align: u32,
    length: u32,
    weights: &'static [(&'static str, u32)],
}

const MIXES: [Mix; 5] = [
    Mix {
        name: "buffered",
        align: 1,
        length: 128 << 10,
        weights: &[
            ("read", 10),
            ("write", 10),
            ("truncate", 3),
            ("close_open", 2),
            ("fsync", 1),
            ("fdatasync", 1),
            ("sendfile", 3),
        ],
    },
    Mix {
        name: "mapped",
        align: 1,
        length: 128 << 10,
        weights: &[
            ("read", 5),
            ("write", 5),
            ("mapread", 10),
            ("mapwrite", 10),
            ("truncate", 3),
            ("invalidate", 2),
            ("fsync", 1),
        ],
    },
    Mix {
        name: "ranges",
        align: 1,
        length: 256 << 10,
        weights: &[
            ("read", 8),
            ("write", 8),
            ("punch_hole", 5),
            ("posix_fallocate", 5),
            ("copy_file_range", 5),
            ("truncate", 3),
            ("posix_fadvise", 1),
        ],
    },
    Mix {
        name: "everything",
        align: 1,
        length: 512 << 10,
        weights: &[
            ("read", 5),
            ("write", 5),
            ("mapread", 5),
            ("mapwrite", 5),
            ("truncate", 3),
            ("punch_hole", 3),
            ("posix_fallocate", 3),
            ("copy_file_range", 3),
            ("sendfile", 2),
            ("close_open", 1),
            ("invalidate", 1),
            ("fsync", 1),
            ("fdatasync", 1),
            ("posix_fadvise", 1),
        ],
    },
    // Without posix_fallocate: with an alignment fsx asks to reserve empty ranges, which no file system does.
    Mix {
        name: "aligned",
        align: 4096,
        length: 512 << 10,
        weights: &[
            ("read", 5),
            ("write", 5),
            ("mapread", 3),
            ("mapwrite", 3),
            ("truncate", 3),
            ("punch_hole", 3),
            ("copy_file_range", 3),
            ("fsync", 1),
        ],
    },
];

impl Mix {
    /// Writes the configuration to the directory of `rig`.
    fn write(&self, rig: &Rig) -> PathBuf {
        let mut text = format!(
            "flen = {}\n[opsize]\nmax = 16384\nmin = {align}\nalign = {align}\n[weights]\n",
            self.length,
            align = self.align
        );
        for (operation, weight) in self.weights {
            text += &format!("{operation} = {weight}\n");
        }
        let path = PathBuf::from(rig.path(&format!("{}.toml", self.name)));
        fs::write(&path, text).unwrap();
        path
    }
}

#[test]
fn fsx() {
    fsx_by(BYTEFS, Transport::Device, if is_long() { FSX_OPERATIONS_LONG } else { FSX_OPERATIONS });
}

#[test]
fn fsx_through_rings() {
    fsx_by(BYTEFS, Transport::Rings, if is_long() { FSX_OPERATIONS } else { FSX_OPERATIONS_RINGS });
}

/// Every mix with 1, 2, 3 and 4 processes at once, each on its own file and with its own seed.
fn fsx_by(file_system: &str, transport: Transport, total: u64) {
    if !can_run(&["fsx"]) {
        return;
    }
    let runs = MIXES.len() as u64 * (1 + 2 + 3 + 4);
    let each = total.div_ceil(runs);
    let start = Instant::now();
    let mut seed = 0;
    for processes in 1..=4 {
        let rig = Rig::of(file_system, "256M");
        if !transport.mount(&rig) {
            return;
        }
        for mix in &MIXES {
            let configuration = mix.write(&rig);
            let children: Vec<_> = (0..processes)
                .map(|_| {
                    seed += 1;
                    let file = rig.on_mount(&format!("{}-{seed}", mix.name));
                    let mut command = limited(1800, "fsx");
                    command.args(["-q", "-N", &each.to_string(), "-S", &seed.to_string()]);
                    command.args(["-P", &rig.path(""), "-f"]).arg(&configuration).arg(file);
                    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
                    (seed, child)
                })
                .collect();
            for (seed, child) in children {
                let output = child.wait_with_output().unwrap();
                assert!(
                    output.status.success(),
                    "fsx -N {each} -S {seed} on {file_system} with the mix {:?}, {processes} at once, {}: {}\n{}",
                    mix.name,
                    transport.name(),
                    output.status,
                    said(&output)
                );
            }
            println!(
                "fsx on {file_system} {}: {} x {processes}: clean, {} operations so far, {:.0} s",
                transport.name(),
                mix.name,
                seed * each,
                start.elapsed().as_secs_f64()
            );
        }
        leave(&rig, &format!("fsx with {processes} processes"));
    }
}

/// The file system class of stress-ng 0.15, without what never touches the mount: `binderfs` and `bind-mount`
/// mount other things, `procfs` reads /proc, `eventfd` and `ioprio` have no file.
const STRESSORS: [&str; 43] = [
    "access",
    "chattr",
    "chdir",
    "chmod",
    "chown",
    "copy-file",
    "dentry",
    "dir",
    "dirdeep",
    "dirmany",
    "dnotify",
    "dup",
    "fallocate",
    "fanotify",
    "fcntl",
    "fiemap",
    "file-ioctl",
    "filename",
    "flock",
    "fpunch",
    "fsize",
    "fstat",
    "getdent",
    "handle",
    "hdd",
    "inode-flags",
    "inotify",
    "io",
    "iomix",
    "lease",
    "link",
    "locka",
    "lockf",
    "lockofd",
    "mknod",
    "open",
    "rename",
    "symlink",
    "sync-file",
    "touch",
    "utime",
    "verity",
    "xattr",
];

/// Stressors that find that FUSE does not offer what they test, and say so.
const NOT_OFFERED: [&str; 2] = ["fiemap", "verity"];

#[test]
fn stress_ng() {
    stress_ng_by(BYTEFS, Transport::Device);
}

#[test]
fn stress_ng_through_rings() {
    stress_ng_by(BYTEFS, Transport::Rings);
}

fn stress_ng_by(file_system: &str, transport: Transport) {
    if !can_run(&["stress-ng"]) {
        return;
    }
    let seconds = if is_long() { "10s" } else { "1s" };
    let rig = Rig::of(file_system, "1G");
    for stressor in STRESSORS {
        if !transport.mount(&rig) {
            return;
        }
        let mut command = limited(180, "stress-ng");
        command.args([&format!("--{stressor}"), "2", "--timeout", seconds, "--verify"]);
        command.args(["--temp-path", &rig.mount_point()]);
        if matches!(stressor, "iomix" | "hdd" | "fallocate" | "copy-file") {
            // The defaults are larger than the image.
            command.args([&format!("--{stressor}-bytes"), "128M"]);
        }
        let output = command.current_dir(rig.path("")).output().unwrap();
        let said = said(&output);
        assert!(
            output.status.success(),
            "stress-ng --{stressor} on {file_system} {}: {}\n{said}",
            transport.name(),
            output.status
        );
        let skips = said.contains("skipping stress");
        assert!(!skips || NOT_OFFERED.contains(&stressor), "stress-ng --{stressor} did nothing:\n{said}");
        assert_empty(Path::new(&rig.mount_point()), stressor);
        leave(&rig, stressor);
    }
    let run = STRESSORS.len() - NOT_OFFERED.len();
    let name = transport.name();
    println!(
        "stress-ng on {file_system} {name}: {run} stressors, {seconds} each, clean; not offered through FUSE: \
         {NOT_OFFERED:?}"
    );
}

/// Stressors remove what they made; what is left could not be removed.
fn assert_empty(directory: &Path, stressor: &str) {
    let left: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "stress-ng --{stressor} left {left:?}");
}

#[test]
fn dbench() {
    dbench_by(BYTEFS, Transport::Device, if is_long() { 60 } else { 10 });
}

#[test]
fn dbench_through_rings() {
    dbench_by(BYTEFS, Transport::Rings, if is_long() { 60 } else { 10 });
}

fn dbench_by(file_system: &str, transport: Transport, seconds: u64) {
    if !can_run(&["dbench"]) {
        return;
    }
    let rig = Rig::of(file_system, "1G");
    if !transport.mount(&rig) {
        return;
    }
    let mut command = limited(180, "dbench");
    command.args(["-t", &seconds.to_string(), "-D", &rig.mount_point(), "4"]);
    let output = command.output().unwrap();
    let report = said(&output);
    println!("dbench on {file_system} {}: {}", transport.name(), throughput(&report));
    dbench_is_clean(&output, &report);
    leave(&rig, "dbench");
}

fn throughput(report: &str) -> &str {
    report.lines().find(|line| line.starts_with("Throughput")).unwrap_or("no throughput")
}

fn dbench_is_clean(output: &Output, report: &str) {
    assert!(output.status.success() && throughput(report).contains("MB/sec"), "{report}");
    // The first semaphore of a machine's life has the number 0, which dbench takes for none; its clients then
    // begin unevenly.
    let harmless = "failed to create barrier semaphore";
    let complaint = report
        .lines()
        .filter(|line| line.trim() != harmless)
        .find(|line| line.contains("failed") || line.contains("ERROR"));
    assert_eq!(complaint, None, "{report}");
}

/// Files that the kernel and the daemon are made to know at once.
const CACHED: usize = 200_000;

/// What the daemon may keep of each, in bytes.
const PER_FILE: u64 = 2048;

/// Two hundred thousand files, all looked up: the daemon holds no descriptor for any, and a bounded number of
/// bytes.
#[test]
fn many_cached_files_cost_little() {
    if !can_run(&[]) {
        return;
    }
    let rig = Rig::new("4G");
    rig.mount_for_all();
    let pid = rig.daemon_pid();
    let memory = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    let descriptors = || fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let (memory_before, descriptors_before) = (memory(), descriptors());
    for directory in 0..200 {
        fs::create_dir(rig.on_mount(&directory.to_string())).unwrap();
        for file in 0..CACHED / 200 {
            fs::File::create(rig.on_mount(&format!("{directory}/{file}"))).unwrap();
        }
    }
    let grown = memory().saturating_sub(memory_before);
    println!("{CACHED} cached files: {} MiB, {} bytes each", grown >> 20, grown / CACHED as u64);
    assert!(grown < CACHED as u64 * PER_FILE, "{grown} bytes for {CACHED} files");
    assert!(
        descriptors() <= descriptors_before + 8,
        "{} descriptors, {descriptors_before} before",
        descriptors()
    );
    leave(&rig, "many files");
}
