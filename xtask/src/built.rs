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

/// What was built.
pub struct Built {
    /// By folder below `crates` and name of the file below `tests`.
    tests: BTreeMap<(String, String), PathBuf>,
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
    let features: Vec<_> = with_faults.map(|package| format!("{}/{PLANTED}", package.name)).collect();
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
        build.args(["test", "--no-run", "--message-format=json-render-diagnostics"]);
        whole_workspace(root, &mut build)?;
        let crates = root.join("crates");
        let mut built = Self { tests: BTreeMap::new(), programs: BTreeMap::new(), crates };
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
        let room = manifest.parent().and_then(|folder| folder.strip_prefix(&self.crates).ok());
        if let (true, Some(room)) = (is_test && target.kind == ["test"], room) {
            self.tests.insert((room.display().to_string(), target.name), executable);
        } else if !is_test && target.kind == ["bin"] {
            self.programs.insert(target.name, executable);
        }
    }

    /// The tests of `crates/ROOM/tests/FILE.rs`, to be run where `cargo test` would run them.
    ///
    /// # Errors
    /// There are none.
    pub fn test(&self, room: &str, file: &str) -> Result<Command> {
        let found = self.tests.get(&(room.to_owned(), file.to_owned()));
        let mut test =
            Command::new(found.with_context(|| format!("crates/{room} has no tests called {file}"))?);
        test.current_dir(self.crates.join(room)).env_remove("AMPHI_PLANTED");
        Ok(test)
    }

    /// A program.
    ///
    /// # Errors
    /// There is none.
    pub fn program(&self, name: &str) -> Result<Command> {
        Ok(Command::new(self.programs.get(name).with_context(|| format!("there is no program {name}"))?))
    }
}
