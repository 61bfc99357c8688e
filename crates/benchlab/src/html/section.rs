//! A figure's part of the page: what it asks, what was published, the chart, where ours differ and why, how
//! it was made, and all of it as a table.

use std::fmt::{self, Display, Formatter, Write};

use super::number::{number, times, with_unit};
use super::text::escape;
use super::{chart, latencies, matrix};
use crate::figure::{Bar, Figure, TOLERANCE};

/// How many values of a figure have a published one, and how many of ours are as near to it as asked.
pub(super) struct Compared {
    near: usize,
    all: usize,
}

impl Compared {
    pub(super) fn of(figure: &Figure) -> Self {
        let bars = figure.groups.iter().flat_map(|group| &group.bars);
        let compared: Vec<&Bar> = bars.filter(|bar| bar.ratio().is_some()).collect();
        Self { near: compared.iter().filter(|bar| !bar.differs()).count(), all: compared.len() }
    }
}

impl Display for Compared {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.all {
            0 => f.write_str("nothing published to compare"),
            all => write!(f, "{} of {all} within {:.0} %", self.near, TOLERANCE * 100.0),
        }
    }
}

/// Draws a figure.
pub(super) fn draw(figure: &Figure, page: &mut String) {
    let name = escape(&figure.name);
    let _ = writeln!(
        page,
        "<article id=\"{name}\" aria-labelledby=\"{name}-title\">\n<p class=\"eyebrow\"><b>{name}</b> <span class=\"mark\">{}</span></p>\n\
         <h2 id=\"{name}-title\">{}</h2>\n<p class=\"question\">{}</p>\n\
         <p class=\"claim\"><b>Published:</b> {} <span class=\"mark\">row {}</span></p>",
        Compared::of(figure),
        escape(&figure.title),
        escape(&figure.question),
        escape(&figure.claim),
        escape(&figure.claim_row),
    );
    matrix::draw(figure, page);
    chart::draw(figure, page);
    refused(figure, page);
    differences(figure, page);
    latencies::draw(figure, page);
    table(figure, page);
    let _ = writeln!(
        page,
        "<details><summary>How it was made</summary>\n<p>{}</p>\n<p>Seed {}, scale {}.</p>\n<pre tabindex=\"0\"><code>{}</code></pre>\n</details>\n</article>",
        escape(figure.method.trim()),
        figure.seed,
        number(figure.scale),
        escape(&figure.command),
    );
}

/// What was measured and is no result.
fn refused(figure: &Figure, page: &mut String) {
    if figure.refused.is_empty() {
        return;
    }
    page.push_str("<section class=\"differences\">\n<h3>No result</h3>\n<ul>\n");
    for refused in &figure.refused {
        let _ = writeln!(page, "<li><b>{}</b> {}</li>", escape(&refused.place), escape(&refused.why));
    }
    page.push_str("</ul>\n</section>\n");
}

/// Where ours are not as near as asked.
fn differences(figure: &Figure, page: &mut String) {
    let unexplained = figure.unexplained();
    if figure.differences.is_empty() && unexplained.is_empty() {
        return;
    }
    page.push_str("<section class=\"differences\">\n<h3>Where ours differ, and what decides</h3>\n<ul>\n");
    for difference in &figure.differences {
        let _ = writeln!(
            page,
            "<li><b>{}</b> <span class=\"mark\">{}</span> {}</li>",
            escape(&difference.place),
            difference.ratio.map(times).unwrap_or_default(),
            escape(&difference.why),
        );
    }
    for place in unexplained {
        let _ = writeln!(page, "<li><b>{}</b> not explained yet</li>", escape(&place));
    }
    page.push_str("</ul>\n</section>\n");
}

/// All values as a table.
fn table(figure: &Figure, page: &mut String) {
    page.push_str(
        "<details><summary>All values as a table</summary>\n<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\">Group</th><th scope=\"col\">Of</th>\
         <th scope=\"col\">Ours</th><th scope=\"col\">Published</th><th scope=\"col\">Quotient</th><th scope=\"col\">Behind it</th></tr></thead>\n<tbody>\n",
    );
    for group in &figure.groups {
        for bar in &group.bars {
            let mut behind: Vec<String> = bar
                .details
                .iter()
                .map(|detail| format!("{} {}", detail.name, with_unit(detail.value, &detail.unit)))
                .collect();
            behind.extend(bar.note.clone());
            let _ = writeln!(
                page,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
                escape(&group.label),
                escape(&bar.series),
                escape(&with_unit(bar.ours, figure.unit_of(bar))),
                bar.published.map(|value| escape(&with_unit(value, figure.unit_of(bar)))).unwrap_or_default(),
                bar.ratio().map(times).unwrap_or_default(),
                escape(&behind.join("; ")),
            );
        }
    }
    page.push_str("</tbody>\n</table></div>\n</details>\n");
}
