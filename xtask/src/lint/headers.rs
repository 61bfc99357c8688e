//! Every Rust file opens with a `//!` that says what it holds.

use super::Finding;
use super::tree::SourceTree;

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    tree.ending(".rs")
        .filter(|(_, text)| {
            let words = text.lines().next().and_then(|line| line.strip_prefix("//!")).map(str::trim);
            words.is_none_or(str::is_empty)
        })
        .map(|(path, _)| {
            Finding::error(path, 1, "the first line must be a `//!` that says what the file holds")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_header_is_found() {
        let tree =
            SourceTree::of(&[("a.rs", "//! Says.\n"), ("b.rs", "use x;\n"), ("c.rs", "//!\n"), ("d.rs", "")]);
        let paths: Vec<String> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["b.rs", "c.rs", "d.rs"]);
    }
}
