//! The standard library's print macros panic where nobody listens: a daemon on a full disk, a command whose
//! reader has gone. The command has macros of its own that do not; other rooms write to a stream and say what
//! becomes of an error.

use super::Finding;
use super::rust_text::{Keep, masked};
use super::tree::{SourceTree, room};

const MACROS: [&str; 5] = ["println!", "eprintln!", "print!", "eprint!", "dbg!"];

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let Some(room) = room(path) else { continue };
        if room == "xtask" || room == "sqlite-driver" || !path.contains("/src/") {
            continue;
        }
        let code = masked(text, Keep::Code);
        // Tests end with the program that runs them, and stand at the end of a file.
        let code = code.split("#[cfg(test)]").next().unwrap_or(&code);
        for (index, line) in code.lines().enumerate() {
            for name in MACROS {
                let mut rest = line;
                let mut is_called = false;
                while let Some(at) = rest.find(name) {
                    let before = &rest[..at];
                    let is_whole = !before.ends_with(|byte: char| byte.is_alphanumeric() || byte == '_');
                    // In the command the plain name is the command's own macro.
                    is_called |= is_whole && (room != "amphi" || before.ends_with("std::"));
                    rest = &rest[at + name.len()..];
                }
                if is_called {
                    findings.push(Finding::error(
                        path,
                        index + 1,
                        format!("`{name}` panics where nobody listens; write to the stream instead"),
                    ));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_print_in_a_library_is_found_and_the_commands_own_is_not() {
        let tree = SourceTree::of(&[
            (
                "crates/ssd/src/a.rs",
                "//! println! here is text\nfn f() { eprintln!(\"x\"); }\n#[cfg(test)]\nmod tests { fn g() { println!(); } }\n",
            ),
            ("crates/amphi/src/a.rs", "//! x\nfn f() { println!(\"x\"); }\n"),
            ("crates/amphi/src/b.rs", "//! x\nfn f() { std::eprintln!(\"x\"); }\n"),
            ("crates/ssd/examples/a.rs", "//! x\nfn main() { println!(\"x\"); }\n"),
        ]);
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("amphi/src/b.rs:2") || found[1].contains("amphi/src/b.rs:2"), "{found:?}");
        assert!(found.iter().any(|finding| finding.contains("ssd/src/a.rs:2")), "{found:?}");
    }
}
