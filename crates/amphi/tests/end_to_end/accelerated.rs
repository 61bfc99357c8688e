//! `amphi run`: a program whose calls go through the queue and programs whose calls go through the kernel see
//! one file system, at once.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use amphi_rt::random::Generator;

use crate::rig::{self, Rig, amphi_ok, can_mount};

/// Builds the library and puts it beside the command, where `amphi run` finds it.
pub fn library() {
    static BUILT: std::sync::Once = std::sync::Once::new();
    BUILT.call_once(build);
}

fn build() {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "amphi-front-preload"])
        .args(if cfg!(debug_assertions) { None } else { Some("--release") })
        .status()
        .expect("cargo starts");
    assert!(built.success(), "the library is not built");
}

/// The program that does what it is told, compiled in the rig's directory.
fn agent(rig: &Rig) -> PathBuf {
    let program = PathBuf::from(rig.path("agent"));
    if program.exists() {
        return program;
    }
    rig.compiled("agent", &["-O1", "-Wall", "-Werror", "-Wno-error=unused-result", "-pthread"]).into()
}

/// An accelerated process.
pub struct Agent {
    pub child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Agent {
    /// With descriptors of the kernel's.
    pub fn start(rig: &Rig) -> Self {
        Self::start_with(rig, &["--real-descriptors"])
    }

    /// With options of `amphi run`.
    pub fn start_with(rig: &Rig, options: &[&str]) -> Self {
        library();
        let mut command = rig::command(&["run", "--trace-calls"]);
        Self::spawn(command.args(options).arg("--").arg(agent(rig)))
    }

    /// As another user, who can reach the rig's directory and perhaps not the command: with a copy of the
    /// library there, as `amphi run` would load it.
    pub fn as_user(rig: &Rig, user: u32) -> Self {
        library();
        let name = "libamphi_preload.so";
        let built = Path::new(env!("CARGO_BIN_EXE_amphi")).with_file_name(name);
        fs::copy(built, rig.path(name)).expect("the library is built");
        let mut command = Command::new(agent(rig));
        command.env("LD_PRELOAD", rig.path(name)).env("AMPHI_RUN", "1").env("AMPHI_TRACE_CALLS", "1");
        Self::spawn(command.uid(user).gid(user))
    }

    /// A program that is told what to do on its standard input.
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("amphi starts");
        let ask = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, ask, answers }
    }

    /// Lets it do one thing; what it says of it.
    pub fn asked(&mut self, line: &str) -> String {
        self.told(line);
        self.said(line)
    }

    /// The next line that it says, of `what`.
    pub fn said(&mut self, what: &str) -> String {
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("the agent answers");
        assert!(!answer.is_empty(), "the agent ended at: {what}");
        answer.trim().to_owned()
    }

    /// As [`asked`](Self::asked), with a number for an answer.
    pub fn number(&mut self, line: &str) -> i64 {
        let answer = self.asked(line);
        answer.parse().unwrap_or_else(|_| panic!("{line}: {answer}"))
    }

    /// Lets it do something without an end.
    pub fn told(&mut self, line: &str) {
        writeln!(self.ask, "{line}").expect("the agent listens");
    }

    /// Ends it. What it counted: calls by the queue, and by the kernel.
    pub fn end(self) -> BTreeMap<String, (u64, u64)> {
        counts(&self.report())
    }

    /// Ends it. What it said of its calls.
    pub fn report(mut self) -> String {
        drop(self.ask);
        let mut report = String::new();
        let mut stderr = self.child.stderr.take().expect("piped");
        std::io::Read::read_to_string(&mut stderr, &mut report).expect("text");
        assert!(self.child.wait().expect("an end").success(), "{report}");
        report
    }
}

/// The calls of a report: by the queue, and by the kernel.
pub fn counts(report: &str) -> BTreeMap<String, (u64, u64)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?.to_owned();
        Some((name, (words.next()?.parse().ok()?, words.next()?.parse().ok()?)))
    };
    report.lines().filter_map(line).collect()
}

