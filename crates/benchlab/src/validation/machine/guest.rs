//! What the program does in the machine: the steps, one by one, as it is told by lines over a port.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::files::{Files, SyscallFiles};
use crate::validation::steps::{Asked, Bench, Step, steps};

/// What the program says first.
pub(in crate::validation) const READY: &str = "ready";
/// What it says after each order, or [`FAILED`] and why.
pub(in crate::validation) const DONE: &str = "done";
pub(in crate::validation) const FAILED: &str = "failed";
/// Begins a round, whose number follows.
pub(in crate::validation) const BEGIN: &str = "begin";
/// Makes what a step needs, whose number follows, and a `sync`.
pub(in crate::validation) const PREPARE: &str = "prepare";
/// Does a step.
pub(in crate::validation) const ACT: &str = "act";

/// Does on the file system in `directory` what is asked for over `port`, until nobody is at its other end.
///
/// # Errors
/// The port cannot be used. What a step answers goes over the port.
pub fn serve(port: &Path, directory: &Path, asked: &Asked) -> Result<()> {
    let steps = steps(asked)?;
    let files: Arc<dyn Files> = Arc::new(SyscallFiles::new(directory)?);
    let opened = OpenOptions::new().read(true).write(true).open(port);
    let mut answers = opened.with_context(|| format!("{} cannot be opened", port.display()))?;
    let orders = BufReader::new(answers.try_clone()?);
    let mut bench = None;
    writeln!(answers, "{READY}")?;
    for order in orders.lines() {
        let answer = match follow(&order?, &files, &steps, &mut bench) {
            Ok(()) => DONE.to_owned(),
            Err(error) => format!("{FAILED} {}", format!("{error:#}").replace('\n', " ")),
        };
        writeln!(answers, "{answer}")?;
    }
    Ok(())
}

fn follow<'a>(
    order: &str,
    files: &'a Arc<dyn Files>,
    steps: &[Step],
    bench: &mut Option<Bench<'a>>,
) -> Result<()> {
    let (word, number) = order.split_once(' ').context("an order is a word and a number")?;
    let number: usize = number.parse()?;
    if word == BEGIN {
        let begun = Bench::new(files)?;
        begun.advance_log(number)?;
        *bench = Some(begun);
        return Ok(());
    }
    let bench = bench.as_mut().context("no round has begun")?;
    let step = steps.get(number).context("there is no such step")?;
    match word {
        PREPARE => step.make_ready(bench),
        ACT => (step.act)(bench),
        _ => bail!("`{word}` is no order"),
    }
}
