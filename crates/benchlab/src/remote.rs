//! Desks in processes of their own, for what is to be measured as a program that is run by `amphi run` has
//! it: the library stands in front of that process's calls. Two desks are two processes.
//!
//! A process is told a batch in a line, an operation's number in [`ALL`] and how many calls, prepares it and
//! says so by an empty line; it is told when to begin, by the wall clock, and looks at that clock until then,
//! so that several begin at once. It answers with a line: when it began and when it ended, and the samples
//! in ns. Instead of either line it may say `!` and why not. What is timed is timed in that process, so the
//! lines cost nothing that counts.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;

use amphi_rt::time;
use anyhow::{Context, Result, bail, ensure};

use crate::batch::{Batch, timed};
use crate::operation::{ALL, Desk, Operation};
use crate::paths::Paths;

/// The hidden subcommand of `amphi bench` that serves one.
pub const SERVE: &str = "serve-desk";
/// What stands before libc in a process that is run by `amphi run`, beside the program `amphi`.
const LIBRARY: &str = "libamphi_preload.so";
/// Its name: programs called `amphi` are left alone.
const NAME: &str = "bench-desk";

/// A program that is run as `amphi run` does, with the library that lies beside `amphi`.
///
/// # Errors
/// The library is not there.
pub fn preload(command: &mut Command, amphi: &Path) -> Result<()> {
    let library = amphi.with_file_name(LIBRARY);
    ensure!(library.is_file(), "{} is not built: cargo build -p amphi-front-preload", library.display());
    command.env("LD_PRELOAD", library).env("AMPHI_RUN", "1");
    Ok(())
}

/// How a process is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// As any program: its calls are the kernel's.
    Plain,
    /// By `amphi run --real-descriptors`.
    RealDescriptors,
    /// By `amphi run`: it creates files without the kernel too.
    Preloaded,
}

/// A process with a desk.
pub struct Remote {
    child: Child,
    /// Closing it ends the process.
    tell: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Remote {
    /// Starts a process that works in a new directory `at`.
    ///
    /// # Errors
    /// It cannot be started, or cannot work there.
    pub fn start(amphi: &Path, at: &Path, run: Run) -> Result<Self> {
        let mut command = Command::new(amphi);
        command.arg0(NAME).args(["bench", SERVE]).arg(at);
        if run != Run::Plain {
            preload(&mut command, amphi)?;
        }
        if run == Run::RealDescriptors {
            command.env("AMPHI_REAL_DESCRIPTORS", "1");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let tell = child.stdin.take();
        let said = BufReader::new(child.stdout.take().context("it was asked for")?);
        let mut remote = Self { child, tell, said };
        remote.answer::<u64>()?;
        Ok(remote)
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.tell.as_mut().context("the process is at its end")?, "{line}")?)
    }

    fn answer<N: FromStr<Err: std::error::Error + Send + Sync + 'static>>(&mut self) -> Result<Vec<N>> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        match line.trim().split_once('!') {
            Some((_, why)) => bail!("{}", why.trim()),
            None if line.is_empty() => bail!("the process ended"),
            None => line.split_whitespace().map(|word| Ok(word.parse()?)).collect(),
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.tell = None;
        // It may have ended.
        let _ = self.child.wait();
    }
}

/// How long before they begin processes are told when, ns.
const AHEAD_NS: i64 = 300_000;

/// Runs one batch in the first `threads` processes at once.
///
/// # Errors
/// What the file system answers.
pub(crate) fn batch(
    processes: &mut [Remote],
    operation: Operation,
    threads: usize,
    calls: usize,
) -> Result<Batch> {
    let number = ALL.iter().position(|one| *one == operation).context("it is none of the list")?;
    let processes = processes.get_mut(..threads).context("there are not so many processes")?;
    processes.iter_mut().try_for_each(|process| process.tell(&format!("{number} {calls}")))?;
    // All are heard, so that no answer is taken for the next batch's. Who could not prepare begins nothing.
    let ready: Vec<_> = processes.iter_mut().map(Remote::answer::<u64>).collect();
    let begin = time::wall_ns() + AHEAD_NS;
    let told = processes
        .iter_mut()
        .zip(ready)
        .map(|(process, ready)| {
            ready?;
            process.tell(&begin.to_string())?;
            Ok(process)
        })
        .collect::<Vec<Result<_>>>();
    let answers: Vec<_> = told.into_iter().map(|told| told.and_then(Remote::answer::<i64>)).collect();
    let batch = |words: Vec<i64>| {
        let [begun_ns, ended_ns, samples @ ..] = &words[..] else { bail!("the process did not say when") };
        let samples = samples.iter().map(|&ns| ns.unsigned_abs()).collect();
        Ok(Batch { samples, begun_ns: *begun_ns, ended_ns: *ended_ns })
    };
    let batches = answers.into_iter().map(|answer| answer.and_then(batch)).collect::<Result<_>>()?;
    Ok(Batch::together(batches))
}

/// The process's side: works in a new directory `at` until nobody tells it anything.
///
/// # Errors
/// Nobody listens.
pub fn serve(at: &Path) -> Result<()> {
    let mut said = std::io::stdout().lock();
    let mut desk = match Paths::make(at) {
        Ok(desk) => desk,
        Err(error) => return Ok(writeln!(said, "! {error:#}")?),
    };
    writeln!(said)?;
    let mut lines = std::io::stdin().lines();
    while let Some(line) = lines.next() {
        let prepared = told(&line?).and_then(|(operation, calls)| {
            desk.prepare(operation, calls)?;
            Ok((operation, calls))
        });
        let (operation, calls) = match prepared {
            Ok(batch) => batch,
            Err(error) => {
                writeln!(said, "! {error:#}")?;
                continue;
            }
        };
        writeln!(said)?;
        let Some(begin) = lines.next() else { break };
        match carry_out(&mut desk, operation, calls, begin?.parse()?) {
            Ok(batch) => {
                let words: Vec<_> = batch.samples.iter().map(u64::to_string).collect();
                writeln!(said, "{} {} {}", batch.begun_ns, batch.ended_ns, words.join(" "))?;
            }
            Err(error) => writeln!(said, "! {error:#}")?,
        }
    }
    Ok(())
}

fn told(line: &str) -> Result<(Operation, usize)> {
    let (number, calls) = line.split_once(' ').context("two numbers are needed")?;
    Ok((*ALL.get(number.parse::<usize>()?).context("no such operation")?, calls.parse()?))
}

fn carry_out(desk: &mut Paths, operation: Operation, calls: usize, begin_ns: i64) -> Result<Batch> {
    while time::wall_ns() < begin_ns {
        std::hint::spin_loop();
    }
    let timed = timed(desk, operation, calls);
    // Also after a failure, so that the next batch finds an empty desk.
    let cleared = desk.clear(operation, calls);
    let batch = timed?;
    cleared?;
    // Who could not begin in time, since another was on its processor, has begun all the same.
    Ok(Batch { begun_ns: begin_ns, ..batch })
}
