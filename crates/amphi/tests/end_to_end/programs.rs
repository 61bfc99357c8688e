//! Real programs on a real mount: SQLite's shell in both journal modes, git, tar, and a C compiler; through
//! the kernel, and by `amphi run` with both kinds of descriptors, where all the programs that a script starts
//! are accelerated.

use std::path::Path;
use std::process::Command;

use crate::accelerated::{counts, library};
use crate::rig::{self, Rig, can_mount};

/// How a script is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Kernel,
    Real,
    Placeholders,
}

const ACCELERATED: [Way; 2] = [Way::Real, Way::Placeholders];

/// Runs a shell command in `directory`, which must succeed, and returns what it printed.
fn shell(directory: &Path, script: &str) -> String {
    shell_by(Way::Kernel, directory, script)
}

fn shell_by(way: Way, directory: &Path, script: &str) -> String {
    let mut command = match way {
        Way::Kernel => Command::new("sh"),
        Way::Real => rig::command(&["run", "--real-descriptors", "--", "sh"]),
        Way::Placeholders => rig::command(&["run", "--", "sh"]),
    };
    if way != Way::Kernel {
        library();
    }
    let output = command.args(["-euc", script]).current_dir(directory).output().expect("sh starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn sqlite_in_both_journal_modes() {
    sqlite_in_both_journal_modes_by(Way::Kernel);
}

#[test]
fn sqlite_in_both_journal_modes_accelerated() {
    ACCELERATED.into_iter().for_each(sqlite_in_both_journal_modes_by);
}

fn sqlite_in_both_journal_modes_by(way: Way) {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    let mount = rig.on_mount("");
    for journal in ["delete", "wal"] {
        let script = format!(
            "{{ echo 'PRAGMA journal_mode={journal}; PRAGMA synchronous=FULL; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);'
               for i in $(seq 1 100); do echo \"INSERT INTO t VALUES ($i, 'row $i');\"; done
             }} | sqlite3 {journal}.db >/dev/null
             sqlite3 {journal}.db 'PRAGMA integrity_check; SELECT count(*), sum(a) FROM t;'"
        );
        assert_eq!(shell_by(way, &mount, &script), "ok\n100|5050", "{way:?}, {journal}");
    }
    rig.umount();
    rig.fsck().unwrap();
    rig.mount();
    assert_eq!(shell(&mount, "sqlite3 wal.db 'SELECT count(*) FROM t'"), "100");
}

#[test]
fn git_commits_packs_and_checks() {
    git_commits_packs_and_checks_by(Way::Kernel);
}

#[test]
fn git_commits_packs_and_checks_accelerated() {
    ACCELERATED.into_iter().for_each(git_commits_packs_and_checks_by);
}

fn git_commits_packs_and_checks_by(way: Way) {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    let script = "
        export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
        git init -q r; cd r
        for c in 1 2 3; do
            for f in $(seq 1 20); do echo \"$c $f\" > file$f; done
            git add -A; git commit -q -m \"commit $c\"
        done
        git gc -q --prune=now; git fsck --full --strict --no-progress
        git checkout -q HEAD~1; cat file7; git checkout -q -; git status --porcelain; git log --oneline | wc -l";
    assert_eq!(shell_by(way, &rig.on_mount(""), script), "2 7\n3", "{way:?}");
    rig.umount();
    rig.fsck().unwrap();
}

#[test]
fn tar_cc_and_rename_tricks() {
    tar_cc_and_rename_tricks_by(Way::Kernel);
}

#[test]
fn tar_cc_and_rename_tricks_accelerated() {
    ACCELERATED.into_iter().for_each(tar_cc_and_rename_tricks_by);
}

fn tar_cc_and_rename_tricks_by(way: Way) {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = format!(
        "tar -C '{}' -cf - src tests | tar -xf -
         diff -r '{0}/src' src; diff -r '{0}/tests' tests
         printf '#include <stdio.h>\\nint main(void) {{ return puts(\"compiled here\") < 0; }}\\n' > a.c
         cc -o a a.c; ./a
         ln -s a.c link; ln a.c hard; mv hard a2.c; cmp link a2.c
         truncate -s 1M sparse; test $(du -k sparse | cut -f1) -lt 100
         rm -r src tests; ls",
        source.display()
    );
    let said = shell_by(way, &rig.on_mount(""), &script);
    assert_eq!(said, "compiled here\na\na.c\na2.c\nlink\nsparse", "{way:?}");
    rig.umount();
    rig.fsck().unwrap();
}

/// GNU tar closes its standard error before it ends, and a shell ends by `_exit`. A shell's child does not
/// count what the shell did.
#[test]
fn what_went_which_way_is_told_however_a_program_ends() {
    if !can_mount() {
        return;
    }
    library();
    let rig = Rig::new("64M");
    rig.mount();
    std::fs::write(rig.path("file"), b"text").expect("written");
    shell(Path::new(&rig.path("")), "tar cf archive file");
    let told = |program: &[&str]| {
        let run = [&["run", "--trace-calls", "--"], program].concat();
        let output = rig::command(&run).current_dir(rig.mount_point()).output().expect("amphi starts");
        let said = rig::complaint(&output);
        assert!(output.status.success(), "{said}");
        said
    };
    let by_tar = told(&["tar", "xf", &rig.path("archive")]);
    assert_eq!(counts(&by_tar)["write"], (1, 0), "{by_tar}");
    let by_shells = told(&["sh", "-c", "echo a > a; (echo b > b; echo c > c)"]);
    let opens: Vec<_> = by_shells.lines().filter(|line| line.trim_start().starts_with("open ")).collect();
    assert_eq!(opens.len(), 2, "{by_shells}");
    assert!(opens[0].contains(" 2 ") && opens[1].contains(" 1 "), "the child ends first: {by_shells}");
    rig.umount();
}
