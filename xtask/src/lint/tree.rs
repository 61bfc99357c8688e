//! The sources that rules look at: every text file of the workspace, in memory, so that a test can plant one.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

/// Text files by path relative to the workspace, with `/` between components.
#[derive(Debug, Default)]
pub struct SourceTree {
    files: BTreeMap<String, String>,
    /// Files that are not text (or too large to be): they exist, nothing more.
    opaque: Vec<String>,
}

impl SourceTree {
    /// Reads everything under `root` except build output and git's own directory.
    pub fn read(root: &Path) -> Result<Self> {
        let mut tree = Self::default();
        tree.read_directory(root, "")?;
        Ok(tree)
    }

    /// A tree with exactly these files.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Self { files, opaque: Vec::new() }
    }

    fn read_directory(&mut self, directory: &Path, prefix: &str) -> Result<()> {
        const TEXT_BYTES_MAX: u64 = 4 << 20;
        let unreadable = || format!("{} could not be read", directory.display());
        for entry in std::fs::read_dir(directory).with_context(unreadable)? {
            let entry = entry.with_context(unreadable)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{prefix}{name}");
            let kind = entry.file_type()?;
            if name == ".git" || path == "target" {
                continue;
            }
            if kind.is_dir() {
                self.read_directory(&entry.path(), &format!("{path}/"))?;
            } else if kind.is_file()
                && !name.ends_with(".img")
                && entry.path().metadata()?.len() <= TEXT_BYTES_MAX
            {
                match String::from_utf8(std::fs::read(entry.path())?) {
                    Ok(text) => drop(self.files.insert(path, text)),
                    Err(_) => self.opaque.push(path),
                }
            } else {
                self.opaque.push(path);
            }
        }
        Ok(())
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len() + self.opaque.len()
    }

    /// All text files: path and contents.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The text files whose path ends with `suffix`.
    pub fn ending<'a>(&'a self, suffix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files().filter(move |(path, _)| path.ends_with(suffix))
    }

    /// The contents of one text file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Whether `path` is a file or a directory here.
    pub fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let inside = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.keys().chain(&self.opaque).any(|file| file == path || file.starts_with(&inside))
    }
}

/// The workspace room that `path` is in: `ssd` for `crates/ssd/…`, `sqlite-driver` for `xtask/sqlite/…`,
/// `xtask` for its rest.
pub fn room(path: &str) -> Option<&str> {
    match path.split_once('/') {
        Some(("crates", rest)) => rest.split('/').next(),
        Some(("xtask", rest)) if rest == "sqlite" || rest.starts_with("sqlite/") => Some("sqlite-driver"),
        Some(("xtask", _)) => Some("xtask"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_exist_through_their_files() {
        let tree = SourceTree::of(&[("docs/format/bytefs.md", "")]);
        assert!(tree.exists("docs") && tree.exists("docs/format/") && tree.exists("docs/format/bytefs.md"));
        assert!(!tree.exists("docs/form") && !tree.exists("docs/format/bytefs"));
        assert_eq!(room("crates/ssd/src/lib.rs"), Some("ssd"));
        assert_eq!(room("xtask/sqlite/src/row.rs"), Some("sqlite-driver"));
        assert_eq!(room("README.md"), None);
    }
}
