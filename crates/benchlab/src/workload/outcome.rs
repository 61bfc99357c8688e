//! What a run of a workload came to: operations, bytes, time, and how long each step took.

use hdrhistogram::Histogram;
use serde::Serialize;

/// What a run came to. Everything is of the measured window: warm-up is left out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Operations on files that were completed.
    pub operations: u64,
    /// The same, warm-up included.
    pub operations_in_all: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes written to files.
    pub bytes_written: u64,
    /// Length of the window, ns, of virtual time in a `Sim`.
    pub elapsed_ns: u64,
    /// Each step of each group.
    pub steps: Vec<StepOutcome>,
}

/// What one step came to.
#[derive(Clone, Debug)]
pub struct StepOutcome {
    /// Its group.
    pub group: String,
    /// Its operation.
    pub operation: &'static str,
    /// Whether it is an operation on files.
    pub counts: bool,
    /// Bytes moved.
    pub bytes: u64,
    /// How long each took, ns.
    pub latency: Histogram<u64>,
}

/// A latency histogram in a few numbers, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// How many.
    pub count: u64,
    /// The mean.
    pub mean_ns: f64,
    /// Half took no longer.
    pub p50_ns: u64,
    /// 95 of a hundred took no longer.
    pub p95_ns: u64,
    /// 99 of a hundred took no longer.
    pub p99_ns: u64,
    /// 999 of a thousand took no longer.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Outcome {
    /// Operations on files a second.
    #[must_use]
    pub fn operations_per_second(&self) -> f64 {
        if self.elapsed_ns == 0 { 0.0 } else { self.operations as f64 * 1e9 / self.elapsed_ns as f64 }
    }

    /// How long all steps of one operation took together, over all groups.
    #[must_use]
    pub fn latency(&self, operation: &str) -> LatencySummary {
        let mut all = empty();
        for step in self.steps.iter().filter(|step| step.operation == operation) {
            // Histograms of one make can be added.
            let _ = all.add(&step.latency);
        }
        LatencySummary::of(&all)
    }
}

impl LatencySummary {
    /// Sums a histogram up.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            p50_ns: histogram.value_at_quantile(0.5),
            p95_ns: histogram.value_at_quantile(0.95),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
        }
    }
}

/// An empty histogram: two significant digits, from 1 ns on.
pub(crate) fn empty() -> Histogram<u64> {
    Histogram::new(2).expect("two significant digits are possible")
}
