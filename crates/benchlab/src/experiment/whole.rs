//! Experiments that are not made of cells: each is measured as a whole.

use amphi_ssd::{Profile, calibrate};
use anyhow::Result;

use super::definition::{Definition, Measure, Variation};
use super::measure::bar;
use super::wishes::Wishes;
use super::{commits, recovery, remount};
use crate::figure::Group;

/// The groups of such an experiment; none of one that is made of cells.
///
/// # Errors
/// A device, a file system or a log failed, or a profile or parameter does not exist.
pub(super) fn groups(definition: &Definition, wishes: &Wishes) -> Result<Option<Vec<Group>>> {
    let variation = definition.variations.first().cloned().unwrap_or_default().and(&wishes.change);
    let scale = variation.scale.or(wishes.scale).unwrap_or(definition.scale);
    let seed = wishes.seed.unwrap_or(definition.seed);
    let groups = match definition.measure {
        Measure::DevicePoints => device_points(definition, &variation)?,
        Measure::Recovery => recovery::groups(&definition.profile, &variation, scale, seed)?,
        Measure::Remount => remount::groups(definition, &variation, scale, seed)?,
        Measure::Commits => commits::groups(&variation, scale, seed)?,
        _ => return Ok(None),
    };
    Ok(Some(groups))
}

/// The published points of the device, one group for each unit.
fn device_points(definition: &Definition, variation: &Variation) -> Result<Vec<Group>> {
    let profile = Profile::named(variation.profile.as_deref().unwrap_or(&definition.profile))?;
    let mut groups: Vec<Group> = Vec::new();
    for point in calibrate(&profile)? {
        let mut bar = bar(&point.name, point.measured.unwrap_or(0.0));
        bar.published = Some(point.published);
        bar.note = Some(point.source);
        let label = format!("M-SSD, {}", point.unit);
        bar.unit = Some(point.unit);
        match groups.iter_mut().find(|group| group.label == label) {
            Some(group) => group.bars.push(bar),
            None => groups.push(Group { label, bars: vec![bar] }),
        }
    }
    Ok(groups)
}
