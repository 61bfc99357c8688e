//! docs/papers.md ties each requirement row (`BY-7`) to the files that carry and test it. Those files exist, no id is listed twice,
//! and sources name only ids that are listed.

use std::collections::BTreeMap;

use super::Finding;
use super::links::is_workspace_path;
use super::rust_text::{Keep, masked};
use super::tree::SourceTree;

const TABLE: &str = "docs/papers.md";

/// The papers' prefixes: ByteFS, RomeFS, 2B-SSD, AugeFS, DevFS.
const PREFIXES: [&str; 5] = ["BY-", "RO-", "TB-", "AU-", "DV-"];

pub fn check(tree: &SourceTree) -> Vec<Finding> {
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
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("papers.md:4") && found[0].contains("gone.rs"));
        assert!(found[1].contains("papers.md:5") && found[1].contains("listed twice"));
        assert!(found[2].contains("lib.rs:1") && found[2].contains("BY-77"));
    }
}
