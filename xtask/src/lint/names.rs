//! A file is named after what it holds; names that could hold anything are refused.

use super::Finding;
use super::tree::SourceTree;

const FORBIDDEN: [&str; 6] = ["util", "utils", "common", "misc", "helper", "helpers"];

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, _) in tree.files() {
        let names_nothing = path.split('/').any(|part| {
            let stem = part.split('.').next().unwrap_or(part);
            stem.split(['_', '-']).any(|word| FORBIDDEN.contains(&word.to_ascii_lowercase().as_str()))
        });
        if names_nothing {
            findings.push(Finding::error(
                path,
                0,
                "the name says nothing about what the file holds; name the content",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vague_names_are_found_as_file_directory_or_word() {
        let tree = SourceTree::of(&[
            ("crates/ssd/src/utils.rs", ""),
            ("crates/ssd/src/common/x.rs", ""),
            ("crates/ssd/src/test_helpers.rs", ""),
            ("crates/ssd/src/commonwealth.rs", ""),
        ]);
        assert_eq!(check(&tree).len(), 3);
    }
}
