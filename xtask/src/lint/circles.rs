//! No circles inside a crate: a file that needs others needs none that need it, so that it can be read when
//! they have been. What two files need of each other belongs into a third that needs neither.
//!
//! What a file needs are the paths in its code that begin with `crate`, `super` or `self`, followed through
//! re-exports to the file that has the item. A file below a directory may use what the directory's own file
//! has; crate roots and unit tests are not looked at.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Finding;
use super::rust_text::{Keep, masked};
use super::tree::SourceTree;

/// A path as its segments.
type Segments = Vec<String>;

/// The files of a crate.
#[derive(Default)]
struct Crate<'a> {
    /// By path of the module.
    files: BTreeMap<Segments, &'a str>,
    /// The paths that the code of each has, from the crate's root.
    uses: BTreeMap<Segments, BTreeSet<Segments>>,
    /// What modules pass on: the module and the name, and where the name is from.
    passed_on: BTreeMap<(Segments, String), Segments>,
}

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Crate<'_>> = BTreeMap::new();
    let mut texts = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let Some((before, inside)) = path.split_once("src/") else { continue };
        if !inside.ends_with("main.rs") && !inside.contains("bin/") {
            let module = module_of(inside);
            crates.entry(before).or_default().files.insert(module.clone(), path);
            texts.push((before, module, text));
        }
    }
    for (before, module, text) in texts {
        let code = masked(text, Keep::Code);
        let code = code.split("#[cfg(test)]\nmod").next().unwrap_or_default();
        crates.entry(before).or_default().read(&module, code);
    }
    crates.values().flat_map(Crate::circles).collect()
}

fn module_of(inside: &str) -> Segments {
    let path = inside.trim_end_matches(".rs").trim_end_matches("/mod");
    if path == "lib" { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
}

impl Crate<'_> {
    fn read(&mut self, module: &Segments, code: &str) {
        let mut found = BTreeSet::new();
        let mut rest = String::new();
        for statement in code.split_inclusive(';') {
            let import = statement.rsplit_once("use ");
            let Some((passes_on, before, tree)) =
                import.and_then(|(before, tree)| Some((passes_on(before)?, before, tree)))
            else {
                rest.push_str(statement);
                continue;
            };
            rest.push_str(before);
            for path in leaves(tree.trim_end_matches(';')) {
                let Some(path) = self.absolute(module, &path) else { continue };
                if passes_on && let Some(name) = path.last() {
                    self.passed_on.insert((module.clone(), name.clone()), path);
                } else {
                    found.insert(path);
                }
            }
        }
        for path in mentioned(&rest) {
            found.extend(self.absolute(module, &path));
        }
        self.uses.insert(module.clone(), found);
    }

    /// A path from the crate's root; none if it leads out of the crate.
    fn absolute(&self, module: &Segments, path: &[String]) -> Option<Segments> {
        let up = path.iter().take_while(|segment| *segment == "super").count();
        let (base, from) = match path.first()?.as_str() {
            "crate" => (&module[..0], 1),
            "self" => (&module[..], 1),
            "super" => (&module[..module.len().checked_sub(up)?], up),
            first => {
                let below = [module.as_slice(), &[first.to_owned()]].concat();
                (self.files.contains_key(&below).then_some(&module[..])?, 0)
            }
        };
        Some([base, &path[from..]].concat())
    }

    /// The module that has an item.
    fn home(&self, path: &[String], depth: usize) -> Option<Segments> {
        let (module, rest) = (0..=path.len())
            .rev()
            .map(|n| path.split_at(n))
            .find(|(module, _)| self.files.contains_key(*module))?;
        let name = rest.first().cloned();
        match name.and_then(|name| self.passed_on.get(&(module.to_vec(), name))) {
            Some(from) if depth > 0 => self.home(&[from, &rest[1..]].concat(), depth - 1),
            _ => Some(module.to_vec()),
        }
    }

    /// The modules that each needs.
    fn needs(&self) -> BTreeMap<&Segments, BTreeSet<Segments>> {
        const RE_EXPORTS_MAX: usize = 5;
        let mut needs: BTreeMap<&Segments, BTreeSet<Segments>> = BTreeMap::new();
        for (module, paths) in self.uses.iter().filter(|(module, _)| !module.is_empty()) {
            let homes = paths.iter().filter_map(|path| self.home(path, RE_EXPORTS_MAX));
            needs.entry(module).or_default().extend(homes.filter(|home| !module.starts_with(home)));
        }
        needs
    }

    /// One finding for each module that is the first of a shortest circle through it.
    fn circles(&self) -> Vec<Finding> {
        let needs = self.needs();
        let mut findings = Vec::new();
        for start in needs.keys() {
            let Some(circle) = way_back(&needs, start) else { continue };
            if circle.iter().all(|module| module >= *start) {
                let way: Vec<_> = circle.iter().map(|module| module.join("::")).collect();
                findings.push(Finding::error(
                    self.files[*start],
                    0,
                    format!(
                        "it needs {}, which needs it; move what both need to a file that needs neither",
                        way.join(", which needs ")
                    ),
                ));
            }
        }
        findings
    }
}