/// What the agent tells of bytes in their place.
pub fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

fn plain(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("opened")
}

#[test]
fn calls_go_through_the_queue_and_do_what_they_do_elsewhere() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    let mut agent = Agent::start(&rig);
    let path = |name: &str| rig.on_mount(name).display().to_string();
    agent.number(&format!("open 1 {} 0", path("f")));
    assert_eq!(agent.number("write 1 5000 97"), 5000);
    assert_eq!((agent.number("seek 1"), agent.number("size 1")), (5000, 5000));
    assert_eq!(fs::read(path("f")).unwrap(), [b'a'; 5000]);
    assert_eq!(agent.number("sync 1"), 0);
    assert_eq!(agent.asked("pread 1 4990 100"), format!("10 {}", sum(&[b'a'; 10])));
    assert_eq!(agent.number("truncate 1 10"), 0);
    assert_eq!(fs::metadata(path("f")).unwrap().len(), 10);
    // 2000 octal is O_APPEND.
    agent.number(&format!("open 2 {} {}", path("f"), 0o2000));
    assert_eq!(agent.number("write 2 3 98"), 3);
    assert_eq!(agent.number("seek 2"), 13, "an append moves the offset to the end");
    assert_eq!(agent.number(&format!("mkdir {}", path("d"))), 0);
    assert_eq!(fs::metadata(path("d")).unwrap().mode() & 0o777, 0o755);
    assert_eq!(agent.number(&format!("mkdir {}", path("d"))), -17, "EEXIST");
    assert_eq!(agent.number(&format!("rename {} {}", path("f"), path("d/g"))), 0);
    assert!(!rig.on_mount("f").exists() && rig.on_mount("d/g").exists());
    assert_eq!(agent.number(&format!("rmdir {}", path("d"))), -39, "ENOTEMPTY");
    assert_eq!(agent.number(&format!("unlink {}", path("d/g"))), 0);
    assert_eq!(agent.number("size 1"), 13, "an open file lives without a name");
    assert_eq!(agent.number(&format!("chdir {}", path("."))), 0);
    assert_eq!(agent.number("rmdir d"), 0, "a path from the current directory");
    let counts = agent.end();
    for call in ["write", "fsync", "mkdir", "rename", "rmdir", "unlink", "ftruncate", "open"] {
        assert_eq!(counts[call].1, 0, "{call} went through the kernel: {counts:?}");
        assert!(counts[call].0 > 0, "{call} did not go through the queue: {counts:?}");
    }
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}

#[test]
fn forks_mappings_threads_and_numbers_used_again() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    let mut agent = Agent::start(&rig);
    let path = |name: &str| rig.on_mount(name).display().to_string();
    agent.number(&format!("open 1 {} 0", path("threads")));
    assert_eq!(agent.number("threads 1"), 4 * 200 * 8);
    let written = fs::read(path("threads")).unwrap();
    assert_eq!(written.len(), 4 * 200 * 8);
    for letter in b'a'..b'e' {
        assert_eq!(written.iter().filter(|byte| **byte == letter).count(), 200 * 8);
    }
    assert_eq!(agent.number(&format!("reused {} {}", path("mine"), path("other"))), 4);
    assert_eq!(fs::read(path("other")).unwrap(), b"other");
    agent.number(&format!("open 2 {} 0", path("mapped")));
    assert_eq!(agent.number("mapped 2"), 1);
    assert_eq!(fs::read(path("mapped")).unwrap(), b"beyond");
    agent.number(&format!("open 3 {} 0", path("forked")));
    assert_eq!(agent.number("fork 3"), 17);
    assert_eq!(fs::read(path("forked")).unwrap(), b"parentchildparent");
    agent.end();
    rig.umount();
}

