//! git and tar on the mount: a repository committed, packed and checked; a source tree unpacked, compared,
//! removed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::interrupt;
use super::screen::{Progress, grouped};
use super::stage::Stage;
use super::table::{Row, Table};
use crate::step::{self, step};

/// Commits this very repository's files on the mount, packs and checks them.
pub fn version_control(stage: &Stage, root: &Path, table: &mut Table) -> Result<()> {
    step("git: init, add, commit, gc and fsck of this repository", || {
        let repository = stage.mount_point().join("repository");
        let before = stage.stats()?;
        let start = Instant::now();
        let files = copy_tracked_files(root, &repository)?;
        for arguments in [
            &["init", "--quiet"][..],
            &["add", "--all"],
            &["commit", "--quiet", "--message", "All of it"],
            &["gc", "--quiet", "--prune=now"],
            &["fsck", "--full", "--strict", "--no-progress"],
        ] {
            interrupt::check()?;
            git(&repository, arguments)?;
        }
        let seconds = start.elapsed().as_secs_f64();
        table.push(Row::new("git", files, seconds, &before, &stage.stats()?));
        ensure!(
            git(&repository, &["status", "--porcelain"])?.is_empty(),
            "git sees changes that nobody made"
        );
        let committed = git(&repository, &["ls-tree", "-r", "--name-only", "HEAD"])?.lines().count() as u64;
        ensure!(committed == files, "{files} files went in and {committed} are committed");
        println!("    {} files committed, packed, and found sound by git fsck", grouped(files));
        Ok(())
    })
}

fn git(repository: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(repository).args(["-c", "gc.auto=0", "-c", "core.fsync=all"]).args(arguments);
    // Nothing of the caller's own configuration, and a committer who needs none.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for role in ["AUTHOR", "COMMITTER"] {
        command
            .env(format!("GIT_{role}_NAME"), "Amphi demo")
            .env(format!("GIT_{role}_EMAIL"), "demo@example.org");
    }
    for inherited in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(inherited);
    }
    step::output(&mut command)
}

/// Copies the files that git tracks in `root` to `target` and returns their number.
fn copy_tracked_files(root: &Path, target: &Path) -> Result<u64> {
    let mut list = Command::new("git");
    list.arg("-C").arg(root).args(["ls-files", "-z"]);
    let list = step::output(&mut list)
        .context("the demo commits this repository's files; run it in a git checkout")?;
    let mut files = 0;
    for name in list.split('\0').filter(|name| !name.is_empty()) {
        let source = root.join(name);
        // A tracked file may be deleted in the work tree.
        if !source.is_file() {
            continue;
        }
        let copy = target.join(name);
        std::fs::create_dir_all(copy.parent().context("a file is in a directory")?)?;
        std::fs::copy(&source, &copy).with_context(|| format!("{name} could not be copied"))?;
        files += 1;
    }
    Ok(files)
}

/// Unpacks the sources of the crates that this workspace is built from, compares every byte, and removes
/// them.
pub fn source_tree(stage: &Stage, root: &Path, table: &mut Table) -> Result<()> {
    step("tar: a source tree unpacked, compared, removed", || {
        let crates = crate_sources(root)?;
        let archive = stage.outside("sources.tar");
        let files = pack(&crates, &archive)?;
        let target = stage.mount_point().join("sources");
        std::fs::create_dir(&target)?;

        let mut unpack = Command::new("tar");
        unpack.arg("-xf").arg(&archive).arg("-C").arg(&target);
        // Otherwise the device would get the data whenever it is written back, in some later row.
        let mut sync = Command::new("find");
        sync.arg(&target).args(["-type", "f", "-exec", "sync", "{}", "+"]);
        timed(stage, table, "tar + fsync", files, &mut [unpack, sync])?;
        let mut compare: Vec<Command> = crates
            .iter()
            .map(|source| {
                let mut diff = Command::new("diff");
                diff.args(["-r", "--no-dereference"])
                    .arg(source)
                    .arg(target.join(source.file_name().unwrap_or_default()));
                diff
            })
            .collect();
        timed(stage, table, "diff -r", files, &mut compare)?;
        let mut remove = Command::new("rm");
        remove.arg("-rf").arg(&target);
        timed(stage, table, "rm -r", files, &mut [remove])?;
        ensure!(!target.exists(), "rm left something behind");
        println!("    {} files and directories came back byte for byte", grouped(files));
        Ok(())
    })
}

/// Runs `commands` as one row of the table.
fn timed(stage: &Stage, table: &mut Table, name: &str, files: u64, commands: &mut [Command]) -> Result<()> {
    let before = stage.stats()?;
    let mut progress = Progress::new(name);
    let start = Instant::now();
    let count = commands.len();
    for (index, command) in commands.iter_mut().enumerate() {
        interrupt::check()?;
        step::output(command)?;
        if count > 1 {
            progress.show(&format!("{} of {count}", index + 1));
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    progress.done(&format!("{seconds:.1} s"));
    table.push(Row::new(name, files, seconds, &before, &stage.stats()?));
    Ok(())
}

/// The directories of the locked crates that cargo has unpacked on this machine, smallest version of "a
/// source tree" that is always there after a build.
fn crate_sources(root: &Path) -> Result<Vec<PathBuf>> {
    const CRATES_MAX: usize = 60;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home =
        home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).context("no home directory")?;
    let registries = home.join("registry/src");
    let registries: Vec<PathBuf> = std::fs::read_dir(&registries)
        .with_context(|| format!("{} cannot be read", registries.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    let lock: toml::Table = std::fs::read_to_string(root.join("Cargo.lock"))?.parse()?;
    let packages =
        lock.get("package").and_then(toml::Value::as_array).context("Cargo.lock lists no packages")?;
    let mut sources = Vec::new();
    for package in packages {
        let text = |key| package.get(key).and_then(toml::Value::as_str).unwrap_or("");
        let name = format!("{}-{}", text("name"), text("version"));
        sources.extend(registries.iter().map(|registry| registry.join(&name)).find(|path| path.is_dir()));
    }
    sources.truncate(CRATES_MAX);
    if sources.is_empty() {
        bail!("no crate sources are unpacked in {}", home.display());
    }
    Ok(sources)
}

/// Packs the directories into `archive` and returns the number of files and directories in it.
fn pack(directories: &[PathBuf], archive: &Path) -> Result<u64> {
    let mut pack = Command::new("tar");
    pack.arg("-cf").arg(archive);
    for directory in directories {
        pack.arg("-C").arg(directory.parent().context("a crate is in a registry")?);
        pack.arg(directory.file_name().context("a crate has a name")?);
    }
    step::output(&mut pack)?;
    let mut list = Command::new("tar");
    Ok(step::output(list.arg("-tf").arg(archive))?.lines().count() as u64)
}
