//! The workspace's tests and programs, built once. Every part of `cargo xtask test` runs what stands here, so
//! that none builds crates again because it asks for other features: planted faults are compiled in, and
//! asleep unless a test or `AMPHI_PLANTED` wakes one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::step;

/// The feature of a crate that has faults to plant.
const PLANTED: &str = "planted-bugs";
/// Has every file system compiled in one crate that all others link to.
const COMPILED_ONCE: &str = "amphi-volumes/compiled-once";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    features: BTreeMap<String, Vec<String>>,
}

/// A line of what `cargo build --message-format=json` says, as far as it is about something that can be run.
#[derive(Deserialize)]
struct Message {
    package_id: Option<String>,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// A program of tests, as `cargo test` would run it.
pub struct TestProgram {
    /// Its package.
    pub package: String,
    /// The library, program or file below `tests` that it tests.
    pub target: String,
    pub path: PathBuf,
    /// The folder of its package, in which it is run.
    pub folder: PathBuf,
}

impl TestProgram {
    /// A package's `tests/FILE.rs`, built for speed.
    ///
    /// # Errors
    /// It does not build.
    pub fn for_speed(root: &Path, package: &str, file: &str) -> Result<Self> {
        let mut build = step::cargo(root);
        build.args(["test", "--release", "--package", package, "--test", file]);
        let built = Built::by(root, &mut build)?;
        let found = built.all_tests.into_iter().find(|test| test.target == file);
        found.with_context(|| format!("{package} has no tests called {file}"))
    }

    /// The names of its tests.
    ///
    /// # Errors
    /// It does not start.
    pub fn names(&self) -> Result<Vec<String>> {
        let said = step::output(self.command().args(["--list", "--format", "terse"]))?;
        Ok(said.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// It, with what it may ask `cargo` for.
    pub fn command(&self) -> Command {
        let mut test = Command::new(&self.path);
        test.current_dir(&self.folder).env_remove("AMPHI_PLANTED");
        test.env("CARGO_PKG_NAME", &self.package).env("CARGO_MANIFEST_DIR", &self.folder);
        test
    }
}

/// What was built.
pub struct Built {
    /// Every program of tests.
    pub all_tests: Vec<TestProgram>,
    /// By folder below `crates` and name of the file below `tests`, its place in [`Self::all_tests`].
    tests: BTreeMap<(String, String), usize>,
    programs: BTreeMap<String, PathBuf>,
    crates: PathBuf,
}

/// Adds to `cargo test` what every build of the workspace's tests has in common.
///
/// # Errors
/// `cargo metadata` fails.
pub fn whole_workspace(root: &Path, test: &mut Command) -> Result<()> {
    let mut ask = step::cargo(root);
    let said = step::output(ask.args(["metadata", "--quiet", "--no-deps", "--format-version", "1"]))?;
    let metadata: Metadata = serde_json::from_str(&said).context("what `cargo metadata` says")?;
    let with_faults = metadata.packages.iter().filter(|package| package.features.contains_key(PLANTED));
    let mut features: Vec<_> = with_faults.map(|package| format!("{}/{PLANTED}", package.name)).collect();
    features.push(COMPILED_ONCE.to_owned());
    test.args(["--workspace", "--features", &features.join(",")]);
    Ok(())
}

impl Built {
    /// Builds every test and every program.
    ///
    /// # Errors
    /// Something does not build.
    pub fn make(root: &Path) -> Result<Self> {
        let mut build = step::cargo(root);
        // Without examples, which clippy compiles, and libraries that have no tests.
        build.args(["test", "--tests"]);
        whole_workspace(root, &mut build)?;
        Self::by(root, &mut build)
    }

    /// What this `cargo test` would run.
    fn by(root: &Path, build: &mut Command) -> Result<Self> {
        build.args(["--no-run", "--message-format=json-render-diagnostics"]);
        let crates = root.join("crates");
        let (tests, programs) = (BTreeMap::new(), BTreeMap::new());
        let mut built = Self { all_tests: Vec::new(), tests, programs, crates };
        let said = step::output(build.stderr(Stdio::inherit()))?;
        for message in said.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok()) {
            built.note(message);
        }
        Ok(built)
    }

    fn note(&mut self, message: Message) {
        let (Some(manifest), Some(target), Some(executable)) =
            (message.manifest_path, message.target, message.executable)
        else {
            return;
        };
        let is_test = message.profile.is_some_and(|profile| profile.test);
        let Some(folder) = manifest.parent() else { return };
        if !is_test {
            if target.kind == ["bin"] {
                self.programs.insert(target.name, executable);
            }
            return;
        }
        let room = folder.strip_prefix(&self.crates).ok();
        if let (true, Some(room)) = (target.kind == ["test"], room) {
            let which = (room.display().to_string(), target.name.clone());
            self.tests.insert(which, self.all_tests.len());
        }
        // `path+file:///…/crates/rt#amphi-rt@0.1.0`; without a name where the folder has it.
        let id = message.package_id.unwrap_or_default();
        let named = id.rsplit_once('#').and_then(|(_, name)| name.split_once('@'));
        let of_folder = || folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let package = named.map_or_else(of_folder, |(name, _)| name.to_owned());
        let folder = folder.to_owned();
        self.all_tests.push(TestProgram { package, target: target.name, path: executable, folder });
    }

    /// The tests of `crates/ROOM/tests/FILE.rs`, to be run where `cargo test` would run them.
    ///
    /// # Errors
    /// There are none.
    pub fn test(&self, room: &str, file: &str) -> Result<Command> {
        let found = self.program_of(room, file);
        Ok(found.with_context(|| format!("crates/{room} has no tests called {file}"))?.command())
    }

    /// One test: a function of `crates/ROOM/tests/FILE.rs`, or of the file in `all`, the program in which a
    /// crate has most of its tests.
    ///
    /// # Errors
    /// There is no such program.
    pub fn one_test(&self, room: &str, file: &str, test: &str) -> Result<Command> {
        let (found, name) = match self.program_of(room, file) {
            Some(found) => (Some(found), test.to_owned()),
            None => (self.program_of(room, "all"), format!("{file}::{test}")),
        };
        let found = found.with_context(|| format!("crates/{room} has no tests called {file}"))?;
        let mut command = found.command();
        command.args(["--exact", &name]);
        Ok(command)
    }

    fn program_of(&self, room: &str, file: &str) -> Option<&TestProgram> {
        self.tests.get(&(room.to_owned(), file.to_owned())).map(|at| &self.all_tests[*at])
    }

    /// A program.
    ///
    /// # Errors
    /// There is none.
    pub fn program(&self, name: &str) -> Result<Command> {
        Ok(Command::new(self.programs.get(name).with_context(|| format!("there is no program {name}"))?))
    }
}
