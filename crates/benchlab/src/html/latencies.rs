//! How long operations took: for each, a bar from the median to the 99.9th percentile with marks at the
//! percentiles between, on one logarithmic axis, and the numbers.

use std::fmt::Write;

use super::axis::{Axis, WIDTH};
use super::chart;
use super::number::{duration, number};
use super::text::escape;
use crate::figure::{Figure, Latency};

/// Draws them, if the figure has any.
pub(super) fn draw(figure: &Figure, page: &mut String) {
    if figure.latencies.is_empty() {
        return;
    }
    let ends = figure.latencies.iter().flat_map(|latency| [latency.p50_ns.max(1), latency.p999_ns.max(1)]);
    let axis = Axis::of(ends.map(|ns| ns as f64), true, false);
    page.push_str(
        "<details><summary>Latencies</summary>\n<div class=\"scroll\" tabindex=\"0\"><table class=\"latencies\">\n<thead><tr><th scope=\"col\">Group</th><th scope=\"col\">Of</th>\
         <th scope=\"col\">Operation</th><th scope=\"col\">p50 to p99.9, log</th><th scope=\"col\">p50</th><th scope=\"col\">p95</th>\
         <th scope=\"col\">p99</th><th scope=\"col\">p99.9</th><th scope=\"col\">mean</th><th scope=\"col\">count</th></tr></thead>\n<tbody>\n",
    );
    for latency in &figure.latencies {
        row(latency, &axis, page);
    }
    page.push_str("</tbody>\n</table></div>\n</details>\n");
}

fn row(latency: &Latency, axis: &Axis, page: &mut String) {
    let at = |ns: u64| axis.at(ns.max(1) as f64);
    let (low, high) = (at(latency.p50_ns), at(latency.p999_ns));
    let _ = write!(
        page,
        "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td><svg viewBox=\"0 0 {WIDTH} 14\" preserveAspectRatio=\"none\" aria-hidden=\"true\">",
        escape(&latency.label),
        escape(&latency.series),
        escape(&latency.operation),
    );
    chart::ticks(axis, 0, 14, page);
    let _ = write!(
        page,
        "<rect class=\"ours\" x=\"{low:.1}\" y=\"5\" width=\"{:.1}\" height=\"4\"/>",
        (high - low).max(3.0)
    );
    for ns in [latency.p50_ns, latency.p95_ns, latency.p99_ns, latency.p999_ns] {
        let _ = write!(page, "<path class=\"percentile\" d=\"M{:.1} 1V13\"/>", at(ns));
    }
    page.push_str("</svg></td>");
    for ns in [latency.p50_ns, latency.p95_ns, latency.p99_ns, latency.p999_ns] {
        let _ = write!(page, "<td class=\"n\">{}</td>", duration(ns as f64));
    }
    let _ = writeln!(
        page,
        "<td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
        duration(latency.mean_ns),
        number(latency.count as f64)
    );
}
