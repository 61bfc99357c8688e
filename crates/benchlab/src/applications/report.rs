//! What a run found: rates with their spread, and where ours is ahead or behind.

use anyhow::Result;
use serde::Serialize;

use super::Program;
use super::place::{Below, PLACES, PRELOADED, Place};

/// Version of the JSON: another number if a field goes away or changes its meaning.
pub const SCHEMA: u32 = 1;

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Rounds that count.
    pub rounds: usize,
    /// What the device's times were multiplied by; rates are those of the device's own seconds.
    pub dilation: f64,
    /// Whether somebody ended the run early.
    pub interrupted: bool,
    /// The file systems.
    pub places: Vec<PlaceReport>,
    /// The applications.
    pub applications: Vec<Application>,
}

/// A file system.
#[derive(Clone, Debug, Serialize)]
pub struct PlaceReport {
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: String,
    /// Why it could not take part.
    pub failure: Option<String>,
}

/// One application on all file systems.
#[derive(Clone, Debug, Serialize)]
pub struct Application {
    /// Its name.
    pub name: String,
    /// What a round does.
    pub description: String,
    /// Durable writes of a round.
    pub operations: u64,
    /// One entry for each file system that takes part.
    pub results: Vec<Outcome>,
    /// Ours beside the best of the kernel's on the same; logs in a BA-buffer beside those on other SSDs.
    pub ratios: Vec<Ratio>,
}

/// One application on one file system.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The file system.
    pub place: String,
    /// Durable writes a second, the median of the rounds.
    pub per_second: Option<f64>,
    /// The slowest round.
    pub min: Option<f64>,
    /// The fastest round.
    pub max: Option<f64>,
    /// Why there is nothing.
    pub failure: Option<String>,
}

/// Ours beside the best of the kernel's file systems on the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Ours.
    pub ours: String,
    /// The fastest of the others, by median.
    pub best: String,
    /// How many times as many writes a second ours does: below 1, ours loses.
    pub ratio: f64,
}

impl Application {
    pub(super) fn of(
        program: &dyn Program,
        operations: u64,
        places: &[Place],
        samples: Vec<Result<Vec<f64>>>,
    ) -> Self {
        let results: Vec<_> =
            places.iter().zip(samples).map(|(place, rates)| Outcome::of(place.name, rates)).collect();
        let ratio = |(place, ours): (&Place, &Outcome)| {
            let rivals = places
                .iter()
                .zip(&results)
                .filter(|(rival, _)| !rival.is_ours() && rival.below == place.below);
            let best = rivals
                .filter_map(|(_, rival)| Some((rival.per_second?, rival)))
                .max_by(|(one, _), (other, _)| one.total_cmp(other))?;
            Some(Ratio {
                ours: ours.place.clone(),
                best: best.1.place.clone(),
                ratio: ours.per_second? / best.0,
            })
        };
        let ours = || places.iter().zip(&results).filter(|(place, _)| place.is_ours());
        // What survives nothing is no rival, but says how much there is to be had.
        let nothing = places.iter().zip(&results).find(|(place, _)| place.below == Below::Nothing);
        let to_nothing = |(place, ours): (&Place, &Outcome)| {
            let (_, most) = nothing.filter(|_| place.below == Below::Memory)?;
            let ratio = ours.per_second? / most.per_second?;
            Some(Ratio { ours: ours.place.clone(), best: most.place.clone(), ratio })
        };
        let to_plain = |(place, ours): (&Place, &Outcome)| {
            let is_same = |(other, _): &(&Place, _)| other.is_plain() && other.below == place.below;
            let (_, plain) = places.iter().zip(&results).find(is_same).filter(|_| !place.is_plain())?;
            let ratio = ours.per_second? / plain.per_second?;
            Some(Ratio { ours: ours.place.clone(), best: plain.place.clone(), ratio })
        };
        let is_log = |(place, _): &(&Place, &Outcome)| matches!(place.below, Below::LogSsd(_));
        let pinned = ours().filter(is_log).find(|(place, _)| place.is_pinned());
        let to_pinned = |(place, other): (&Place, &Outcome)| {
            let (_, pinned) = pinned.filter(|_| !place.is_pinned())?;
            let ratio = pinned.per_second? / other.per_second?;
            Some(Ratio { ours: pinned.place.clone(), best: other.place.clone(), ratio })
        };
        let ratios = ours()
            .filter_map(ratio)
            .chain(ours().filter_map(to_nothing))
            .chain(ours().filter_map(to_plain))
            .chain(ours().filter(is_log).filter_map(to_pinned))
            .collect();
        Self {
            name: program.name().to_owned(),
            description: program.description().to_owned(),
            operations,
            results,
            ratios,
        }
    }

