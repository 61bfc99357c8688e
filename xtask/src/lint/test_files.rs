//! Tests that never run, of which the compiler says nothing: in a file that `tests/all/main.rs`, the program
//! of a crate with many tests, does not name; and in the library of a crate whose manifest says that it has
//! none.

use super::Finding;
use super::tree::SourceTree;

const PROGRAM: &str = "/tests/all/main.rs";

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = in_libraries(tree);
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

fn in_libraries(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (manifest, text) in tree.ending("/Cargo.toml") {
        let of_library = text.lines().skip_while(|line| *line != "[lib]").skip(1);
        if !of_library.take_while(|line| !line.starts_with('[')).any(|line| line == "test = false") {
            continue;
        }
        let folder = manifest.replace("Cargo.toml", "src/");
        for (path, text) in tree.files().filter(|(path, _)| path.starts_with(&folder)) {
            if let Some(line) = text.lines().position(|line| line.trim() == "#[cfg(test)]") {
                let why = format!("what is tested here never is: {manifest} has `test = false`");
                findings.push(Finding::error(path, line + 1, why));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_in_a_library_without_tests_is_found() {
        let none = "[lib]\ntest = false\n";
        let with_one = "//! x\n\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn a() {}\n}\n";
        let tree = SourceTree::of(&[
            ("crates/rt/Cargo.toml", none),
            ("crates/rt/src/lib.rs", "//! x\n"),
            ("crates/rt/src/raw/lock.rs", with_one),
            ("crates/rt/tests/lock.rs", with_one),
            ("crates/ssd/Cargo.toml", "[lib]\n[[bin]]\ntest = false\n"),
            ("crates/ssd/src/lib.rs", with_one),
        ]);
        let found = check(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].line), ("crates/rt/src/raw/lock.rs", 3));
    }

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
