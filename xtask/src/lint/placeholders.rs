//! Nothing unfinished lands: no placeholder macros, no debug prints, no notes to self.

use super::Finding;
use super::rust_text::{Keep, lines_with_word, masked};
use super::tree::SourceTree;

const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];
const NOTES: [&str; 3] = ["TODO", "FIXME", "XXX"];

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let code = masked(text, Keep::Code);
        for name in MACROS {
            let call = format!("{name}!");
            for line in lines_with_word(&code, name) {
                if code.lines().nth(line - 1).is_some_and(|text| text.contains(&call)) {
                    findings.push(Finding::error(path, line, format!("`{call}` must not land")));
                }
            }
        }
        let comments = masked(text, Keep::Comments);
        for note in NOTES {
            for line in lines_with_word(&comments, note) {
                findings.push(Finding::error(path, line, "a note to self: do it, or file an issue"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_found_in_code_and_comments() {
        let tree = SourceTree::of(&[
            ("a.rs", "//! x\nfn f() { todo!() }\n"),
            ("b.rs", "//! x\n// TODO later\nfn g() { dbg!(1); }\n"),
            ("c.rs", "//! x\nfn todo() -> &'static str { \"todo!\" }\n"),
        ]);
        let paths: Vec<String> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["a.rs", "b.rs", "b.rs"]);
    }
}