    /// The application's lines of the table, and in words where ours is behind.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("\n{} ({} writes a round)\n", self.description, self.operations);
        for outcome in &self.results {
            text += &match (outcome.per_second, outcome.min, outcome.max) {
                (Some(median), Some(min), Some(max)) => {
                    format!("  {:<17} {median:>9.0} /s   ({min:.0} to {max:.0})\n", outcome.place)
                }
                _ => {
                    format!("  {:<17} failed: {}\n", outcome.place, outcome.failure.as_deref().unwrap_or("-"))
                }
            };
        }
        for ratio in &self.ratios {
            let is_rival =
                PLACES.iter().chain(&PRELOADED).any(|place| place.name == ratio.best && !place.is_ours());
            let verdict = match ratio.ratio {
                _ if !is_rival => "",
                below if below < 1.0 => ", ours LOSES",
                _ => ", ours wins",
            };
            text += &format!("  {} / {}: {:.2}{verdict}\n", ratio.ours, ratio.best, ratio.ratio);
        }
        text
    }
}

impl Outcome {
    fn of(place: &str, rates: Result<Vec<f64>>) -> Self {
        let (mut rates, failure) = match rates {
            Ok(rates) => (rates, None),
            Err(error) => (Vec::new(), Some(format!("{error:#}"))),
        };
        rates.sort_by(f64::total_cmp);
        Self {
            place: place.to_owned(),
            per_second: rates.get(rates.len() / 2).copied(),
            min: rates.first().copied(),
            max: rates.last().copied(),
            failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::{LOGS, PLACES, PRELOADED};
    use super::*;

    struct Nothing;

    impl Program for Nothing {
        fn name(&self) -> &'static str {
            "nothing"
        }

        fn description(&self) -> &'static str {
            "nothing"
        }

        fn start(&self, _at: &super::super::Site<'_>) -> Result<Box<dyn super::super::Rounds>> {
            anyhow::bail!("nothing to start")
        }
    }

    #[test]
    fn ours_is_compared_with_the_best_on_the_same_ground() {
        let rates = |place: &Place| match (place.name, place.below) {
            ("fuse-ssd", _) => Ok(vec![300.0, 100.0, 200.0]),
            ("ext4-ssd", _) => Ok(vec![100.0]),
            ("fuse-memory", _) => Ok(vec![500.0]),
            ("xfs-zram", _) => Ok(vec![1000.0]),
            (_, Below::Ssd) => Err(anyhow::anyhow!("no room")),
            (_, Below::Memory) => Ok(vec![50.0]),
            (_, Below::Nothing | Below::LogSsd(_)) => Ok(vec![2000.0]),
        };
        let samples = PLACES.iter().map(rates).collect();
        let application = Application::of(&Nothing, 10, &PLACES, samples);
        let found: Vec<_> =
            application.ratios.iter().map(|ratio| (ratio.best.as_str(), ratio.ratio)).collect();
        assert_eq!(found, [("ext4-ssd", 2.0), ("xfs-zram", 0.5)]);
        let text = application.text();
        assert!(text.contains("fuse-memory / xfs-zram: 0.50, ours LOSES"), "{text}");
        assert!(text.contains("xfs-ssd           failed: no room"), "{text}");
    }

    #[test]
    fn other_ways_are_compared_with_fuse_and_with_what_survives_nothing() {
        let places: Vec<_> = PLACES
            .into_iter()
            .chain(PRELOADED)
            .filter(|place| ["fuse-memory", "ext4-zram", "queue-memory", "tmpfs"].contains(&place.name))
            .collect();
        let samples = [100.0, 400.0, 300.0, 600.0].map(|rate| Ok(vec![rate]));
        let application = Application::of(&Nothing, 10, &places, samples.into());
        let ratios: Vec<_> = application
            .ratios
            .iter()
            .map(|ratio| (ratio.ours.as_str(), ratio.best.as_str(), ratio.ratio))
            .collect();
        let due = [
            ("fuse-memory", "ext4-zram", 0.25),
            ("queue-memory", "ext4-zram", 0.75),
            ("fuse-memory", "tmpfs", 100.0 / 600.0),
            ("queue-memory", "tmpfs", 0.5),
            ("queue-memory", "fuse-memory", 3.0),
        ];
        assert_eq!(ratios, due);
        assert!(application.text().ends_with("queue-memory / fuse-memory: 3.00\n"), "{}", application.text());
    }

    #[test]
    fn logs_in_a_ba_buffer_are_compared_with_those_on_each_other_ssd() {
        let samples = LOGS.map(|place| match place.name {
            "dc-ssd" => Ok(vec![100.0]),
            "ull-ssd" => Ok(vec![200.0]),
            "2b-ssd" => Ok(vec![300.0]),
            _ => Ok(vec![400.0]),
        });
        let application = Application::of(&Nothing, 10, &LOGS, samples.into());
        let ratios: Vec<_> = application
            .ratios
            .iter()
            .map(|ratio| (ratio.ours.as_str(), ratio.best.as_str(), ratio.ratio))
            .collect();
        assert_eq!(
            ratios,
            [("2b-ssd", "dc-ssd", 3.0), ("2b-ssd", "ull-ssd", 1.5), ("2b-ssd", "async", 0.75)]
        );
        assert!(application.text().ends_with("2b-ssd / async: 0.75\n"), "{}", application.text());
    }
}