/// One file, names and contents, changed at random from both sides; after each change both sides see the
/// same.
#[test]
fn both_doors_show_each_change_at_once() {
    if !can_mount() {
        return;
    }
    let seed = rig::seed();
    println!("replay with AMPHI_SEED={seed}");
    let mut random = Generator::new(seed);
    let rig = Rig::new("256M");
    rig.mount();
    let mut agent = Agent::start(&rig);
    let names = ["a", "b"].map(|name| rig.on_mount(name));
    let mut bytes: [Vec<u8>; 2] = Default::default();
    let mut files = names.each_ref().map(|name| plain(name));
    // Both sides keep what they append by open all the time: the kernel's idea of where the file ends gets
    // old.
    let mut logs = names.each_ref().map(|name| OpenOptions::new().append(true).open(name).unwrap());
    for (slot, name) in names.iter().enumerate() {
        agent.number(&format!("open {slot} {} 0", name.display()));
        agent.number(&format!("open {} {} {}", slot + 2, name.display(), 0o2000));
    }
    let dir = rig.on_mount("dir");
    for step in 0..3000 {
        let slot = random.below(2) as usize;
        let by_agent = random.below(2) == 0;
        let file = &files[slot];
        match random.below(9) {
            0..=3 => {
                let (at, len) = (random.below(20_000) as usize, 1 + random.below(6000) as usize);
                let value = 1 + random.below(250) as u8;
                if by_agent {
                    let line = format!("pwrite {slot} {at} {len} {value}");
                    assert_eq!(agent.number(&line), len as i64, "step {step}");
                } else {
                    file.write_all_at(&vec![value; len], at as u64).unwrap();
                }
                let held = &mut bytes[slot];
                held.resize(held.len().max(at + len), 0);
                held[at..at + len].fill(value);
            }
            4 => {
                let size = random.below(20_000) as usize;
                if by_agent {
                    assert_eq!(agent.number(&format!("truncate {slot} {size}")), 0, "step {step}");
                } else {
                    file.set_len(size as u64).unwrap();
                }
                bytes[slot].resize(size, 0);
            }
            7 => {
                let (len, value) = (1 + random.below(3000) as usize, 1 + random.below(250) as u8);
                if by_agent {
                    let line = format!("write {} {len} {value}", slot + 2);
                    assert_eq!(agent.number(&line), len as i64, "step {step}");
                } else {
                    logs[slot].write_all(&vec![value; len]).unwrap();
                    // What the kernel kept at a wrong place is gone in a moment.
                    let held = [&bytes[slot][..], &vec![value; len]].concat();
                    rig::wait_until("the kernel knows where it went", || {
                        fs::read(&names[slot]).unwrap() == held
                    });
                }
                let held = &mut bytes[slot];
                held.resize(held.len() + len, value);
            }
            5 => {
                if by_agent {
                    assert_eq!(agent.number(&format!("mkdir {}", dir.display())), 0, "step {step}");
                    assert!(dir.is_dir(), "step {step}: made by the queue, unknown to the kernel");
                    fs::remove_dir(&dir).unwrap();
                } else {
                    fs::create_dir(&dir).unwrap();
                    assert_eq!(agent.number(&format!("rmdir {}", dir.display())), 0, "step {step}");
                    assert!(!dir.exists(), "step {step}: removed by the queue, known to the kernel");
                }
            }
            6 => {
                // The two swap names, in three steps.
                let third = rig.on_mount("c");
                for (from, to) in [(&names[0], &third), (&names[1], &names[0]), (&third, &names[1])] {
                    if by_agent {
                        let line = format!("rename {} {}", from.display(), to.display());
                        assert_eq!(agent.number(&line), 0, "step {step}");
                    } else {
                        fs::rename(from, to).unwrap();
                    }
                }
                bytes.swap(0, 1);
                files.swap(0, 1);
                logs.swap(0, 1);
                for (slot, name) in names.iter().enumerate() {
                    agent.number(&format!("close {slot}"));
                    agent.number(&format!("close {}", slot + 2));
                    agent.number(&format!("open {slot} {} 0", name.display()));
                    agent.number(&format!("open {} {} {}", slot + 2, name.display(), 0o2000));
                }
            }
            _ => {
                let file = files[slot].metadata().unwrap();
                assert_eq!(file.len(), bytes[slot].len() as u64, "step {step}: the open file's size");
            }
        }
        let held = &bytes[slot];
        assert_eq!(&fs::read(&names[slot]).unwrap(), held, "step {step}: through the kernel");
        assert_eq!(fs::metadata(&names[slot]).unwrap().len(), held.len() as u64, "step {step}");
        let seen = agent.asked(&format!("pread {slot} 0 100000"));
        assert_eq!(seen, format!("{} {}", held.len(), sum(held)), "step {step}: through the queue");
        assert_eq!(agent.number(&format!("size {slot}")), held.len() as i64, "step {step}");
    }
    let counts = agent.end();
    assert!(counts["write"].0 > 500, "{counts:?}");
    drop((files, logs));
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}

