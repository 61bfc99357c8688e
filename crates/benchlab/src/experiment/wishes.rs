//! Which cells an experiment is made of, and what of them whoever runs it may wish to be different.

use super::cell::Cell;
use super::definition::{Definition, Variation};

/// What of an experiment is to be different.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wishes {
    /// Another scale.
    pub scale: Option<f64>,
    /// Another seed.
    pub seed: Option<u64>,
    /// Other numbers of threads, in each workload's largest group.
    pub threads: Option<usize>,
    /// What of machine and device is changed, in all cells.
    pub change: Variation,
    /// Cells at once, at least 1; if it is not said, one for each processor, as far as there is memory for
    /// them.
    pub jobs: Option<usize>,
}

/// The cells of an experiment, by variation, case and system.
#[must_use]
pub fn cells(definition: &Definition, wishes: &Wishes) -> Vec<Cell> {
    let mut cells = Vec::new();
    for variation in &definition.variations {
        for case in &definition.cases {
            for system in &definition.systems {
                let mut variation = variation.and(&wishes.change);
                // These are for the bars, and do nothing to the cell; the others have fields of their own.
                variation.label.clear();
                variation.structure_bytes.clear();
                let threads = variation.threads.take().or(wishes.threads).or(case.threads);
                let scale = variation.scale.take().or(wishes.scale).unwrap_or(definition.scale);
                let mut parameters = case.parameters.clone();
                parameters.append(&mut variation.parameters);
                cells.push(Cell {
                    workload: case.workload.clone(),
                    parameters,
                    threads,
                    system: *system,
                    profile: definition.profile.clone(),
                    variation,
                    scale,
                    seed: wishes.seed.unwrap_or(definition.seed),
                });
            }
        }
    }
    cells
}