/// The shortest way from a module back to it, without its ends.
fn way_back(needs: &BTreeMap<&Segments, BTreeSet<Segments>>, start: &Segments) -> Option<Vec<Segments>> {
    let mut came_from: BTreeMap<&Segments, &Segments> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for next in needs.get(module)? {
            if next == start {
                let mut way = vec![module.clone()];
                while let Some(before) = came_from.get(&way[0]).filter(|before| **before != start) {
                    way.insert(0, (*before).clone());
                }
                return Some(way);
            }
            if needs.contains_key(next) && !came_from.contains_key(next) {
                came_from.insert(next, module);
                queue.push_back(next);
            }
        }
    }
    None
}

/// Whether an import behind this passes on what it imports; none if no statement can begin there.
fn passes_on(before: &str) -> Option<bool> {
    let line = before.rsplit('\n').next().unwrap_or_default().trim();
    let is_public = line == "pub" || line.starts_with("pub(") && line.ends_with(')');
    (is_public || line.is_empty()).then_some(is_public)
}

/// The paths of a tree of imports.
fn leaves(tree: &str) -> Vec<Segments> {
    let Some((before, inside)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        let segments = path.split("::").map(|segment| segment.trim().to_owned());
        return vec![segments.filter(|segment| !segment.is_empty() && segment != "*").collect()];
    };
    let inside = inside.rsplit_once('}').map_or(inside, |(inside, _)| inside);
    let mut depth = 0;
    let parts = inside.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let parts = parts.filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| leaves(&format!("{before}{}", part.trim()))).collect()
}

/// The paths that code has in it.
fn mentioned(code: &str) -> Vec<Segments> {
    let in_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '$';
    let words = code.split(|c| !in_path(c)).filter(|word| word.contains("::") && !word.starts_with('$'));
    words.map(|word| word.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&SourceTree::of(files)).into_iter().map(|finding| finding.to_string()).collect()
    }

    #[test]
    fn a_circle_is_found_through_imports_paths_and_re_exports() {
        let found = found(&[
            ("crates/a/src/lib.rs", "pub mod one; mod two; mod three;"),
            ("crates/a/src/one.rs", "use crate::two::{Two, more::{self, Most}};\n"),
            ("crates/a/src/two.rs", "mod more;\npub(crate) use more::Most;\nfn f() { crate::three::g() }\n"),
            ("crates/a/src/two/more.rs", "pub struct Most;\n"),
            ("crates/a/src/three.rs", "use super::one::One;\n"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("one.rs") && found[0].contains("two, which needs three"), "{found:?}");
    }

    #[test]
    fn parents_tests_comments_and_other_crates_make_no_circle() {
        let found = found(&[
            ("crates/a/src/one.rs", "mod below;\nuse below::Below;\npub struct One;\n// crate::two\n"),
            ("crates/a/src/one/below.rs", "use super::One;\npub struct Below;\n"),
            ("crates/a/src/two.rs", "use crate::one::One;\nuse other::three::Three;\n"),
            (
                "crates/a/src/three.rs",
                "use crate::two::Two;\n#[cfg(test)]\nmod tests { use crate::four::F; }\n",
            ),
            ("crates/a/src/four.rs", "use crate::three::Three;\n"),
        ]);
        assert_eq!(found, [""; 0]);
    }
}
