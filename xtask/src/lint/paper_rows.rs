//! docs/papers.md ties each requirement row (`BY-7`) to the files that carry and test it. Those files exist,
//! no id is listed twice, and sources name only ids that are listed. A row that names a test has a planted
//! fault in `planted_rows/faults.rs`, whose test and bug exist and whose file the row names.

use std::collections::BTreeMap;

use super::Finding;
use super::links::is_workspace_path;
use super::rust_text::{Keep, masked};
use super::tree::SourceTree;
use crate::planted_rows::{FAULTS, Fault};

const TABLE: &str = "docs/papers.md";

/// The papers' prefixes: ByteFS, RomeFS, 2B-SSD, AugeFS, DevFS.
const PREFIXES: [&str; 5] = ["BY-", "RO-", "TB-", "AU-", "DV-"];

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    check_with(tree, FAULTS)
}

fn check_with(tree: &SourceTree, faults: &[Fault]) -> Vec<Finding> {
    let Some(table) = tree.text(TABLE) else { return Vec::new() };
    let mut findings = Vec::new();
    let mut rows = BTreeMap::new();
    for (index, line) in table.lines().enumerate() {
        let Some(id) = row_id(line) else { continue };
        if let Some(first) = rows.insert(id, index + 1) {
            findings.push(Finding::error(
                TABLE,
                index + 1,
                format!("{id} is listed twice, first on line {first}"),
            ));
        }
        for message in fault_findings(tree, id, line, faults) {
            findings.push(Finding::error(TABLE, index + 1, message));
        }
        for path in line.split('`').skip(1).step_by(2).filter_map(|text| text.split("::").next()) {
            if is_workspace_path(path) && !tree.exists(path) {
                findings.push(Finding::error(
                    TABLE,
                    index + 1,
                    format!("{id} names `{path}`, which does not exist"),
                ));
            }
        }
    }
    for (path, text) in tree.ending(".rs").filter(|(path, _)| !path.starts_with("xtask/")) {
        for (index, line) in masked(text, Keep::Comments).lines().enumerate() {
            for id in ids(line).filter(|id| !rows.contains_key(id)) {
                findings.push(Finding::error(path, index + 1, format!("{id} is not a row of {TABLE}")));
            }
        }
    }
    findings
}

/// What is wrong with the planted faults of a row.
fn fault_findings(tree: &SourceTree, id: &str, line: &str, faults: &[Fault]) -> Vec<String> {
    let mut wrong = Vec::new();
    let tests = line.split('|').nth(4).unwrap_or("").trim();
    let mut of_row = faults.iter().filter(|fault| fault.row == id).peekable();
    if of_row.peek().is_none() && !tests.is_empty() {
        wrong.push(format!("{id} names a test and has no planted fault in xtask/src/planted_rows/faults.rs"));
    }
    for Fault { bug, room, planted_in, file, test, .. } in of_row {
        let places = ["", "all/"].map(|folder| format!("crates/{room}/tests/{folder}{file}.rs"));
        let path = places.iter().find(|path| tree.exists(path)).unwrap_or(&places[0]);
        if !tests.contains(&format!("`{path}`")) {
            wrong.push(format!("{id} does not name `{path}`, whose test sees {bug}"));
        }
        if !tree.text(path).is_some_and(|text| text.contains(&format!("fn {test}("))) {
            wrong.push(format!("{id}: no test {test} in `{path}`"));
        }
        let bugs = format!("crates/{planted_in}/src/planted.rs");
        if !tree.text(&bugs).is_some_and(|text| text.contains(&format!("    {bug},\n"))) {
            wrong.push(format!("{id}: no bug {bug} in `{bugs}`"));
        }
    }
    wrong
}

/// The id that a table row starts with.
fn row_id(line: &str) -> Option<&str> {
    let cell = line.strip_prefix('|')?.split('|').next()?.trim();
    ids(cell).next().filter(|id| id.len() == cell.trim_matches('`').len())
}

/// Every row id in a line.
fn ids(line: &str) -> impl Iterator<Item = &str> {
    PREFIXES.iter().flat_map(move |prefix| {
        line.match_indices(prefix).filter_map(move |(at, _)| {
            let digits = line[at + prefix.len()..].bytes().take_while(u8::is_ascii_digit).count();
            let starts_word = at == 0 || !line.as_bytes()[at - 1].is_ascii_alphanumeric();
            (digits > 0 && starts_word).then(|| &line[at..at + prefix.len() + digits])
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_point_at_files_and_sources_at_rows() {
        let table = "| id | where |\n| --- | --- |\n| BY-1 | `crates/ssd/src/lib.rs` |\n| BY-2 | `crates/ssd/src/gone.rs` |\n| BY-1 | |\n";
        let tree = SourceTree::of(&[
            ("docs/papers.md", table),
            ("crates/ssd/src/lib.rs", "//! The log (BY-2, BY-77) and STANDBY-9.\n"),
        ]);
        let found: Vec<String> = check_with(&tree, &[]).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("papers.md:4") && found[0].contains("gone.rs"));
        assert!(found[1].contains("papers.md:5") && found[1].contains("listed twice"));
        assert!(found[2].contains("lib.rs:1") && found[2].contains("BY-77"));
    }
    #[test]
    fn rows_that_name_a_test_have_a_fault_that_it_can_see() {
        let table = "| BY-1 | w | | `crates/ssd/tests/a.rs` | |\n\
                     | BY-2 | w | | `crates/ssd/tests/a.rs` | |\n\
                     | BY-3 | w | | `crates/ssd/tests/b.rs` | |\n\
                     | BY-4 | w | | | |\n\
                     | BY-6 | w | | `crates/ssd/tests/a.rs` | |\n";
        let tree = SourceTree::of(&[
            ("docs/papers.md", table),
            ("crates/ssd/tests/a.rs", "#[test]\nfn sees() {}\n"),
            ("crates/ssd/tests/b.rs", ""),
            ("crates/ssd/src/planted.rs", "pub enum Bug {\n    Slow,\n}\n"),
        ]);
        let of = |row, bug, test| Fault { row, bug, room: "ssd", planted_in: "ssd", file: "a", test };
        let faults = [
            of("BY-1", "Slow", "sees"),
            of("BY-3", "Slow", "sees"),
            of("BY-6", "Gone", "gone"),
            of("BY-6", "Slow", "sees"),
        ];
        let found: Vec<String> = check_with(&tree, &faults).iter().map(ToString::to_string).collect();
        let expected = ["BY-2 names a test", "BY-3 does not name", "no test gone", "no bug Gone"];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found} is not about {expected}");
        }
    }
}
