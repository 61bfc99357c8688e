//! Files that a person can hold in the head: a warning above 500 lines, an error above 700. Comments and
//! documents that end where the code does.

use super::Finding;
use super::tree::SourceTree;

const WARN_ABOVE: usize = 500;
const FAIL_ABOVE: usize = 700;
/// Columns of a comment, as of the code (`max_width` in rustfmt.toml). A link or a name may be longer alone.
const COLUMNS_MAX: usize = 110;

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    tree.ending(".rs")
        .filter_map(|(path, text)| match text.lines().count() {
            lines if lines > FAIL_ABOVE => {
                Some(Finding::error(path, 0, format!("{lines} lines: split it (at most {FAIL_ABOVE})")))
            }
            lines if lines > WARN_ABOVE => Some(Finding::warning(
                path,
                0,
                format!("{lines} lines: consider splitting it (above {WARN_ABOVE})"),
            )),
            _ => None,
        })
        .collect()
}

/// Lines of comments beyond the last column. One that cannot be broken, since it is one word, is let be.
pub fn check_comments(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            let words = || comment.trim_start_matches(['/', '!']).split_whitespace().count();
            if comment.starts_with("//") && line.chars().count() > COLUMNS_MAX && words() > 1 {
                let what = format!("a comment of {} columns: at most {COLUMNS_MAX}", line.chars().count());
                findings.push(Finding::error(path, number + 1, what));
            }
        }
    }
    findings
}

/// Lines of documents beyond the last column. Tables, code, headings and what is one word or link are let be.
pub fn check_documents(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        let mut is_code = false;
        for (number, line) in text.lines().enumerate() {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            let is_prose = !is_code && !is_fence && !line.starts_with(['|', '#']);
            if is_prose && line.chars().count() > COLUMNS_MAX && line.split_whitespace().count() > 2 {
                let what = format!("a line of {} columns: at most {COLUMNS_MAX}", line.chars().count());
                findings.push(Finding::error(path, number + 1, what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::Severity;

    #[test]
    fn long_files_warn_then_fail() {
        let lines = |count: usize| "//! x\n".repeat(count);
        let tree = SourceTree::of(&[
            ("a.rs", &lines(500)),
            ("b.rs", &lines(501)),
            ("c.rs", &lines(701)),
            ("d.md", &lines(900)),
        ]);
        let found: Vec<_> =
            check(&tree).into_iter().map(|finding| (finding.path, finding.severity)).collect();
        assert_eq!(found, [("b.rs".into(), Severity::Warning), ("c.rs".into(), Severity::Error)]);
    }

    #[test]
    fn comments_end_where_the_code_does() {
        let long = "word ".repeat(30);
        let tree = SourceTree::of(&[
            (
                "a.rs",
                &format!("//! {long}\nlet x = \"{long}\";\n    // {}\n// {}", "x".repeat(120), &long[..100]),
            ),
            ("b.md", &format!("// {long}")),
        ]);
        let found: Vec<_> =
            check_comments(&tree).into_iter().map(|finding| (finding.path, finding.line)).collect();
        assert_eq!(found, [("a.rs".into(), 1)]);
    }

    #[test]
    fn documents_end_there_too_but_for_tables_and_code() {
        let long = "word ".repeat(30);
        let tree = SourceTree::of(&[
            ("a.md", &format!("# {long}\n| {long} |\n```sh\n{long}\n```\n- {}\n{long}\n", "x".repeat(120))),
            ("a.rs", &long),
        ]);
        let found: Vec<_> =
            check_documents(&tree).into_iter().map(|finding| (finding.path, finding.line)).collect();
        assert_eq!(found, [("a.md".into(), 7)]);
    }
}
