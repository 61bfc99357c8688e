//! `amphi crash replay` and `explain`: one crash again, in words or as a page.

use std::path::PathBuf;
use std::process::ExitCode;

use amphi_crashlab::session::{Outcome, replay as replay_crash};
use amphi_crashlab::{Session, explain as explained, shrink};
use anyhow::{Context, Result, anyhow};

use super::bench::CrashName;
use super::run::{Shown, USUAL_PROFILE, print_violation, read_trace};
use super::subject_named;

/// Most runs spent on making a violation small.
const SHRINK_RUNS: u32 = 200;

/// Does one crash again and shows operations, crash point, what is legal and what was found.
#[derive(clap::Args)]
pub struct ReplayOptions {
    /// What `amphi crash run` printed.
    id: CrashName,
    #[command(flatten)]
    with: With,
    /// Only the crash itself: does not look for fewer operations that show something wrong.
    #[arg(long)]
    no_shrink: bool,
}

/// Draws one crash as a timeline of stores, fences and commits, in one self-contained page.
#[derive(clap::Args)]
pub struct ExplainOptions {
    /// What `amphi crash run` printed.
    id: CrashName,
    #[command(flatten)]
    with: With,
    /// The page to write.
    #[arg(long)]
    html: PathBuf,
}

#[derive(clap::Args)]
struct With {
    /// The file of operations, for IDs of the workload trace.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Profile of the SSD that it was found on.
    #[arg(long, default_value = USUAL_PROFILE)]
    profile: String,
}

fn session(name: &CrashName, with: &With) -> Result<Session> {
    let id = &name.id;
    let trace = match (&name.bench, with.trace.as_deref()) {
        (Some(bench), _) => bench.trace()?,
        (None, Some(path)) => read_trace(path)?,
        (None, None) => Vec::new(),
    };
    let session = Session::new(subject_named(&id.subject)?, &with.profile).map_err(|what| anyhow!(what))?;
    let session = session.with_trace(trace).map_err(|what| anyhow!(what))?;
    if session.count(id.workload.kind).is_some_and(|count| id.workload.number >= count) {
        return Err(anyhow!("there is no workload {}", id.workload));
    }
    Ok(session)
}

/// Shows the crash. Exit code 1 says that something is wrong after it.
///
/// # Errors
/// There is no such workload.
pub fn replay(options: &ReplayOptions) -> Result<ExitCode> {
    let session = session(&options.id, &options.with)?;
    let id = &options.id.id;
    let outcome = replay_crash(&session, id);
    print!("{}", explained::text(id, &outcome));
    let Some(violation) = outcome.violations.first() else { return Ok(ExitCode::SUCCESS) };
    if !options.no_shrink {
        match shrink::shrink(&session, violation, &outcome.script, SHRINK_RUNS) {
            Some(small) => {
                println!("\nthe fewest operations found that show something wrong ({} runs):", small.runs);
                for operation in &small.script {
                    println!("  {operation}");
                }
                println!("  {}: {}", small.violation.operation, small.violation.what);
            }
            None => println!("\nit cannot be made smaller"),
        }
    }
    let With { trace, profile } = &options.with;
    let bench = options.id.bench.as_ref();
    print_violation(violation, &Shown { bench, profile, trace: trace.as_deref() });
    Ok(ExitCode::FAILURE)
}

/// Writes the page.
///
/// # Errors
/// There is no such workload; the file cannot be written.
pub fn explain(options: &ExplainOptions) -> Result<ExitCode> {
    let session = session(&options.id, &options.with)?;
    let id = &options.id.id;
    let outcome: Outcome = replay_crash(&session, id);
    std::fs::write(&options.html, explained::html(id, &outcome))
        .with_context(|| format!("cannot write {}", options.html.display()))?;
    println!("{}: {} events", options.html.display(), outcome.events.len());
    Ok(ExitCode::SUCCESS)
}
