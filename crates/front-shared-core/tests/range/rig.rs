//! An image with a file system, a range over it, and processes that are clients: this test's own program,
//! started again.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, LazyLock};

use amphi_front_shared::{CORE, Client, Manager, ManagerOptions, Protection};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::{Cred, Entry, FileSystem, FileType, Ino, Name, Result, WriteMode};
use amphi_volume::{FormatOptions, Volume};
use amphi_volumes::{Act, Kind};
use tempfile::TempDir;

/// Says to a program that is started again what it is to do.
pub const ROLE: &str = "AMPHI_TEST_ROLE";
/// What it says when it can be told to go on.
pub const READY: &str = "ready";

/// Inodes of a file system: some of the conformance suite's directories are large.
const INODES: u32 = 8192;

/// The program of the range, built once.
pub fn core() -> PathBuf {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["rustc", "--quiet", "-p", "amphi-front-shared-core", "--bin", CORE, "--features"]);
        build.arg(if cfg!(feature = "planted-bugs") { "core,planted-bugs" } else { "core" });
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        build.args((profile == "release").then_some("--release"));
        let built = build.args(["--", "-C", "target-feature=+crt-static"]).status();
        assert!(built.expect("cargo starts").success(), "the program is not built");
        let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        target.parent().expect("it lies in the target directory").join(profile).join(CORE)
    });
    BUILT.clone()
}

/// A range over a new file system.
pub struct Rig {
    pub manager: Manager,
    pub name: String,
    place: u64,
    protection: Protection,
    _directory: TempDir,
}

/// How often, each millisecond, it is looked for what the manager does about a process that has ended. One
/// that overlooks the end waits for ever, for a lock that the process had.
const LOOKS: u32 = 30_000;

/// Looks until there is something.
pub fn await_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..LOOKS {
        match look() {
            Some(found) => return found,
            None => amphi_rt::time::sleep_ns(1_000_000),
        }
    }
    panic!("waited in vain: {what}");
}

struct Format<'a>(&'a Arc<Ssd>);

impl Act<Ssd> for Format<'_> {
    type Out = amphi_volume::Result<()>;

    fn on<V: Volume<Ssd>>(self) -> Self::Out {
        V::format(self.0, &FormatOptions { inodes: Some(INODES), ..FormatOptions::default() })
    }
}

impl Rig {
    /// A range at a place, which is one test's, with a file system of this name on an SSD of 64 MB that takes
    /// no time.
    pub fn start(kind: &str, place: u64, protection: Protection) -> Self {
        Self::with(kind, place, protection, None)
    }

    /// As [`start`](Self::start); the SSD takes time.
    pub fn timed(kind: &str, place: u64) -> Self {
        Self::with(kind, place, Protection::Nothing, Some(1.0))
    }

    fn with(kind: &str, place: u64, protection: Protection, dilation: Option<f64>) -> Self {
        let memory = std::path::Path::new("/dev/shm");
        let directory = match memory.is_dir() {
            true => TempDir::new_in(memory),
            false => TempDir::new(),
        };
        let directory = directory.expect("a directory for the image");
        let image = directory.path().join("ssd.img");
        let mut profile =
            Profile::named(if dilation.is_some() { "mssd-pcie3" } else { "free" }).expect("built in");
        if kind == "augefs" {
            profile.firmware.kind = Firmware::Memory;
            profile.firmware.memory_bytes = 1 << 20;
            profile.log.region_bytes = 1 << 20;
        }
        Ssd::create(&image, &profile, 64 << 20).expect("an image");
        let free = OpenOptions { free: true, ..OpenOptions::default() };
        let device = Arc::new(Ssd::open(&image, &free).expect("a new image"));
        Kind::named(kind).expect("it is in the list").with(Format(&device)).expect("it can be formatted");
        drop(device);
        // Other namespaces of process numbers may share the one of sockets.
        let drawn = amphi_rt::random::u64();
        let name = format!("amphi-test-{}-{drawn:x}-{place}", std::process::id());
        let options = ManagerOptions {
            core: core(),
            image,
            name: name.clone(),
            place,
            protection,
            dilation,
            words: Vec::new(),
            again: true,
        };
        let manager = Manager::start(options).expect("a range");
        Self { manager, name, place, protection, _directory: directory }
    }

    /// This process as a client.
    pub fn client(&self) -> Client {
        Client::connect(&self.name).expect("it lets its owner in")
    }

    /// Another process as a client, with a role and its words.
    pub fn other(&self, role: &str) -> Other {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["another_process", "--exact", "--nocapture", "--quiet"])
            .env(ROLE, format!("{} {role}", self.name))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let (tell, said) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Other { child, tell: Some(tell), said: BufReader::new(said) }
    }
}

impl std::fmt::Debug for Rig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rig").field("place", &self.place).field("protection", &self.protection).finish()
    }
}

/// A process that is a client.
pub struct Other {
    pub child: Child,
    tell: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Other {
    /// Waits until it says a line that ends so, among what the test's frame says.
    pub fn await_line(&mut self, wanted: &str) -> String {
        let mut line = String::new();
        while self.said.read_line(&mut line).expect("text") > 0 {
            if line.trim().ends_with(wanted) {
                return line;
            }
            line.clear();
        }
        panic!("it ended without saying `{wanted}`: {:?}", self.child.wait());
    }

    /// Tells it to go on.
    pub fn tell(&mut self) {
        let tell = self.tell.as_mut().expect("it is told before it is ended");
        tell.write_all(b"\n").expect("it listens");
    }

    /// Waits for its end, which must be a good one.
    pub fn end(mut self) {
        self.tell = None;
        assert!(self.child.wait().expect("it can be waited for").success(), "another process failed");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In another process: says a line and waits to be told to go on.
pub fn say_and_wait(line: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).expect("somebody listens");
    std::io::stdin().read_line(&mut String::new()).expect("somebody tells");
}

pub fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a name")
}

pub fn make(fs: &impl FileSystem, dir: Ino, text: &str) -> Result<Entry> {
    fs.create(dir, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT)
}

pub fn write(fs: &impl FileSystem, ino: Ino, at: u64, data: &[u8]) -> Result<usize> {
    fs.write(ino, at, data, WriteMode::default(), &Cred::ROOT)
}

pub fn read(fs: &impl FileSystem, ino: Ino, bytes: usize) -> Result<Vec<u8>> {
    let mut data = vec![0; bytes];
    let count = fs.read(ino, 0, &mut data, false)?;
    data.truncate(count);
    Ok(data)
}
