//! Documents point at things that exist: relative links, and paths in backticks.

use super::Finding;
use super::tree::SourceTree;

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending(".md") {
        let mut in_fence = false;
        for (index, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_fence = !in_fence;
                continue;
            }
            if in_fence {
                continue;
            }
            for target in link_targets(line) {
                if !relative_target_exists(tree, path, target) {
                    findings.push(Finding::error(path, index + 1, format!("dead link: {target}")));
                }
            }
            for named in line.split('`').skip(1).step_by(2).filter(|text| is_workspace_path(text)) {
                if !tree.exists(named) {
                    findings.push(Finding::error(
                        path,
                        index + 1,
                        format!("no such file or directory: `{named}`"),
                    ));
                }
            }
        }
    }
    findings
}

/// The targets of the inline links `[text](target)` of a line.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, _)| {
        let rest = &line[at + 2..];
        rest.find(')').map(|end| rest[..end].split_whitespace().next().unwrap_or(""))
    })
}

fn relative_target_exists(tree: &SourceTree, from: &str, target: &str) -> bool {
    let file = target.split('#').next().unwrap_or("");
    if file.is_empty() || target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() {
                    return false;
                }
            }
            part => parts.push(part),
        }
    }
    tree.exists(&parts.join("/"))
}

/// Whether text in backticks means a file of this workspace: it starts in one of its directories, and is no
/// pattern.
pub fn is_workspace_path(text: &str) -> bool {
    const TOPS: [&str; 7] = ["crates/", "xtask/", "docs/", "profiles/", "golden/", ".ci/", ".cargo/"];
    TOPS.iter().any(|top| text.starts_with(top))
        && !text.chars().any(|c| c.is_whitespace() || c.is_uppercase() || "*…<>{}$:".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_and_paths_are_found() {
        let text = "[ok](../README.md#top) [gone](gone.md) [web](https://example.org)\n`crates/rt/src/lib.rs` `crates/nowhere` `crates/*/src`\n```\n`crates/in-a-fence`\n```\n";
        let tree = SourceTree::of(&[("README.md", ""), ("docs/a.md", text), ("crates/rt/src/lib.rs", "")]);
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("docs/a.md:1: dead link: gone.md"));
        assert!(found[1].contains("docs/a.md:2") && found[1].contains("crates/nowhere"));
    }

    #[test]
    fn a_link_out_of_the_workspace_is_dead() {
        let tree = SourceTree::of(&[("a.md", "[up](../x.md)\n")]);
        assert_eq!(check(&tree).len(), 1);
    }
}