#[test]
fn a_killed_daemon_is_an_error_and_a_killed_client_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    let file = rig.on_mount("f");
    let mut agent = Agent::start(&rig);
    agent.number(&format!("open 1 {} 0", file.display()));
    assert_eq!(agent.number("write 1 100 65"), 100);
    fs::remove_file(&file).unwrap();
    agent.child.kill().expect("killed");
    agent.child.wait().expect("an end");
    // Its file had no name, so it is gone when nobody has it open.
    rig::wait_until("what the client had open is closed", || {
        let inodes = |rig: &Rig| {
            let stat = rustix::fs::statvfs(rig.mount_point().as_str()).unwrap();
            stat.f_files - stat.f_ffree
        };
        inodes(&rig) <= 2
    });
    let mut agent = Agent::start(&rig);
    agent.number(&format!("open 1 {} 0", file.display()));
    assert_eq!(agent.number("pwrite 1 0 100 66"), 100);
    assert_eq!(agent.number("sync 1"), 0);
    rig.kill_daemon();
    let refused = agent.number("pwrite 1 0 100 67");
    assert!([-107, -5, -103].contains(&refused), "a dead mount answered {refused}");
    agent.end();
    rig.mount();
    assert_eq!(fs::read(&file).unwrap(), [66; 100]);
    rig.umount();
}

#[test]
fn a_process_gets_what_its_user_may_have() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        println!("SKIPPED: needs root");
        return;
    }
    let rig = Rig::new("256M");
    rig.mount_for_all();
    fs::set_permissions(rig.on_mount("."), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(rig.on_mount("roots"), b"secret").unwrap();
    let mut agent = Agent::start(&rig);
    let roots = rig.on_mount("roots").display().to_string();
    agent.number(&format!("open 1 {roots} 0"));
    assert_eq!(agent.number("pwrite 1 0 3 88"), 3);
    assert_eq!(agent.number("user 1234"), 0);
    assert_eq!(agent.number("pwrite 1 0 3 89"), 3, "what is open stays open");
    assert_eq!(agent.number(&format!("unlink {roots}")), -13, "EACCES");
    assert_eq!(agent.number(&format!("mkdir {}", rig.on_mount("d").display())), -13, "EACCES");
    agent.end();
    rig.umount();
}

/// Nothing is asked in between, so the kernel's idea of where the file ends is as old as it gets.
#[test]
fn appends_of_both_sides_lose_nothing() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    let path = rig.on_mount("log");
    let mut log = OpenOptions::new().append(true).create(true).open(&path).unwrap();
    let mut agent = Agent::start(&rig);
    agent.number(&format!("open 1 {} {}", path.display(), 0o2000));
    let mut held: Vec<u8> = Vec::new();
    for round in 0..100 {
        let len = 1 + round * 37 % 5000;
        assert_eq!(agent.number(&format!("write 1 {len} 65")), len as i64);
        log.write_all(&vec![66; len]).unwrap();
        held.resize(held.len() + len, 65);
        held.resize(held.len() + len, 66);
        if round % 7 == 6 {
            held.truncate(held.len() / 2);
            assert_eq!(agent.number(&format!("truncate 1 {}", held.len())), 0);
            log.write_all(b"after").unwrap();
            held.extend_from_slice(b"after");
        }
    }
    let seen = agent.asked("size 1");
    assert_eq!(seen, held.len().to_string());
    agent.end();
    drop(log);
    rig.umount();
    rig.mount();
    assert_eq!(fs::read(&path).unwrap(), held);
    rig.umount();
}

