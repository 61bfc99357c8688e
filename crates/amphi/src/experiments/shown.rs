//! What a terminal shows of experiments and workloads: how far they are, and what came out.

use amphi_benchlab::experiment::cell::CellResult;
use amphi_benchlab::experiment::lab::Progress;
use amphi_benchlab::figure::Figure;
use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How far an experiment is: cells finished, time gone and time left.
pub struct CellBar(ProgressBar);

impl CellBar {
    /// The bar of an experiment.
    ///
    /// # Errors
    /// Its style is wrong.
    pub fn on(target: ProgressDrawTarget, name: &str) -> Result<Self> {
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = "{prefix} [{bar:30}] {pos}/{len} cells, {elapsed} gone, about {eta} left  {msg}";
        bar.set_style(ProgressStyle::with_template(style)?.progress_chars("=> "));
        bar.set_prefix(name.to_owned());
        Ok(Self(bar))
    }

    /// Shows that there are so many cells, or that one is finished.
    pub fn show(&self, progress: Progress<'_>) {
        match progress {
            Progress::Begun { cells, finished } => {
                self.0.set_length(cells as u64);
                if finished > 0 {
                    self.0.set_message(format!("({finished} finished before)"));
                }
                self.0.tick();
            }
            Progress::Done(cell) => {
                self.0.set_message(format!("{} on {}", cell.workload, cell.system.title()));
                self.0.inc(1);
            }
        }
    }

    /// Takes it off the screen.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Prints a figure as a table: ours, the paper's, the ratio.
pub fn print_figure(figure: &Figure) {
    println!(
        "{}: {}\n{}\nClaim ({}): {}",
        figure.name, figure.title, figure.question, figure.claim_row, figure.claim
    );
    println!("Scale {}, seed {}.\n", figure.scale, figure.seed);
    let unit = if figure.unit.is_empty() { "x" } else { &figure.unit };
    println!("{:<44} {:<34} {:>12} {:>10} {:>7}", "", "", format!("ours, {unit}"), "paper", "ratio");
    for group in &figure.groups {
        for bar in &group.bars {
            let shown = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
            println!(
                "{:<44} {:<34} {:>12.3} {:>10} {:>7}{}",
                group.label,
                bar.series,
                bar.ours,
                shown(bar.published),
                shown(bar.ratio()),
                if bar.differs() { " *" } else { "" },
            );
        }
    }
    for refused in &figure.refused {
        println!("\nno result: {}: {}", refused.place, refused.why);
    }
    if !figure.differences.is_empty() {
        println!("\n* more than a fifth off; what decides:");
    }
    for difference in &figure.differences {
        let of = difference.ratio.map(|ratio| format!(" ({ratio:.2} of the published)")).unwrap_or_default();
        println!("  {}{of}: {}", difference.place, difference.why);
    }
    for place in figure.unexplained() {
        println!("  {place}: not explained");
    }
}

/// Prints throughput, latencies and traffic; `seconds` says of which kind its seconds are.
pub fn print_result(what: &str, seconds: &str, result: &CellResult) {
    println!(
        "{what}: {} operations in {:.3} {seconds}, {:.0} a second",
        result.operations,
        result.elapsed_ns as f64 / 1e9,
        result.operations_per_second(),
    );
    println!("{:<14} {:>10} {:>10} {:>10} {:>10} {:>10}  us", "", "count", "mean", "p50", "p99", "p99.9");
    for of in &result.latencies {
        let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
        println!(
            "{:<14} {:>10} {:>10.1} {:>10} {:>10} {:>10}",
            of.operation,
            of.count,
            of.mean_ns / 1e3,
            us(of.p50_ns),
            us(of.p99_ns),
            us(of.p999_ns)
        );
    }
    let counters = &result.counters;
    println!(
        "host wrote {} KB, read {} KB; flash written {} KB, read {} KB; {} flushes, {} commits",
        counters.bytes("write", |_| true) >> 10,
        counters.bytes("read", |_| true) >> 10,
        counters.flash_written() >> 10,
        counters.flash_read() >> 10,
        counters.flushes,
        counters.commits,
    );
}

#[cfg(test)]
mod tests {
    use amphi_benchlab::experiment::{Wishes, cells, experiment};
    use amphi_rt::time;
    use indicatif::InMemoryTerm;

    use super::*;

    #[test]
    fn a_terminal_sees_how_many_cells_are_finished_and_how_long_the_rest_may_take() {
        let terminal = InMemoryTerm::new(5, 160);
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let bar = CellBar::on(target, "fig6").unwrap();
        bar.show(Progress::Begun { cells: 8, finished: 4 });
        let seen = terminal.contents();
        assert!(seen.contains("fig6") && seen.contains("0/8 cells") && seen.contains("(4 finished before)"));
        let cell = cells(&experiment("fig6").unwrap(), &Wishes::default()).remove(0);
        for _ in 0..6 {
            time::sleep_ns(700_000_000);
            bar.show(Progress::Done(&cell));
        }
        bar.0.force_draw();
        let seen = terminal.contents();
        let left = seen.split("about ").nth(1).and_then(|rest| rest.split(" left").next());
        assert!(seen.contains("6/8 cells, ") && seen.contains("on "), "{seen}");
        assert!(
            left.is_some_and(|left| left.ends_with('s') && left != "0s"),
            "two cells of 0.7 s or more are left: {seen}"
        );
    }
}
