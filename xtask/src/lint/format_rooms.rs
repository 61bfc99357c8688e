//! Structures that live on a device or in a log are defined only in `format.rs` (or `format/*.rs`), which
//! imports no sibling: whoever wants to know the bits, or read them with another program, reads one place.

use super::Finding;
use super::rust_text::{Keep, lines_with_word, masked};
use super::tree::{SourceTree, room};

/// zerocopy's derives: the mark of a structure that is laid out byte by byte.
const DERIVES: [&str; 4] = ["FromBytes", "TryFromBytes", "IntoBytes", "FromZeros"];

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs").filter(|(path, _)| room(path).is_some_and(|room| room != "xtask"))
    {
        let code = masked(text, Keep::Code);
        if is_format_file(path) {
            for line in lines_with_word(&code, "crate") {
                if code.lines().nth(line - 1).is_some_and(|text| text.trim_start().starts_with("use crate::"))
                {
                    findings.push(Finding::error(
                        path,
                        line,
                        "format.rs imports no sibling: it must be readable alone",
                    ));
                }
            }
        } else {
            for line in derive_lines(&code) {
                let message = "a structure with a byte layout: move it to format.rs";
                findings.push(Finding::error(path, line, message));
            }
        }
    }
    findings
}

fn is_format_file(path: &str) -> bool {
    path.ends_with("/format.rs") || path.contains("/format/")
}

/// Lines of the `derive` attributes that name one of [`DERIVES`].
fn derive_lines(code: &str) -> Vec<usize> {
    code.match_indices("derive(")
        .filter(|(at, _)| {
            let list = code[*at..].split(')').next().unwrap_or("");
            DERIVES.iter().any(|name| lines_with_word(list, name).next().is_some())
        })
        .map(|(at, _)| code[..at].lines().count().max(1))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_layouts_elsewhere_are_found() {
        let layout = "//! x\n#[derive(\n    Clone,\n    FromBytes,\n)]\nstruct A(u8);\n";
        let tree = SourceTree::of(&[
            ("crates/ssd/src/format.rs", layout),
            ("crates/ssd/src/format/log.rs", "//! x\nuse crate::log::Log;\n"),
            ("crates/ssd/src/log.rs", layout),
            ("crates/ssd/src/map.rs", "//! x\nuse zerocopy::FromBytes;\n#[derive(Clone)]\nstruct B;\n"),
        ]);
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("format/log.rs:2") && found[0].contains("imports no sibling"));
        assert!(found[1].contains("ssd/src/log.rs:2"));
    }
}
