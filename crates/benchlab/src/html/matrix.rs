//! A figure that compares many file systems with each other as one table: a row for each workload, a column
//! for each file system, the fastest of each row marked. Nothing was published for such a figure, so the
//! table is what a reader wants first; the chart below it has the same values as bars.

use std::fmt::Write;

use super::number::number;
use super::text::escape;
use crate::figure::{Figure, Group};

/// From how many file systems on a table says more than bars.
const SERIES_MIN: usize = 4;

/// Draws the table, if the figure is of this kind.
pub(super) fn draw(figure: &Figure, page: &mut String) {
    let Some(series) = series(figure) else { return };
    page.push_str("<div class=\"scroll matrix\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\"></th>");
    for name in &series {
        let _ = write!(page, "<th scope=\"col\">{}</th>", escape(name));
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for group in &figure.groups {
        let largest = group.bars.iter().map(|bar| bar.ours).fold(f64::MIN, f64::max);
        let _ = write!(page, "<tr><th scope=\"row\">{}</th>", escape(&group.label));
        for name in &series {
            let _ = match value(group, name) {
                Some(value) if value == largest => write!(page, "<td class=\"n best\">{}</td>", short(value)),
                Some(value) => write!(page, "<td class=\"n\">{}</td>", short(value)),
                None => write!(page, "<td class=\"n\">–</td>"),
            };
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n");
}

/// The columns: the series of the fullest group, where nothing is published and larger is better.
fn series(figure: &Figure) -> Option<Vec<&str>> {
    let mut bars = figure.groups.iter().flat_map(|group| &group.bars);
    if !figure.unit.is_empty() || figure.groups.len() < 2 || bars.any(|bar| bar.published.is_some()) {
        return None;
    }
    let fullest = figure.groups.iter().max_by_key(|group| group.bars.len())?;
    let names: Vec<&str> = fullest.bars.iter().map(|bar| bar.series.as_str()).collect();
    let known = figure.groups.iter().flat_map(|group| &group.bars).all(|bar| names.contains(&&*bar.series));
    (known && names.len() >= SERIES_MIN).then_some(names)
}

fn value(group: &Group, series: &str) -> Option<f64> {
    group.bars.iter().find(|bar| bar.series == series).map(|bar| bar.ours)
}

/// A quotient with as many digits as an overview needs.
fn short(value: f64) -> String {
    if value.abs() < 100.0 { format!("{value:.2}") } else { number(value.round()) }
}
