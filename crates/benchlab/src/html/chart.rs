//! A figure as a chart: a row for each value, with a bar for ours and one for the published value below it,
//! on an axis that all groups share.

use std::fmt::Write;

use super::axis::{Axis, WIDTH};
use super::number::{number, times, with_unit};
use super::text::escape;
use crate::figure::{Bar, Figure, Group};

/// How far the largest values of groups on one linear axis may be apart.
const APART: f64 = 10.0;

/// Colours that the style sheet has for series.
pub(super) const COLOURS: usize = 8;

/// Draws the chart.
pub(super) fn draw(figure: &Figure, page: &mut String) {
    let series = series(figure);
    legend(&series, figure, page);
    page.push_str("<div class=\"chart\">\n");
    for groups in alike(figure) {
        let unit = unit(figure, groups);
        let axis = Axis::of(values(groups), figure.logarithmic, unit.is_empty());
        scale(&axis, unit, figure.logarithmic, page);
        for group in groups {
            draw_group(figure, group, &axis, &series, page);
        }
    }
    page.push_str("</div>\n");
}

fn values(groups: &[Group]) -> impl Iterator<Item = f64> + Clone {
    let bars = groups.iter().flat_map(|group| &group.bars);
    bars.flat_map(|bar| [Some(bar.ours), bar.published]).flatten().filter(|value| value.is_finite())
}

/// What the values of some groups are of, as the first one says.
fn unit<'a>(figure: &'a Figure, groups: &'a [Group]) -> &'a str {
    groups.iter().flat_map(|group| &group.bars).next().map_or(&figure.unit, |bar| figure.unit_of(bar))
}

/// The groups that share an axis: all on a logarithmic one; on a linear one those that follow each other, are
/// of one unit and whose largest values are within a factor of [`APART`], for a bar of a hundredth of the
/// axis says nothing.
fn alike(figure: &Figure) -> Vec<&[Group]> {
    let groups = &figure.groups;
    if figure.logarithmic {
        return vec![groups];
    }
    let mut runs = Vec::new();
    let (mut first, mut low, mut high) = (0, f64::INFINITY, 0.0_f64);
    for (at, group) in groups.iter().enumerate() {
        let largest = values(std::slice::from_ref(group)).fold(0.0, f64::max);
        if largest == 0.0 {
            continue;
        }
        let of_another = unit(figure, &groups[at..]) != unit(figure, &groups[first..]);
        if high > 0.0 && (of_another || high.max(largest) / low.min(largest) > APART) {
            runs.push(&groups[first..at]);
            (first, low, high) = (at, f64::INFINITY, 0.0);
        }
        (low, high) = (low.min(largest), high.max(largest));
    }
    runs.push(&groups[first..]);
    runs
}

/// The series of a figure, in the order in which they appear. `ByteFS, inodes` and `ByteFS, data` are one:
/// the row says which it is, the colour says whose.
fn series(figure: &Figure) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for bar in figure.groups.iter().flat_map(|group| &group.bars) {
        let owner = owner(&bar.series);
        if !names.contains(&owner) {
            names.push(owner);
        }
    }
    names
}

fn owner(series: &str) -> &str {
    series.split_once(", ").map_or(series, |(owner, _)| owner)
}

fn colour(series: &[&str], name: &str) -> usize {
    series.iter().position(|known| *known == owner(name)).unwrap_or(0) % COLOURS
}

fn legend(series: &[&str], figure: &Figure, page: &mut String) {
    page.push_str("<p class=\"legend\">");
    if series.len() <= COLOURS {
        for (at, name) in series.iter().enumerate() {
            let _ = write!(page, "<span><i class=\"key c{}\"></i>{}</span> ", at % COLOURS, escape(name));
        }
    }
    if figure.groups.iter().flat_map(|group| &group.bars).any(|bar| bar.published.is_some()) {
        page.push_str("<span><i class=\"key published\"></i>published</span>");
    }
    page.push_str("</p>\n");
}

