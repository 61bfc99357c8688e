//! A crate with many tests has one program of them, `tests/all/main.rs`. The compiler does not say if that
//! names not all of the files beside it, whose tests then never run.

use super::Finding;
use super::tree::SourceTree;

const PROGRAM: &str = "/tests/all/main.rs";

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (main, text) in tree.ending(PROGRAM) {
        let folder = main.trim_end_matches("main.rs");
        let beside = tree.files().filter_map(|(path, _)| Some((path, path.strip_prefix(folder)?)));
        for (path, name) in beside {
            let Some(name) = name.strip_suffix(".rs").filter(|name| !name.contains('/')) else { continue };
            if name != "main" && !text.lines().any(|line| line == format!("mod {name};")) {
                findings.push(Finding::error(path, 0, format!("{main} does not name it: add `mod {name};`")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_tests_that_is_not_compiled_is_found() {
        let tree = SourceTree::of(&[
            ("crates/ssd/tests/all/main.rs", "//! x\n\nmod link;\nmod rig;\n"),
            ("crates/ssd/tests/all/link.rs", ""),
            ("crates/ssd/tests/all/rig/mod.rs", ""),
            ("crates/ssd/tests/all/rig/inner.rs", ""),
            ("crates/ssd/tests/all/forgotten.rs", ""),
            ("crates/ssd/tests/power_cuts.rs", ""),
        ]);
        let found = check(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "crates/ssd/tests/all/forgotten.rs");
    }
}
