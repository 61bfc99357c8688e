//! Runs programs of tests, as many at once as there are processors: many end with one long test, which leaves
//! the others idle.
//!
//! What a program prints is shown only if it fails, then as a whole. All are run, also after one has failed.

use std::io::{Write, stdout};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Result, bail};

use crate::built::TestProgram;
use crate::workers;

/// Tests that parts of their own run.
const LEFT_OUT: [&str; 4] = ["kill_loop", "power_loop", "external_suites::", "program_crashes::"];

/// Runs every program, each with what `prepare` adds.
///
/// # Errors
/// Names those that failed, when all have ended.
pub fn run(all: &[TestProgram], prepare: impl Fn(&mut Command) + Sync) -> Result<()> {
    let failed = workers::each(all, |test| {
        let name = format!("{} {}", test.package, test.target);
        let mut command = test.command();
        prepare(&mut command);
        command.args(LEFT_OUT.iter().flat_map(|name| ["--skip", name]));
        (!passes(&name, &mut command)).then_some(name)
    })?;
    none_has(failed, "PACKAGE", "NAME")
}

/// Runs each test of a program in a process of its own: threads of one process that map and unmap memory wait
/// for each other.
///
/// # Errors
/// As [`run`].
pub fn run_apart(program: &TestProgram, prepare: impl Fn(&mut Command) + Sync) -> Result<()> {
    let names = program.names()?;
    let failed = workers::each(&names, |name| {
        let mut command = program.command();
        prepare(&mut command);
        (!passes(name, command.args(["--exact", name]))).then(|| name.clone())
    })?;
    none_has(failed, &program.package, &program.target)
}

/// That none has failed; else names those, and what repeats them.
fn none_has(failed: Vec<Option<String>>, package: &str, target: &str) -> Result<()> {
    let failed: Vec<_> = failed.into_iter().flatten().collect();
    if !failed.is_empty() {
        bail!("tests failed: {} (`cargo test -p {package} --test {target}` repeats them)", failed.join(", "));
    }
    Ok(())
}

fn passes(name: &str, command: &mut Command) -> bool {
    let start = Instant::now();
    let ended = command.arg("--quiet").stdin(Stdio::null()).output();
    let passed = ended.as_ref().is_ok_and(|output| output.status.success());
    let mut out = stdout().lock();
    // Whoever reads this has gone if it cannot be written.
    let _ = match &ended {
        Err(error) => writeln!(out, "{}: {error}", command.get_program().display()),
        Ok(output) if !passed => out.write_all(&output.stdout).and_then(|()| out.write_all(&output.stderr)),
        Ok(_) => Ok(()),
    };
    let verdict = if passed { "ok" } else { "FAILED" };
    let seconds = start.elapsed().as_secs_f64();
    let _ = writeln!(out, "    {verdict}: {name} ({seconds:.1} s)");
    passed
}