/// The numbers of the axis, above the bars.
fn scale(axis: &Axis, unit: &str, logarithmic: bool, page: &mut String) {
    page.push_str("<div class=\"scale\" aria-hidden=\"true\"><div>");
    for tick in axis.ticks() {
        let _ = write!(
            page,
            "<span style=\"left:{:.2}%\">{}</span>",
            axis.at(tick) / WIDTH * 100.0,
            number(tick)
        );
    }
    let unit = if unit.is_empty() { "×" } else { unit };
    let _ = writeln!(page, "</div><em>{}{}</em></div>", escape(unit), if logarithmic { ", log" } else { "" });
}

fn draw_group(figure: &Figure, group: &Group, axis: &Axis, series: &[&str], page: &mut String) {
    let _ = writeln!(page, "<section class=\"group\">\n<h3>{}</h3>\n<ul>", escape(&group.label));
    for bar in &group.bars {
        draw_bar(figure, group, bar, axis, colour(series, &bar.series), page);
    }
    page.push_str("</ul>\n</section>\n");
}

fn draw_bar(figure: &Figure, group: &Group, bar: &Bar, axis: &Axis, colour: usize, page: &mut String) {
    let ours = with_unit(bar.ours, figure.unit_of(bar));
    let _ = write!(
        page,
        "<li class=\"row c{colour}\" tabindex=\"0\"><span class=\"series\">{}</span>",
        escape(&bar.series)
    );
    let height = if bar.published.is_some() { 26 } else { 16 };
    let _ = write!(
        page,
        "<svg viewBox=\"0 0 {WIDTH} {height}\" preserveAspectRatio=\"none\" style=\"height:{height}px\" role=\"img\"><title>{}: {}</title><desc>ours {}{}</desc>",
        escape(&group.label),
        escape(&bar.series),
        escape(&ours),
        bar.published
            .map(|value| format!(", published {}", escape(&with_unit(value, figure.unit_of(bar)))))
            .unwrap_or_default(),
    );
    ticks(axis, -8, height + 8, page);
    let _ = write!(page, "<path class=\"base\" d=\"M{:.0} -8V{}\"/>", axis.at(axis.base()), height + 8);
    draw_value("ours", axis, bar.ours, 2, 12, page);
    if let Some(published) = bar.published {
        draw_value("published", axis, published, 16, 8, page);
    }
    let _ = write!(page, "</svg><span class=\"value\"><b>{}</b>", escape(&ours));
    if let Some(published) = bar.published {
        let published = escape(&with_unit(published, figure.unit_of(bar)));
        let _ = write!(page, " <span class=\"paper\">published {published}</span>");
    }
    page.push_str("</span>");
    behind(figure, group, bar, page);
    page.push_str("</li>\n");
}

/// Lines through the axis's values, from `top` to `bottom` of an SVG.
pub(super) fn ticks(axis: &Axis, top: i32, bottom: i32, page: &mut String) {
    page.push_str("<path class=\"tick\" d=\"");
    for tick in axis.ticks() {
        let _ = write!(page, "M{:.0} {top}V{bottom}", axis.at(tick));
    }
    page.push_str("\"/>");
}

/// A bar with a mark at its end, which is there even where the bar has no length.
fn draw_value(class: &str, axis: &Axis, value: f64, top: u32, height: u32, page: &mut String) {
    let ((left, width), end, bottom) = (axis.bar(value), axis.at(value), top + height);
    let _ = write!(
        page,
        "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{height}\"/><path class=\"end\" d=\"M{end:.1} {top}V{bottom}\"/>",
    );
}

/// What a pointer or the keyboard's focus on a bar shows.
fn behind(figure: &Figure, group: &Group, bar: &Bar, page: &mut String) {
    let _ = write!(page, "<template><h4>{} / {}</h4><dl>", escape(&group.label), escape(&bar.series));
    let mut line = |name: &str, value: &str| {
        let _ = write!(page, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    };
    line("ours", &with_unit(bar.ours, figure.unit_of(bar)));
    if let Some(published) = bar.published {
        line("published", &with_unit(published, figure.unit_of(bar)));
    }
    if let Some(ratio) = bar.ratio() {
        line("ours ÷ published", &times(ratio));
    }
    for detail in &bar.details {
        line(&detail.name, &with_unit(detail.value, &detail.unit));
    }
    page.push_str("</dl>");
    if let Some(note) = &bar.note {
        let _ = write!(page, "<p>{}</p>", escape(note));
    }
    page.push_str("</template>");
}