/// The socket is there for whoever shares the network; the mount is not.
#[test]
fn only_who_can_see_the_mount_gets_in() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixStream};

    use amphi_front_queue::{ConnectError, connect, socket_name};
    if !can_mount() {
        return;
    }
    let rig = Rig::new("64M");
    rig.mount();
    let (device, owner) =
        (fs::metadata(rig.mount_point()).unwrap().dev(), rustix::process::geteuid().as_raw());
    // Who says nothing keeps nobody out, however many there are.
    let address = SocketAddr::from_abstract_name(socket_name(device)).unwrap();
    let silent: Vec<_> = (0..100).map(|_| UnixStream::connect_addr(&address).unwrap()).collect();
    let elsewhere = File::open(rig.path("")).unwrap();
    assert!(matches!(connect(device, owner, &elsewhere), Err(ConnectError::Refused)));
    fs::create_dir(rig.on_mount("d")).unwrap();
    let below = File::open(rig.on_mount("d")).unwrap();
    assert!(matches!(connect(device, owner, &below), Err(ConnectError::Refused)), "not the root");
    assert!(matches!(
        connect(device, owner + 1, &below),
        Err(ConnectError::Stranger(_) | ConnectError::Refused)
    ));
    let root = File::open(rig.mount_point()).unwrap();
    let connection = connect(device, owner, &root).expect("the mount's owner, who sees it");
    assert!(connection.is_alive() && connection.lane().is_some());
    drop((silent, connection, root, below));
    rig.umount();
}

/// Redis's allocator waited for ever: its first call reads a link, which this library answered by looking for
/// mounts, for which it allocated.
#[test]
fn allocators_that_read_links_in_their_first_call_do_not_wait_for_themselves() {
    if !can_mount() {
        return;
    }
    library();
    let rig = Rig::new("64M");
    let program = rig.compiled("allocator", &["-O1", "-pthread"]);
    rig.mount();
    let made = rig.on_mount("made");
    let run = ["120", env!("CARGO_BIN_EXE_amphi"), "run", "--trace-calls", "--", &program];
    let output = Command::new("timeout").args(run).arg(&made).output().expect("timeout");
    assert!(output.status.success(), "{:?}: {}", output.status, rig::complaint(&output));
    assert_eq!(fs::read(&made).unwrap(), b"made");
    let calls = counts(&rig::complaint(&output));
    assert_eq!((calls["write"].0, calls["fsync"].0), (1, 1), "it is accelerated all the same: {calls:?}");
}

#[test]
fn children_without_an_environment_are_accelerated_and_programs_can_be_left_alone() {
    library();
    let says = |options: &[&str], shell: &[&str]| {
        let script = "echo ${LD_PRELOAD##*/} $AMPHI_RUN";
        let mut command = rig::command(&["run"]);
        let output = command.args(options).arg("--").args(shell).args(["-c", script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(says(&[], &["sh"]), "libamphi_preload.so 1");
    assert_eq!(says(&[], &["env", "-i", "/bin/sh"]), "libamphi_preload.so 1");
    if !can_mount() {
        return;
    }
    let rig = Rig::new("64M");
    rig.mount();
    let mut agent = Agent::start_with(&rig, &["--leave-alone", "other,agent"]);
    let path = rig.on_mount("f");
    agent.number(&format!("open 1 {} 0", path.display()));
    assert_eq!(agent.number("write 1 5 97"), 5);
    assert_eq!(fs::read(&path).unwrap(), b"aaaaa");
    assert_eq!(agent.end(), BTreeMap::new(), "nothing went through the queue, nothing is told");
    rig.umount();
}
