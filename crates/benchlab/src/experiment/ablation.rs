//! What decides a difference: the experiment again with one thing changed, and what its value comes to then.

use anyhow::{Result, anyhow};

use super::cell::{Cell, CellResult};
use super::definition::{Ablation, Case, Definition};
use super::measure::Results;
use super::state::State;
use super::system::System;
use super::whole;
use super::wishes::{Wishes, cells};
use crate::figure::{Ablated, Bar, Group, Refused, TOLERANCE};

/// The experiment with this changed, cut down to the cases and the file systems that the ablation's places
/// need.
pub(super) fn changed(definition: &Definition, ablation: &Ablation) -> Definition {
    let group = |place: &str| place.split(" / ").next().unwrap_or_default().to_owned();
    let of_one_case = |place: &String| {
        let group = group(place);
        definition.cases.iter().find(|case| {
            group.strip_prefix(case.label()).is_some_and(|rest| rest.is_empty() || rest.starts_with(", "))
        })
    };
    let of_cases: Option<Vec<&Case>> = ablation.places.iter().map(of_one_case).collect();
    let is_needed = |case: &Case| match &of_cases {
        _ if !ablation.cases.is_empty() => ablation.cases.iter().any(|label| label == case.label()),
        Some(cases) => cases.contains(&case),
        None => true,
    };
    let mut changed = definition.clone();
    changed.cases.retain(is_needed);
    let is_named = |system: &System| ablation.places.iter().any(|place| place.contains(system.title()));
    if definition.systems.iter().any(is_named) {
        let first = definition.systems[0];
        changed.systems.retain(|system| *system == first || is_named(system));
    }
    for case in &mut changed.cases {
        if let Some(workload) = &ablation.workload {
            case.label = Some(case.label().to_owned());
            case.workload.clone_from(workload);
            case.parameters.clear();
        }
    }
    for variation in &mut changed.variations {
        let label = std::mem::take(&mut variation.label);
        *variation = variation.and(&ablation.change);
        variation.label = label;
    }
    changed
}

/// The cells of all ablations of an experiment.
pub(super) fn all_cells(definition: &Definition, wishes: &Wishes) -> Vec<Cell> {
    definition.ablations.iter().flat_map(|ablation| cells(&changed(definition, ablation), wishes)).collect()
}

/// An ablation's figure: its groups, and the cells that are no result.
pub(super) struct Again<'a> {
    ablation: &'a Ablation,
    groups: Vec<Group>,
    refused: Vec<Refused>,
}

/// The figure of each ablation of an experiment.
///
/// # Errors
/// Its cells are not finished; what is not made of cells failed.
pub(super) fn all<'a>(definition: &'a Definition, wishes: &Wishes, state: &State) -> Result<Vec<Again<'a>>> {
    let again = |ablation: &'a Ablation| -> Result<Again<'a>> {
        let changed = changed(definition, ablation);
        if let Some(groups) = whole::groups(&changed, wishes)? {
            return Ok(Again { ablation, groups, refused: Vec::new() });
        }
        let results: Option<Vec<CellResult>> =
            cells(&changed, wishes).iter().map(|cell| state.get(cell)).collect();
        let results = results.ok_or_else(|| anyhow!("the ablation `{}` is not finished", ablation.name))?;
        let results = Results { definition: &changed, cells: &results };
        Ok(Again { ablation, groups: results.bars(), refused: results.refused() })
    };
    definition.ablations.iter().map(again).collect()
}

