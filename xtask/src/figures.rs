//! `cargo xtask figures`: every experiment of the benchmark laboratory through the command, into
//! docs/results, and the guard's stored results.

use std::path::Path;

use anyhow::Result;

use crate::step::{self, step};

/// What `cargo xtask figures` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Share of the published number of files; each experiment's own unless given.
    #[arg(long, value_name = "S")]
    scale: Option<f64>,
    /// Cells to run at once [default: one for each processor, if there is memory for so many]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Also accept what virtual-time results have become, after showing how they differ from those stored.
    #[arg(long)]
    accept: bool,
}

pub fn run(root: &Path, options: &Options) -> Result<()> {
    let amphi = || {
        let mut amphi = step::cargo(root);
        amphi.args(["run", "--quiet", "--release", "--package", "amphi", "--", "bench"]);
        amphi
    };
    step("figures", || {
        let mut figures = amphi();
        figures.args(["figures", "docs/results"]);
        if let Some(jobs) = options.jobs {
            figures.args(["--jobs", &jobs.to_string()]);
        }
        if let Some(scale) = options.scale {
            figures.args(["--scale", &scale.to_string()]);
        }
        step::run(&mut figures)
    })?;
    step("stored results", || {
        let mut guard = amphi();
        guard.arg("guard");
        if options.accept {
            guard.arg("--accept");
        }
        step::run(&mut guard)
    })
}
