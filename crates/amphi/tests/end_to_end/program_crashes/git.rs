//! git over crashes: each commit that `git commit` acknowledged is on the branch with its files, and
//! `git fsck` finds nothing wrong.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Dice, Outcome, Program, Rig, command, expect_count, run, survive};

#[test]
fn git() {
    survive(make);
}

pub(super) fn make(dice: Dice) -> Git {
    Git { dice, syncs_names: false, commits: 0, head: String::new() }
}

/// For file systems on which a name is durable once its directory is synced, which git leaves to others.
pub(super) fn make_syncing_names(dice: Dice) -> Git {
    Git { syncs_names: true, ..make(dice) }
}

/// Files that commits change.
const FILES: u64 = 40;

pub(super) struct Git {
    dice: Dice,
    /// Whether the directory of the branch is synced after each commit.
    syncs_names: bool,
    /// How many commits were acknowledged, and the last of them.
    commits: u64,
    head: String,
}

impl Program for Git {
    const NAME: &'static str = "git";
    const NEEDS: &'static [&'static str] = &["git"];
    const IMAGE: &'static str = "512M";
    const OPERATIONS: u64 = 40;

    fn prepare(&mut self, rig: &Rig) -> Outcome<()> {
        run(command("git").args(["init", "-q"]).arg(rig.on_mount("repository")))?;
        let settings = [
            ("user.name", "A"),
            ("user.email", "a@example.org"),
            // Everything is synced before it counts, the index and references too, whatever git's version
            // does by itself.
            ("core.fsync", "all"),
            ("core.fsyncMethod", "fsync"),
            ("gc.auto", "0"),
        ];
        for (name, value) in settings {
            run(in_repository(rig).args(["config", name, value]))?;
        }
        self.commit(rig)?;
        // `git init` syncs nothing of what it makes.
        let repository = rig.on_mount("repository");
        run(Command::new("find").arg(repository).args(["-type", "f", "-exec", "sync", "{}", "+"])).map(drop)
    }

    fn work_until_crash(&mut self, rig: &Rig, acknowledged: &AtomicU64) -> Outcome<()> {
        while self.commit(rig).is_ok() {
            acknowledged.fetch_add(1, Ordering::Relaxed);
            // Packs take the place of loose objects and references.
            if self.commits.is_multiple_of(12)
                && run(in_repository(rig).args(["repack", "-a", "-d", "-q"])).is_err()
            {
                break;
            }
            if self.commits.is_multiple_of(7) && run(in_repository(rig).args(["pack-refs", "--all"])).is_err()
            {
                break;
            }
        }
        // Whether the crash explains the failure is for the caller to see: without one, it waits for more
        // commits in vain.
        Ok(())
    }

    fn verify(&mut self, rig: &Rig) -> Outcome<String> {
        // What git asks for after a crash: whose locks they were is gone.
        run(Command::new("find").arg(rig.on_mount("repository/.git")).args(["-name", "*.lock", "-delete"]))?;
        let said =
            run(in_repository(rig).args(["fsck", "--full", "--strict", "--no-progress", "--no-dangling"]))?;
        if !said.is_empty() {
            return Err(format!("git fsck says {said}"));
        }
        let count = run(in_repository(rig).args(["rev-list", "--count", "HEAD"]))?;
        let count: u64 = count.parse().map_err(|_| format!("git rev-list says {count}"))?;
        let count = expect_count("commits", count, self.commits..=self.commits + 1)?;
        run(in_repository(rig).args(["merge-base", "--is-ancestor", &self.head, "HEAD"]))?;
        self.commits = count;
        self.head = run(in_repository(rig).args(["rev-parse", "HEAD"]))?;
        run(in_repository(rig).args(["reset", "-q", "--hard"]))?;
        let status = run(in_repository(rig).args(["status", "--porcelain"]))?;
        // A file that an interrupted commit had not yet added is no part of it.
        if let Some(changed) = status.lines().find(|line| !line.starts_with("??")) {
            return Err(format!("after git reset: {changed}"));
        }
        Ok(format!("{count} commits"))
    }
}

impl Git {
    /// Changes some files and commits them.
    fn commit(&mut self, rig: &Rig) -> Outcome<()> {
        let number = self.commits + 1;
        for _ in 0..1 + self.dice.below(4) {
            let file = rig.on_mount(&format!("repository/file{}", self.dice.below(FILES)));
            let lines = 1 + self.dice.below(200);
            let text: String = (0..lines).map(|line| format!("commit {number}, line {line}\n")).collect();
            std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        run(in_repository(rig).args(["add", "-A"]))?;
        run(in_repository(rig).args(["commit", "-q", "-m", &format!("commit {number}")]))?;
        if self.syncs_names {
            run(command("sync").arg(rig.on_mount("repository/.git/refs/heads")))?;
        }
        self.commits = number;
        self.head = run(in_repository(rig).args(["rev-parse", "HEAD"]))?;
        Ok(())
    }
}

/// git in the repository, whatever the user's own settings are.
fn in_repository(rig: &Rig) -> Command {
    let mut git = command("git");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    git.arg("-C").arg(rig.on_mount("repository"));
    git
}
