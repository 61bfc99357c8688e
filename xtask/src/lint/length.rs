//! Files that a person can hold in the head: a warning above 500 lines, an error above 700.

use super::Finding;
use super::tree::SourceTree;

const WARN_ABOVE: usize = 500;
const FAIL_ABOVE: usize = 700;

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
}
