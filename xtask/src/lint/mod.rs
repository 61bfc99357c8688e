//! The rules of the house, checked over the sources as text, then rustfmt and clippy.
//!
//! Each rule is a module with one function over a [`SourceTree`]; its unit test plants a violation. Adding a
//! rule means adding a module and one line in [`RULES`].

mod circles;
mod edges;
mod errno;
mod format_rooms;
mod headers;
mod length;
mod links;
mod machine_paths;
mod names;
mod paper_rows;
mod placeholders;
mod prints;
mod rust_text;
mod test_files;
mod tree;
mod unsafety;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use crate::step::{self, step};
use tree::SourceTree;

/// What `cargo xtask lint` takes.
#[derive(clap::Args)]
pub struct Options {
    /// Only the rules of the house: no rustfmt, no clippy.
    #[arg(long)]
    pub rules_only: bool,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    /// Printed; the lint passes.
    Warning,
    /// Printed; the lint fails.
    Error,
}

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    severity: Severity,
    path: String,
    /// From 1; 0 when the finding is about the whole file.
    line: usize,
    message: String,
}

impl Finding {
    fn error(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, path: path.to_owned(), line, message: message.into() }
    }

    fn warning(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        if self.line == 0 {
            write!(f, "{kind}: {}: {}", self.path, self.message)
        } else {
            write!(f, "{kind}: {}:{}: {}", self.path, self.line, self.message)
        }
    }
}

/// A rule: everything in the tree that breaks it.
type Rule = fn(&SourceTree) -> Vec<Finding>;

/// Every rule, by the name that is printed.
const RULES: [(&str, Rule); 16] = [
    ("crate edges", edges::check),
    ("no circles of files", circles::check),
    ("file headers", headers::check),
    ("file length", length::check),
    ("comment width", length::check_comments),
    ("document width", length::check_documents),
    ("file names", names::check),
    ("unsafe rooms", unsafety::check),
    ("errno only in front ends", errno::check),
    ("no placeholders", placeholders::check),
    ("links in documents", links::check),
    ("on-disk structures in format.rs", format_rooms::check),
    ("paper rows", paper_rows::check),
    ("test files", test_files::check),
    ("machine paths", machine_paths::check),
    ("prints that panic", prints::check),
];

/// Checks the workspace at `root`.
///
/// # Errors
/// When any rule is broken, or rustfmt or clippy complain; the findings have been printed.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    step("lint: rules of the house", || house_rules(root))?;
    if options.rules_only {
        return Ok(());
    }
    step("lint: rustfmt", || step::run(step::cargo(root).args(["fmt", "--all", "--check"])))?;
    step("lint: clippy", || {
        let mut clippy = step::cargo(root);
        clippy.args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]);
        step::run(&mut clippy)
    })
}

fn house_rules(root: &Path) -> Result<()> {
    let tree = SourceTree::read(root)?;
    let mut errors = 0;
    for (name, rule) in RULES {
        for finding in rule(&tree) {
            println!("    {finding} [{name}]");
            errors += usize::from(finding.severity == Severity::Error);
        }
    }
    if errors > 0 {
        bail!("{errors} places break the rules of the house (listed above)");
    }
    println!("    {} rules hold over {} files", RULES.len(), tree.len());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_workspace_keeps_the_rules() {
        let tree = SourceTree::read(&crate::root()).unwrap();
        let broken: Vec<String> = RULES
            .iter()
            .flat_map(|(_, rule)| rule(&tree))
            .filter(|finding| finding.severity == Severity::Error)
            .map(|finding| finding.to_string())
            .collect();
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }

    #[test]
    fn a_clean_small_tree_has_no_findings() {
        let tree = SourceTree::of(&[
            ("README.md", "# Tiny\nSee [the code](crates/rt/src/lib.rs).\n"),
            ("ARCHITECTURE.md", "# Map\n\n## Unsafe code\nNone.\n"),
            ("crates/rt/Cargo.toml", "[package]\nname = \"amphi-rt\"\n"),
            ("crates/rt/src/lib.rs", "//! Time.\n#![forbid(unsafe_code)]\n"),
        ]);
        for (name, rule) in RULES {
            assert_eq!(rule(&tree), [], "{name}");
        }
    }
}
