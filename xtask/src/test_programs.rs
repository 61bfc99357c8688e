//! Runs programs of tests, as many at once as there are processors: many end with one long test, which leaves
//! the others idle.
//!
//! What a program prints is shown only if it fails, then as a whole. All are run, also after one has failed.

use std::io::{Write, stdout};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::built::TestProgram;

/// Tests that parts of their own run.
const LEFT_OUT: [&str; 4] = ["kill_loop", "power_loop", "external_suites::", "program_crashes::"];

/// Runs every program, each with what `prepare` adds.
///
/// # Errors
/// Names those that failed, when all have ended.
pub fn run(all: &[TestProgram], prepare: impl Fn(&mut Command) + Sync) -> Result<()> {
    let processors = thread::available_parallelism().context("how many processors there are")?.get();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                while let Some(test) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if !passes(test, &prepare) {
                        failed
                            .lock()
                            .expect("no thread panics")
                            .push(format!("{} {}", test.package, test.target));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().expect("no thread panics");
    if !failed.is_empty() {
        bail!("tests failed: {} (`cargo test -p PACKAGE --test NAME` repeats them)", failed.join(", "));
    }
    Ok(())
}

fn passes(test: &TestProgram, prepare: &impl Fn(&mut Command)) -> bool {
    let start = Instant::now();
    let mut command = test.command();
    prepare(&mut command);
    command.arg("--quiet").args(LEFT_OUT.iter().flat_map(|name| ["--skip", name])).stdin(Stdio::null());
    let ended = command.output();
    let passed = ended.as_ref().is_ok_and(|output| output.status.success());
    let mut out = stdout().lock();
    // Whoever reads this has gone if it cannot be written.
    let _ = match &ended {
        Err(error) => writeln!(out, "{}: {error}", test.path.display()),
        Ok(output) if !passed => out.write_all(&output.stdout).and_then(|()| out.write_all(&output.stderr)),
        Ok(_) => Ok(()),
    };
    let verdict = if passed { "ok" } else { "FAILED" };
    let seconds = start.elapsed().as_secs_f64();
    let _ = writeln!(out, "    {verdict}: {} {} ({seconds:.1} s)", test.package, test.target);
    passed
}
