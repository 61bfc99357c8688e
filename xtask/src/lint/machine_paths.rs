//! No path of the machine that something was written on: it means nothing to anybody else.

use super::Finding;
use super::tree::SourceTree;

/// Where people keep their own files. Split so that this file does not find itself.
const FORBIDDEN: [&str; 3] = [concat!("/ho", "me"), concat!("/ro", "ot"), concat!("/Us", "ers")];

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.files() {
        for (index, line) in text.lines().enumerate() {
            for forbidden in FORBIDDEN {
                if line.match_indices(forbidden).any(|(at, _)| is_path(line, at, at + forbidden.len())) {
                    findings.push(Finding::error(
                        path,
                        index + 1,
                        format!("a path of one machine: {forbidden}"),
                    ));
                }
            }
        }
    }
    findings
}

/// Whether the match stands as an absolute path of its own, not inside a longer name or a relative path.
fn is_path(line: &str, start: usize, end: usize) -> bool {
    let before = line[..start].chars().next_back();
    before.is_none_or(|c| !(c.is_alphanumeric() || "._-/~".contains(c))) && line[end..].starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_machine_paths_are_found() {
        let planted = format!("see {}/someone/notes.md\n", FORBIDDEN[0]);
        let target = format!("cp {}/x\n", FORBIDDEN[1]);
        let innocent = "a/root/b, /rooted, the /home-grown\n";
        let tree = SourceTree::of(&[("a.md", &planted), ("b.sh", &target), ("c.rs", innocent)]);
        let paths: Vec<String> = check(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["a.md", "b.sh"]);
    }
}
