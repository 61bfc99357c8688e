//! Each row of docs/papers.md has a planted fault, and a test that fails with it: a row that no test can see
//! break is only a claim.
//!
//! `cargo xtask test --only rows` runs each test twice, at once: as it is, when it must pass, and with the
//! fault planted by `AMPHI_PLANTED`, when it must fail. A new row gets a variant in its crate's `planted.rs`
//! and a line in [`FAULTS`]; the lint `paper rows` asks for it.

mod faults;

use std::process::{Child, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::built::Built;
use crate::step::{self, step};
use crate::workers;

pub use faults::{FAULTS, Fault};

/// What a test came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
}

/// Runs the test of each fault, without it and with it.
///
/// # Errors
/// A test fails as it is, passes with its fault, or does not run.
pub fn run(built: &Built) -> Result<()> {
    step("rows of the papers", || {
        let verdicts = workers::each(FAULTS, |fault| {
            let start = Instant::now();
            let verdict = judge(built, fault);
            let said = if verdict.is_ok() { "ok" } else { "FAILED" };
            println!("    {said}: {} sees {} ({:.1} s)", fault.row, fault.bug, start.elapsed().as_secs_f64());
            verdict
        })?;
        let bad: Vec<_> =
            verdicts.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
        if !bad.is_empty() {
            bail!("{}", bad.join("\n"));
        }
        Ok(())
    })
}

/// Runs a fault's test as it is and with the fault, side by side.
fn judge(built: &Built, fault: &Fault) -> Result<()> {
    let Fault { row, bug, test, .. } = fault;
    let (sound, faulty) = (Running::start(built, fault, None)?, Running::start(built, fault, Some(bug))?);
    if sound.outcome()? == Outcome::Failed {
        bail!("{row}: {test} fails where nothing is planted");
    }
    if faulty.outcome()? == Outcome::Passed {
        bail!("{row}: {test} passes with {bug}: it cannot see the row break");
    }
    Ok(())
}

/// A test that runs.
struct Running {
    line: String,
    child: Child,
}

impl Running {
    /// Starts one test, with a bug planted or with none.
    fn start(built: &Built, fault: &Fault, bug: Option<&str>) -> Result<Self> {
        let mut test = built.one_test(fault.room, fault.file, fault.test)?;
        test.arg("--quiet").stdout(Stdio::piped()).stderr(Stdio::piped());
        test.envs(bug.map(|bug| ("AMPHI_PLANTED", bug)));
        let line = step::command_line(&test);
        let child = test.spawn().with_context(|| format!("`{line}` could not be started"))?;
        Ok(Self { line, child })
    }

    fn outcome(self) -> Result<Outcome> {
        let Self { line, child } = self;
        let output = child.wait_with_output().with_context(|| format!("`{line}` went astray"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        // What finds no test or is killed says neither.
        match (said.contains(" 1 passed; 0 failed"), said.contains(" 0 passed; 1 failed")) {
            (true, false) => Ok(Outcome::Passed),
            (false, true) => Ok(Outcome::Failed),
            _ => bail!("`{line}` ran no test: {said}{}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}
