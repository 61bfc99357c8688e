//! An image and its mount in a temporary directory, driven through the built `amphi` command, as a user
//! would.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// `amphi`, to be run.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_amphi"));
    command.args(arguments);
    command
}

/// Runs `amphi` with `arguments`.
pub fn amphi(arguments: &[&str]) -> Output {
    command(arguments).output().expect("amphi starts")
}

/// Runs `amphi`, which must succeed, and returns what it printed.
pub fn amphi_ok(arguments: &[&str]) -> String {
    let output = amphi(arguments);
    assert!(output.status.success(), "amphi {arguments:?}: {}", complaint(&output));
    String::from_utf8(output.stdout).expect("amphi prints text")
}

/// What a command complained of.
pub fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// Whether file systems can be mounted here; says so if not. Tests that need it return when it is false.
pub fn can_mount() -> bool {
    let fuse = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &fuse {
        println!("SKIPPED: /dev/fuse cannot be used here ({error})");
    }
    fuse.is_ok()
}

/// An image in a directory of its own. Unmounted when dropped.
pub struct Rig {
    directory: Option<tempfile::TempDir>,
    root: PathBuf,
}

/// The seed of what is drawn at random: `AMPHI_SEED`, or 1.
pub fn seed() -> u64 {
    std::env::var("AMPHI_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// Whether tests that take long are asked for.
pub fn is_long() -> bool {
    std::env::var_os("AMPHI_TEST_LONG").is_some()
}

/// What takes long on the file systems whose commands are served as ByteFS's are.
pub fn on_each_other(test: impl Fn(&str)) {
    if !is_long() {
        println!("SKIPPED: with `cargo xtask test --long`");
        return;
    }
    ["augefs", "romefs", "ext4like", "f2fslike", "novalike", "pmfslike", "toy"].into_iter().for_each(test);
}

impl Rig {
    /// Makes an image of `size` with ByteFS on it.
    pub fn new(size: &str) -> Self {
        let rig = Self::empty();
        amphi_ok(&["mkfs", &rig.image(), "--size", size]);
        rig
    }

    /// Makes an image of `size` with this file system on it.
    pub fn of(file_system: &str, size: &str) -> Self {
        let rig = Self::empty();
        amphi_ok(&["mkfs", &rig.image(), "--fs", file_system, "--size", size]);
        rig
    }

    /// A directory without an image yet.
    pub fn empty() -> Self {
        let directory =
            tempfile::Builder::new().prefix("amphi-test-").tempdir().expect("a temporary directory");
        let root = directory.path().to_owned();
        std::fs::create_dir(root.join("mount")).expect("a mount point");
        Self { directory: Some(directory), root }
    }

    /// The image's path.
    pub fn image(&self) -> String {
        self.path("ssd.img")
    }

    /// The mount point's path.
    pub fn mount_point(&self) -> String {
        self.path("mount")
    }

    /// A path beside the mount.
    pub fn path(&self, name: &str) -> String {
        self.root.join(name).to_str().expect("a plain path").to_owned()
    }

    /// Compiles the C program of this directory that has the name, beside the mount; its path.
    pub fn compiled(&self, name: &str, flags: &[&str]) -> String {
        let program = self.path(name);
        let source = format!("{}/tests/end_to_end/{name}.c", env!("CARGO_MANIFEST_DIR"));
        let compiled = Command::new("cc").args(flags).args(["-o", &program, &source]).status();
        assert!(compiled.expect("a C compiler").success(), "{name}.c is not compiled");
        program
    }

    /// A path on the mount.
    pub fn on_mount(&self, name: &str) -> PathBuf {
        Path::new(&self.mount_point()).join(name)
    }

    /// Mounts in the background, without device times.
    pub fn mount(&self) {
        amphi_ok(&["mount", "--free", &self.image(), &self.mount_point()]);
    }

    /// As [`mount`](Self::mount), and other users may enter.
    pub fn mount_for_all(&self) {
        amphi_ok(&["mount", "--free", "-o", "allow_other", &self.image(), &self.mount_point()]);
    }

    /// Unmounts. The tests run at the same time in one process, and one that starts a program copies for a
    /// moment what another has just closed: a mount that is still in use is asked again.
    pub fn umount(&self) {
        wait_until("nobody uses the mount", || {
            let output = amphi(&["umount", &self.mount_point()]);
            let busy = complaint(&output).contains("is in use");
            assert!(output.status.success() || busy, "amphi umount: {}", complaint(&output));
            output.status.success()
        });
    }

    /// Starts a daemon as a child of this process and waits until the mount can be used.
    pub fn mount_as_child(&self, speed: &[&str]) -> Daemon {
        let mut command = Command::new(env!("CARGO_BIN_EXE_amphi"));
        command.args(["mount", "--foreground"]).args(speed).arg(self.image()).arg(self.mount_point());
        if rustix::process::geteuid().is_root() {
            // Some programs that the tests run refuse to be root.
            command.args(["-o", "allow_other"]);
        }
        let log =
            std::fs::File::options().create(true).append(true).open(self.path("daemon.log")).expect("a log");
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("amphi starts");
        let mut said = [0_u8; 1];
        let stdout = child.stdout.as_mut().expect("its output");
        let ready = std::io::Read::read(stdout, &mut said).expect("its output");
        let daemon = Daemon(child);
        assert_eq!(
            ready,
            1,
            "no mount: {}",
            std::fs::read_to_string(self.path("daemon.log")).expect("the log")
        );
        daemon
    }

    /// The process that serves the mount.
    pub fn daemon_pid(&self) -> u32 {
        let info: serde_json::Value =
            serde_json::from_str(&amphi_ok(&["info", "--json", &self.mount_point()])).expect("JSON");
        info["pid"].as_u64().expect("a daemon").try_into().expect("a process number")
    }

    /// Kills the daemon as `kill -9` does, and waits until it is gone.
    pub fn kill_daemon(&self) {
        let pid = self.daemon_pid().to_string();
        assert!(Command::new("kill").args(["-KILL", &pid]).status().expect("kill starts").success());
        wait_until(&format!("daemon {pid} is gone"), || {
            // A daemon that nobody waits for stays as a zombie with an empty command line.
            std::fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| line.is_empty())
        });
        // The last of its threads to go may still hold the image.
        let image = std::fs::File::open(self.image()).expect("the image");
        wait_until("the image is free", || {
            rustix::fs::flock(&image, rustix::fs::FlockOperation::NonBlockingLockShared).is_ok()
        });
    }

    /// Whether the mount point is a mount, dead or alive.
    pub fn is_mounted(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("/proc");
        table.lines().any(|line| line.split(' ').nth(4) == Some(&self.mount_point()))
    }

    /// Checks the unmounted image; it must be clean.
    pub fn fsck(&self) -> Result<(), String> {
        let output = amphi(&["fsck", &self.image()]);
        if output.status.code() == Some(0) {
            return Ok(());
        }
        Err(format!("amphi fsck: {}{}", String::from_utf8_lossy(&output.stdout), complaint(&output)))
    }

    /// Leaves the image where it is, to be looked at after a failure.
    pub fn keep(&mut self) -> PathBuf {
        if let Some(directory) = self.directory.take() {
            let _ = directory.keep();
        }
        self.root.clone()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.is_mounted() && !amphi(&["umount", &self.mount_point()]).status.success() {
            amphi(&["umount", "--lazy", &self.mount_point()]);
        }
    }
}

/// A daemon that is a child of this process. Killed when dropped.
pub struct Daemon(Child);

impl Daemon {
    /// Its process number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Kills it as `kill -9` does.
    pub fn kill(&mut self) {
        self.0.kill().expect("a child can be killed");
    }

    /// Waits for its end; true if it was a regular one.
    pub fn wait(&mut self) -> bool {
        self.0.wait().expect("a child can be waited for").success()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // After a regular end there is nothing to kill, and both calls say so.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits, at most a minute, until `holds`.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "waited a minute, and not: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