/// What the value at a place comes to by each ablation that is about it; and, of those by which it comes to
/// nothing that counts, the name and why.
///
/// # Errors
/// An ablation's figure has no such value.
pub(super) fn values(all: &[Again<'_>], group: &Group, bar: &Bar) -> Result<(Vec<Ablated>, Vec<Refused>)> {
    let place = format!("{} / {}", group.label, bar.series);
    let (mut values, mut refused) = (Vec::new(), Vec::new());
    for Again { ablation, groups, refused: none } in
        all.iter().filter(|again| again.ablation.places.contains(&place))
    {
        let again = groups
            .iter()
            .find(|found| found.label == group.label)
            .and_then(|found| found.bars.iter().find(|found| found.series == bar.series));
        let Some(again) = again else {
            let cause = none.first();
            let cause =
                cause.ok_or_else(|| anyhow!("the ablation `{}` has no value for {place}", ablation.name))?;
            refused.push(Refused { place: ablation.name.clone(), why: cause.why.clone() });
            continue;
        };
        let ratio = bar.published.filter(|published| *published != 0.0).map(|of| again.ours / of);
        values.push(Ablated { name: ablation.name.clone(), ours: again.ours, ratio });
    }
    Ok((values, refused))
}

/// The values in words: each, then which of them bring it near the published one, or which moves it most.
pub(super) fn told(bar: &Bar, values: &[Ablated], refused: &[Refused], unit: &str) -> Option<String> {
    if values.is_empty() && refused.is_empty() {
        return None;
    }
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let values_told = values.iter().map(|value| format!("with {} {}{unit}", value.name, shown(value.ours)));
    let refused_told =
        refused.iter().map(|refused| format!("with {} nothing: {}", refused.place, refused.why));
    let each: Vec<String> = values_told.chain(refused_told).collect();
    let near: Vec<&str> = values
        .iter()
        .filter(|value| value.ratio.is_some_and(|ratio| (ratio - 1.0).abs() <= TOLERANCE))
        .map(|value| value.name.as_str())
        .collect();
    let factor = |value: &Ablated| (value.ours / bar.ours).max(bar.ours / value.ours);
    let most = values.iter().max_by(|a, b| factor(a).total_cmp(&factor(b)));
    let verdict = most.map(|most| {
        if near.is_empty() && factor(most) <= 1.0 + TOLERANCE {
            "None of these alone moves it by a fifth.".to_owned()
        } else if bar.published.is_none() {
            format!("Most depends on {}.", most.name)
        } else if near.is_empty() {
            format!("None of these alone comes within a fifth of it; most depends on {}.", most.name)
        } else {
            format!("Within a fifth of it: {}.", near.join(", "))
        }
    });
    let verdict = verdict.map_or_else(String::new, |verdict| format!(" {verdict}"));
    let published = bar.published.map(|published| format!(", the published one {}{unit}", shown(published)));
    Some(format!(
        "Ours is {}{unit}{}. One thing changed at a time, ours is: {}.{verdict}",
        shown(bar.ours),
        published.unwrap_or_default(),
        each.join("; ")
    ))
}

fn shown(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.095 => format!("{value:.3}"),
        size if size < 9.95 => format!("{value:.2}"),
        size if size < 99.5 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::measure::bar;

    fn ablated(name: &str, ours: f64) -> Ablated {
        Ablated { name: name.to_owned(), ours, ratio: Some(ours / 6.0) }
    }

    #[test]
    fn what_brings_a_value_near_the_published_one_is_said() {
        let mut of = bar("ByteFS", 0.31);
        of.published = Some(6.0);
        let values = [ablated("half the memory", 0.3), ablated("an fsync for each file", 5.1)];
        let text = told(&of, &values, &[], "").unwrap();
        assert!(text.contains("with half the memory 0.30; with an fsync for each file 5.10."), "{text}");
        assert!(text.ends_with("Within a fifth of it: an fsync for each file."), "{text}");
        let text = told(&of, &values[..1], &[], "").unwrap();
        assert!(text.ends_with("None of these alone moves it by a fifth."), "{text}");
        let text = told(&of, &[ablated("half the memory", 0.1)], &[], "").unwrap();
        assert!(text.ends_with("most depends on half the memory."), "{text}");
        assert_eq!(told(&of, &[], &[], ""), None);
        let in_words = [Ablated { ratio: None, ..ablated("half the memory", 0.1) }];
        let text = told(&bar("ByteFS", 0.31), &in_words, &[], "").unwrap();
        assert!(text.starts_with("Ours is 0.31. One thing changed"), "{text}");
        assert!(text.ends_with("Most depends on half the memory."), "{text}");
    }

    #[test]
    fn an_ablation_runs_the_cases_that_its_places_need() {
        let text = crate::experiment::EXPERIMENTS.iter().find(|listed| listed.name == "fig6").unwrap().toml;
        let mut definition = Definition::from_toml(text).unwrap();
        let ablation = |places: &[&str], cases: &[&str]| Ablation {
            name: "another scale".to_owned(),
            places: places.iter().map(|place| (*place).to_owned()).collect(),
            cases: cases.iter().map(|case| (*case).to_owned()).collect(),
            workload: None,
            change: super::super::Variation { scale: Some(0.5), ..super::super::Variation::default() },
        };
        let run = |ablation: &Ablation| {
            let changed = changed(&definition, ablation);
            changed.cases.iter().map(|case| case.label().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(run(&ablation(&["create / ByteFS"], &[])), ["create"]);
        assert_eq!(run(&ablation(&["average / ByteFS"], &[])).len(), definition.cases.len());
        assert_eq!(run(&ablation(&["average / ByteFS"], &["mkdir", "rmdir"])), ["mkdir", "rmdir"]);
        definition.ablations = vec![ablation(&["create / ByteFS"], &[])];
        let cells = all_cells(&definition, &Wishes::default());
        assert_eq!(cells.len(), 2);
        assert!(cells.iter().all(|cell| cell.scale == 0.5 && cell.workload == "create"));
    }
}
