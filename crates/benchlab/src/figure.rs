//! A result as data: a figure or table of a paper with our values beside the published ones. Reports are
//! drawn from this alone, so it says everything that a reader needs, and nothing about the machine it was
//! made on: virtual time gives the same figure everywhere.

use serde::{Deserialize, Serialize};

/// The version of the JSON; changes when a field goes away or changes its meaning.
pub const SCHEMA: u32 = 1;

/// Beyond this share of the published value ours is different, and the figure has to say why.
pub const TOLERANCE: f64 = 0.20;

/// A figure or table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Short name, as on the command line: `fig6`.
    pub name: String,
    /// Title for people.
    pub title: String,
    /// What it answers.
    pub question: String,
    /// What was published, in a sentence.
    pub claim: String,
    /// The row of the paper's requirements in `docs/papers.md`, or the figure's own name there.
    pub claim_row: String,
    /// The command that makes it.
    pub command: String,
    /// Seed.
    pub seed: u64,
    /// Share of the published number of files, and of all that goes with it.
    pub scale: f64,
    /// Unit of all values; empty for ratios.
    pub unit: String,
    /// Whether the values span decades.
    pub logarithmic: bool,
    /// What was measured and how, in a few sentences.
    pub method: String,
    /// The values, in groups of bars that stand beside each other.
    pub groups: Vec<Group>,
    /// What was measured and is no result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// Why ours differ where they do.
    pub differences: Vec<Explanation>,
    /// How long operations took, where that was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies: Vec<Latency>,
}

/// Bars that stand beside each other: a workload, say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// What they have in common.
    pub label: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// One value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// What it is of: a file system, a variant, a structure.
    pub series: String,
    /// Ours.
    pub ours: f64,
    /// Of what, where a figure has values of several units; else it is the figure's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The published one, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<f64>,
    /// Where the published one stands, how it was read, and what else there is to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What `ours` is a quotient of or a share in: counts and rates, with their units.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Detail>,
}

/// A number behind a bar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Detail {
    /// What it is.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Of what; empty for a ratio or a count.
    pub unit: String,
}

/// A cell whose window is no result, so that the figure has no value that rests on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// Group and file system, as `webserver / Ext4`.
    #[serde(rename = "where")]
    pub place: String,
    /// Why not.
    pub why: String,
}

/// Why a value of ours differs from the published one, or what decides one that the paper has in words only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// Group and series, as `varmail / ByteFS`.
    #[serde(rename = "where")]
    pub place: String,
    /// Ours divided by the published one; none where the paper prints no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// From counters or an ablation, not from a guess.
    pub why: String,
    /// The value with one thing changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ablations: Vec<Ablated>,
}

/// A value of ours with one thing of the experiment changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ablated {
    /// What is different.
    pub name: String,
    /// Ours with it.
    pub ours: f64,
    /// That divided by the published one; none where the paper prints no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
}

/// How long an operation took in one cell of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The group it belongs to.
    pub label: String,
    /// The file system.
    pub series: String,
    /// The operation.
    pub operation: String,
    /// How many.
    pub count: u64,
    /// The mean, ns.
    pub mean_ns: f64,
    /// The median, ns.
    pub p50_ns: u64,
    /// The 95th percentile, ns.
    pub p95_ns: u64,
    /// The 99th percentile, ns.
    pub p99_ns: u64,
    /// The 99.9th percentile, ns.
    pub p999_ns: u64,
}

impl Bar {
    /// Ours divided by the published one.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        self.published.filter(|published| *published != 0.0).map(|published| self.ours / published)
    }

    /// Whether ours is so far from the published one that it has to be explained.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.ratio().is_some_and(|ratio| (ratio - 1.0).abs() > TOLERANCE)
    }
}

impl Figure {
    /// What a bar's values are of; empty for quotients.
    #[must_use]
    pub fn unit_of<'a>(&'a self, bar: &'a Bar) -> &'a str {
        bar.unit.as_deref().unwrap_or(&self.unit)
    }

    /// The bars that differ and have no explanation, as `group / series`.
    #[must_use]
    pub fn unexplained(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for group in &self.groups {
            for bar in group.bars.iter().filter(|bar| bar.differs()) {
                let place = format!("{} / {}", group.label, bar.series);
                if !self.differences.iter().any(|difference| difference.place == place) {
                    missing.push(place);
                }
            }
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_off_has_to_be_explained() {
        let bar = |ours| Bar {
            series: "ByteFS".into(),
            ours,
            unit: None,
            published: Some(2.0),
            note: None,
            details: Vec::new(),
        };
        assert!(!bar(2.39).differs() && !bar(1.61).differs());
        assert!(bar(2.41).differs() && bar(1.59).differs());
        assert!(!Bar { published: None, ..bar(9.0) }.differs());
    }
}
