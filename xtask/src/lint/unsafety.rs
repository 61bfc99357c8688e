//! `unsafe` only in the rooms that ARCHITECTURE.md lists; every other crate root forbids it.
//!
//! The list is the section of ARCHITECTURE.md whose heading holds the word "unsafe": every room in backticks
//! there.

use super::Finding;
use super::rust_text::{Keep, lines_with_word, masked};
use super::tree::{SourceTree, room};

const MAP: &str = "ARCHITECTURE.md";

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    let listed = match tree.text(MAP).map(rooms_with_unsafe) {
        Some(Some(listed)) => listed,
        Some(None) => {
            return vec![Finding::error(
                MAP,
                0,
                "has no section on unsafe code that lists the rooms allowed to hold it",
            )];
        }
        None => {
            return vec![Finding::error(
                MAP,
                0,
                "does not exist; it must list the rooms that may hold unsafe code",
            )];
        }
    };
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let Some(room) = room(path) else { continue };
        if listed.contains(&room) {
            continue;
        }
        if is_crate_root(path) && !masked(text, Keep::Code).contains("#![forbid(unsafe_code)]") {
            let message = format!(
                "`{room}` is not on {MAP}'s list of rooms with unsafe code: add #![forbid(unsafe_code)]"
            );
            findings.push(Finding::error(path, 0, message));
        }
        for line in lines_with_word(&masked(text, Keep::Code), "unsafe") {
            findings.push(Finding::error(
                path,
                line,
                format!("unsafe code in `{room}`, which {MAP} does not list"),
            ));
        }
    }
    findings
}

/// Whether rustc starts a crate at this file (integration tests and examples are looked at for `unsafe`
/// only).
fn is_crate_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs") || path.contains("/src/bin/")
}

/// The rooms that the map lists, or `None` if it has no such section.
fn rooms_with_unsafe(map: &str) -> Option<Vec<&str>> {
    let mut rooms = None;
    let mut inside = false;
    for line in map.lines() {
        if line.starts_with('#') {
            inside = line.to_ascii_lowercase().contains("unsafe");
            if inside {
                rooms.get_or_insert_with(Vec::new);
            }
        } else if inside && let Some(rooms) = &mut rooms {
            rooms.extend(line.split('`').skip(1).step_by(2).filter_map(room));
        }
    }
    rooms
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP_TEXT: &str = "# Map\n`crates/vfs`\n\n## Where `unsafe` may be\n- `crates/rt/src/sim.rs`: coroutines\n\n## Next\n`crates/ssd`\n";

    #[test]
    fn unlisted_rooms_must_forbid_unsafe() {
        let tree = SourceTree::of(&[
            ("ARCHITECTURE.md", MAP_TEXT),
            ("crates/rt/src/lib.rs", "//! x\nunsafe fn f() {}\n"),
            ("crates/vfs/src/lib.rs", "//! x\n#![forbid(unsafe_code)]\n"),
            ("crates/ssd/src/lib.rs", "//! unsafe is a word here\n"),
            ("crates/ssd/src/map.rs", "//! x\nfn f() { unsafe { g() } }\n"),
        ]);
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("ssd/src/lib.rs") && found[0].contains("add #![forbid(unsafe_code)]"));
        assert!(found[1].contains("ssd/src/map.rs:2"));
    }

    #[test]
    fn a_map_without_the_list_is_found() {
        assert_eq!(check(&SourceTree::of(&[])).len(), 1);
        assert_eq!(check(&SourceTree::of(&[("ARCHITECTURE.md", "# Map\n")])).len(), 1);
    }
}
