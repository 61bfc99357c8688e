//! What people try first: a source tree unpacked, put under version control and removed, and a large
//! directory listed. Nothing of it asks for durability; what counts is how many requests each file costs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use amphi_rt::time;
use anyhow::{Context, Result};

use super::{Program, Rounds, Site, command};
use crate::peers::output;

/// `tar` unpacks a source tree.
pub(super) struct Unpack;

/// `git` takes one in: `init`, `add`, `commit`.
pub(super) struct Git;

/// `rm -r` removes one.
pub(super) struct Remove;

/// `ls -lU` of one directory, attributes and names forgotten by the kernel before.
pub(super) struct List;

/// Files in a directory of the tree, as in a source tree of a few thousand files.
const DIRECTORY_FILES: u64 = 20;
/// Bytes of files, in turn: half of them up to 4 KB, as source files have it.
const SIZES: [usize; 7] = [150, 700, 1_800, 3_900, 8_000, 17_000, 42_000];

impl Program for Unpack {
    fn name(&self) -> &'static str {
        "unpack"
    }

    fn description(&self) -> &'static str {
        "tar unpacks a source tree; files a second"
    }

    fn start(&self, at: &Site<'_>) -> Result<Box<dyn Rounds>> {
        Ok(Box::new(Tree::of(at, Step::Unpack)))
    }
}

impl Program for Git {
    fn name(&self) -> &'static str {
        "git"
    }

    fn description(&self) -> &'static str {
        "git init, add and commit of a source tree; files a second"
    }

    fn start(&self, at: &Site<'_>) -> Result<Box<dyn Rounds>> {
        output(Command::new("git").arg("--version")).context("git is needed")?;
        Ok(Box::new(Tree::of(at, Step::Git)))
    }
}

impl Program for Remove {
    fn name(&self) -> &'static str {
        "remove"
    }

    fn description(&self) -> &'static str {
        "rm -r of a source tree; files a second"
    }

    fn start(&self, at: &Site<'_>) -> Result<Box<dyn Rounds>> {
        Ok(Box::new(Tree::of(at, Step::Remove)))
    }
}

/// Which step of a round is timed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Unpack,
    Git,
    Remove,
}

/// Rounds that unpack a tree, do something with it and remove it.
struct Tree {
    timed: Step,
    directory: PathBuf,
    scratch: PathBuf,
    preloaded_by: Option<PathBuf>,
}

impl Tree {
    fn of(at: &Site<'_>, timed: Step) -> Self {
        Self {
            timed,
            directory: at.directory.join("tree"),
            scratch: at.scratch.to_owned(),
            preloaded_by: at.preloaded_by.map(Path::to_owned),
        }
    }

    /// An archive of `files` files, made once for each number of files.
    fn archive(&self, files: u64) -> Result<PathBuf> {
        let archive = self.scratch.join(format!("{files}.tar"));
        if archive.exists() {
            return Ok(archive);
        }
        let source = self.scratch.join("source");
        for file in 0..files {
            let directory = source.join(format!("part{}", file / DIRECTORY_FILES));
            std::fs::create_dir_all(&directory)?;
            let size = SIZES[file as usize % SIZES.len()];
            // Lines like those of a program: git compresses and hashes them.
            let lines = (0..).flat_map(|line| format!("let line_{line} = file_{file};\n").into_bytes());
            std::fs::write(directory.join(format!("file{file}.rs")), lines.take(size).collect::<Vec<u8>>())?;
        }
        output(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(&source).arg("."))?;
        std::fs::remove_dir_all(&source)?;
        Ok(archive)
    }

    fn run(&self, program: &str, arguments: &[&str], paths: &[&Path]) -> Result<()> {
        let mut command = command(Path::new(program), None, self.preloaded_by.as_deref())?;
        command.args(arguments).args(paths).stdin(Stdio::null());
        output(&mut command).map(drop)
    }

    fn git(&self, arguments: &[&str]) -> Result<()> {
        let tree = self.directory.to_str().context("the path is not valid UTF-8")?;
        let who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"];
        self.run("git", &[&["-C", tree], &who[..], arguments].concat(), &[])
    }

    fn step(&self, step: Step, archive: &Path) -> Result<()> {
        match step {
            Step::Unpack => {
                std::fs::create_dir(&self.directory)?;
                self.run("tar", &["-xf"], &[archive, Path::new("-C"), &self.directory])
            }
            Step::Git => {
                self.git(&["init", "--quiet"])?;
                self.git(&["add", "."])?;
                self.git(&["commit", "--quiet", "--message", "all"])
            }
            Step::Remove => self.run("rm", &["-r"], &[&self.directory]),
        }
    }
}

impl Rounds for Tree {
    fn round(&mut self, files: u64) -> Result<f64> {
        let archive = self.archive(files)?;
        let mut elapsed = 0;
        for step in [Step::Unpack, Step::Git, Step::Remove] {
            if step == Step::Git && self.timed != Step::Git {
                continue;
            }
            let begun = time::now_ns();
            self.step(step, &archive)?;
            if step == self.timed {
                elapsed = time::now_ns() - begun;
            }
        }
        Ok(files as f64 * 1e9 / elapsed as f64)
    }
}

impl Program for List {
    fn name(&self) -> &'static str {
        "list"
    }

    fn description(&self) -> &'static str {
        "ls -lU of one large directory that the kernel has forgotten; files a second"
    }

    fn start(&self, at: &Site<'_>) -> Result<Box<dyn Rounds>> {
        let preloaded_by = at.preloaded_by.map(Path::to_owned);
        Ok(Box::new(Listing { directory: at.directory.join("many"), preloaded_by }))
    }
}

/// Rounds that list one directory, which the first one makes.
struct Listing {
    directory: PathBuf,
    preloaded_by: Option<PathBuf>,
}

impl Rounds for Listing {
    fn round(&mut self, files: u64) -> Result<f64> {
        if !self.directory.exists() {
            std::fs::create_dir(&self.directory)?;
            for file in 0..files {
                std::fs::File::create(self.directory.join(format!("file{file}")))?;
            }
        }
        // Only what is clean can be forgotten.
        rustix::fs::syncfs(std::fs::File::open(&self.directory)?)?;
        std::fs::write("/proc/sys/vm/drop_caches", "2").context("the kernel's caches cannot be dropped")?;
        let begun = time::now_ns();
        let mut command = command(Path::new("ls"), None, self.preloaded_by.as_deref())?;
        output(command.arg("-lU").arg(&self.directory))?;
        Ok(files as f64 * 1e9 / (time::now_ns() - begun) as f64)
    }
}
