//! `cargo xtask test`: lint, documentation, every test of the workspace, with what is being done and for how long.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use clap::ValueEnum;

use crate::step::{self, step};
use crate::{lint, packages};

/// What `cargo xtask test` takes.
#[derive(clap::Args)]
pub struct Options {
    /// The longer settings of the tests that have them.
    #[arg(long)]
    long: bool,
    /// One part alone.
    #[arg(long, value_name = "WHAT")]
    only: Option<Part>,
}

/// The parts, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Rules of the house, rustfmt, clippy.
    Lint,
    /// Documentation builds without warnings.
    Docs,
    /// Unit, property and end-to-end tests of every crate.
    Tests,
}

const PARTS: [Part; 3] = [Part::Lint, Part::Docs, Part::Tests];

/// Runs the parts asked for.
///
/// # Errors
/// At the first part that fails.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    let start = Instant::now();
    packages::ensure(&packages::ALL)?;
    if let Some(reason) = packages::why_no_fuse() {
        println!("note: nothing can be mounted here, so end-to-end tests will be skipped: {reason}");
    }
    let mut done = 0;
    for part in PARTS.into_iter().filter(|part| options.only.is_none_or(|only| only == *part)) {
        run_part(root, part, options)?;
        done += 1;
    }
    println!("all well: {done} parts in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn run_part(root: &Path, part: Part, options: &Options) -> Result<()> {
    match part {
        Part::Lint => lint::run(root, &lint::Options { rules_only: false }),
        Part::Docs => step("documentation", || {
            let mut doc = step::cargo(root);
            doc.args(["doc", "--quiet", "--workspace", "--no-deps"]);
            doc.env(
                "RUSTDOCFLAGS",
                "-D rustdoc::broken_intra_doc_links -D rustdoc::invalid_html_tags -D rustdoc::bare_urls",
            );
            step::run(&mut doc)
        }),
        Part::Tests => step("tests", || {
            let mut test = step::cargo(root);
            test.args(["test", "--workspace"]);
            if options.long {
                test.env("AMPHI_TEST_LONG", "1");
            }
            step::run(&mut test)
        }),
    }
}
