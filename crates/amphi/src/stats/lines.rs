//! `--watch` where there is no terminal: a line for each interval, or a JSON object for each look.

use anyhow::Result;

use super::sample::{Interval, Sample};
use super::{Options, document, look};
use amphi_volume::size::shown;

/// Prints until the count is reached, or for ever.
pub fn run(options: &Options) -> Result<()> {
    let mut before: Option<Sample> = None;
    let mut left = options.count;
    while left != Some(0) {
        if before.is_some() {
            amphi_rt::time::sleep_ns((options.interval * 1e9) as u64);
        }
        let (target, sample) = look(options)?;
        if options.json {
            println!("{}", document(&target, &sample));
        } else {
            match &before {
                None => println!("{}", head()),
                Some(before) => println!("{}", line(&Interval::between(before, &sample))),
            }
        }
        before = Some(sample);
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// What the columns of [`line()`] are.
fn head() -> String {
    format!(
        "{:>11}{:>11}{:>11}{:>11}{:>11}{:>7}{:>6}{:>7}{:>10}{:>12}{:>10}",
        "byte wr/s",
        "block wr/s",
        "byte rd/s",
        "block rd/s",
        "flash wr/s",
        "WAF",
        "log",
        "depth",
        "commits/s",
        "cleanings/s",
        "GC/s"
    )
}

/// One interval as a line under [`head`].
fn line(interval: &Interval) -> String {
    let rates = interval.rates.map(|rate| format!("{:>11}", shown(rate as u64))).concat();
    let amplification = interval.amplification.map_or_else(|| "-".to_owned(), |waf| format!("{waf:.2}"));
    format!(
        "{rates}{:>11}{amplification:>7}{:>4.0} %{:>7.1}{:>10.0}{:>12.1}{:>10.1}",
        shown(interval.flash_rate as u64),
        interval.log_fill * 100.0,
        interval.depth,
        interval.commits,
        interval.cleanings,
        interval.collections,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fits_its_head() {
        let interval = Interval {
            seconds: 1.0,
            rates: [1e6, 2e6, 0.0, 3e9],
            flash_rate: 5e6,
            amplification: Some(1.667),
            log_fill: 0.42,
            depth: 3.11,
            cleanings: 0.5,
            collections: 12.0,
            commits: 10_000.0,
            latencies: Vec::new(),
        };
        let line = line(&interval);
        assert_eq!(line.chars().count(), head().chars().count(), "{line}");
        for word in ["977 KiB", "2.79 GiB", "4.77 MiB", "1.67", "42 %", "3.1", "10000", "12.0"] {
            assert!(line.contains(word), "{word} in {line}");
        }
    }
}
