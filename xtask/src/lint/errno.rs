//! errno and libc exist only in front ends and in the command; inside, errors are typed and name their cause.

use super::Finding;
use super::rust_text::{Keep, lines_with_word, masked};
use super::tree::{SourceTree, room};

const WORDS: [&str; 6] = ["errno", "Errno", "libc", "raw_os_error", "from_raw_os_error", "last_os_error"];

/// Whether a room is a front end, the command, or a developer task.
pub fn may_know_errno(room: &str) -> bool {
    room.starts_with("front-") || matches!(room, "amphi" | "xtask" | "sqlite-driver")
}

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        if room(path).is_none_or(may_know_errno) {
            continue;
        }
        let code = masked(text, Keep::Code);
        for word in WORDS {
            for line in lines_with_word(&code, word) {
                findings.push(Finding::error(
                    path,
                    line,
                    format!("`{word}`: only front ends and the command know errno and libc"),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_inside_a_file_system_is_found() {
        let tree = SourceTree::of(&[
            ("crates/fs-bytefs/src/a.rs", "//! errno is for front ends\nfn f() -> i32 { libc::EIO }\n"),
            ("crates/front-fuse/src/a.rs", "//! x\nuse libc::EIO;\n"),
            ("crates/vfs/src/a.rs", "//! x\nfn errno_free() {}\n"),
        ]);
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert!(found.len() == 1 && found[0].contains("fs-bytefs/src/a.rs:2"), "{found:?}");
    }
}
