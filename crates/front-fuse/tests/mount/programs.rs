//! Real programs: a compiler and what it compiled, shared mappings, tar, git, SQLite. Programs that are not
//! installed are skipped.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::mounted::{Mounted, is_root};

/// Whether `program` can be run; prints that it is skipped if not.
fn installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        println!("skipped: {program} is not installed");
    }
    found.is_ok()
}

/// Runs a script in `directory`; it must succeed. Returns what it printed.
fn run(directory: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-euc", script]).current_dir(directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {said}{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn shared_mappings_are_coherent() {
    let Some(mounted) = Mounted::new() else { return };
    if !installed("cc") {
        return;
    }
    fs::write(mounted.path("mapping.c"), include_str!("shared_mapping.c")).unwrap();
    run(mounted.root(), "cc -O1 -Wall -Werror -o mapping mapping.c && ./mapping data");
}

#[test]
fn file_handles_outlive_the_cache() {
    let Some(mounted) = Mounted::new() else { return };
    if !is_root() || !installed("cc") {
        println!("skipped: only root may open files by handle");
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("handle.c"), include_str!("file_handle.c")).unwrap();
    run(outside.path(), "cc -O1 -Wall -Werror -o handle handle.c");
    let root = mounted.root().display();
    fs::create_dir(mounted.path("dir")).unwrap();
    run(outside.path(), &format!("./handle {root} {root}/dir/file"));
}

#[test]
fn locks_work_between_processes() {
    let Some(mounted) = Mounted::new() else { return };
    if !installed("flock") {
        return;
    }
    let script = "flock lock sh -c 'echo held; flock -n lock true && exit 1; exit 0'; flock -n lock true";
    assert_eq!(run(mounted.root(), script), "held");
}

#[test]
fn tar_round_trip() {
    let Some(mounted) = Mounted::new() else { return };
    if !installed("tar") {
        return;
    }
    let source = env!("CARGO_MANIFEST_DIR");
    run(
        mounted.root(),
        &format!(
            "tar -C {source} -cf a.tar --exclude=target . && mkdir out && tar -C out -xf a.tar && \
             diff -r {source} out && tar -tf a.tar | sort > listed && (cd out && find . -type f | while read f; do grep -qxF \"$f\" ../listed; done) && rm -rf out && test ! -e out"
        ),
    );
}

#[test]
fn git_round_trip() {
    let Some(mounted) = Mounted::new() else { return };
    if !installed("git") {
        return;
    }
    let source = env!("CARGO_MANIFEST_DIR");
    let script = format!(
        "export HOME=$PWD; cp -r {source}/src tree; cd tree; git init -q .; git add .; \
         git -c user.name=a -c user.email=b commit -qm one; git gc -q; git fsck --strict --no-progress; \
         git checkout -qb other; echo x >> lib.rs; git -c user.name=a -c user.email=b commit -qam two; \
         git checkout -q -; test -z \"$(git status --porcelain)\"; git diff --stat other | tail -1"
    );
    assert!(run(mounted.root(), &script).contains("1 file changed"));
}

#[test]
fn sqlite_in_both_journal_modes() {
    let Some(mounted) = Mounted::new() else { return };
    if !installed("sqlite3") {
        return;
    }
    for journal in ["delete", "wal", "truncate", "persist"] {
        let script = format!(
            "sqlite3 {journal}.db 'pragma journal_mode={journal}; pragma synchronous=full; create table t(x);'; \
             for i in 1 2 3 4; do (for j in 1 2 3 4 5; do \
               sqlite3 {journal}.db '.timeout 30000' \"insert into t select $i*100+value from generate_series(1,20)\"; done) & done; wait; \
             sqlite3 {journal}.db 'pragma integrity_check; select count(*), sum(x) from t'"
        );
        assert_eq!(
            run(mounted.root(), &script).lines().skip(1).collect::<Vec<_>>(),
            ["ok", "400|104200"],
            "{journal}"
        );
    }
}
