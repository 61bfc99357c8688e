//! Results as one HTML page: figures beside the published numbers, drawn from [`Figure`]s alone.
//!
//! The page is a single file without any reference to another one, which its own content security policy
//! holds it to; it needs no network, and its script only shows what is behind a bar. Text is HTML and bars
//! are SVG that stretches, so nothing shrinks on a narrow screen.

mod axis;
mod chart;
mod latencies;
mod matrix;
mod number;
mod section;
mod text;

use crate::figure::Figure;
use section::Compared;
use text::escape;

pub use number::number;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// What most pages begin with.
const VIRTUAL_TIME: &str = "Every value was measured in virtual time on an emulated SSD: the command below a figure makes the same digits on any machine. Filled \
                            bars are ours; outlined ones were published.";

/// A chapter of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Chapter {
    /// Whose figures they are.
    pub title: String,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// A page with all of `figures`, in their order, under a heading.
#[must_use]
pub fn page(heading: &str, figures: &[Figure]) -> String {
    page_of(heading, VIRTUAL_TIME, figures)
}

/// A page in chapters, under a heading.
#[must_use]
pub fn page_in_chapters(heading: &str, chapters: &[Chapter]) -> String {
    let parts: Vec<_> =
        chapters.iter().map(|chapter| (Some(chapter.title.as_str()), chapter.figures.as_slice())).collect();
    draw(heading, VIRTUAL_TIME, &parts)
}

/// The same, with what is to be said of how the values were measured.
#[must_use]
pub fn page_of(heading: &str, introduction: &str, figures: &[Figure]) -> String {
    draw(heading, introduction, &[(None, figures)])
}

/// Draws figures in parts, those with a title as chapters.
fn draw(heading: &str, introduction: &str, parts: &[(Option<&str>, &[Figure])]) -> String {
    let (heading, introduction) = (escape(heading), escape(introduction));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{heading}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{heading}</h1>\n\
         <p>{introduction}</p>\n\
         </header>\n"
    );
    contents(parts, &mut page);
    page.push_str("<main>\n");
    for (title, figures) in parts {
        if let Some(title) = title {
            let title = escape(title);
            page.push_str(&format!("<h2 class=\"chapter\" id=\"{}\">{title}</h2>\n", anchor(&title)));
        }
        for figure in *figures {
            section::draw(figure, &mut page);
        }
    }
    page.push_str("</main>\n<div id=\"more\" role=\"tooltip\" hidden></div>\n<script>\n");
    page.push_str(SCRIPT);
    page.push_str("</script>\n</body>\n</html>\n");
    page
}

/// The list of figures, chapter by chapter, each with how it compares.
fn contents(parts: &[(Option<&str>, &[Figure])], page: &mut String) {
    if parts.iter().map(|(_, figures)| figures.len()).sum::<usize>() < 2 {
        return;
    }
    page.push_str("<nav aria-label=\"Figures\">\n");
    for (title, figures) in parts {
        if let Some(title) = title {
            let title = escape(title);
            page.push_str(&format!("<p><a href=\"#{}\">{title}</a></p>\n", anchor(&title)));
        }
        page.push_str("<ul>\n");
        for figure in *figures {
            let name = escape(&figure.name);
            page.push_str(&format!(
                "<li><a href=\"#{name}\"><b>{name}</b> {}</a> <span class=\"mark\">{}</span></li>\n",
                escape(&figure.title),
                Compared::of(figure),
            ));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</nav>\n");
}

/// What links to a chapter name.
fn anchor(title: &str) -> String {
    format!("chapter-{}", title.replace(' ', "-"))
}

#[cfg(test)]
mod tests;
