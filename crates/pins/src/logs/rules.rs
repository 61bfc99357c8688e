//! Which files are logs: rules about the last names of a path, with what four programs call theirs.

use amphi_vfs::Ino;
use std::collections::{BTreeMap, BTreeSet};

/// What PostgreSQL, Redis, SQLite and RocksDB call their logs.
pub const BUILT_IN: [&str; 4] = ["pg_wal/*", "*.aof", "*-wal", "[0-9][0-9][0-9][0-9][0-9][0-9].log"];
/// Most names of a rule.
const NAMES_MAX: usize = 16;

/// A rule: names from a directory down to a file. `*` is any number of bytes, `?` is one, `[0-9]` one of
/// these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule(Vec<Vec<u8>>);

impl Rule {
    /// Reads a rule.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let names: Vec<_> = text.split('/').map(|name| name.as_bytes().to_vec()).collect();
        if names.len() > NAMES_MAX || names.iter().any(Vec::is_empty) {
            return Err(format!("`{text}` is no rule: it is names with a slash between, as pg_wal/*"));
        }
        Ok(Self(names))
    }
}

/// Whether a name is what a pattern says.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    // The last star met, and what of the name it has taken.
    let (mut at, mut of, mut star) = (0, 0, None);
    while of < name.len() {
        let one = match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, of));
                at += 1;
                continue;
            }
            Some(b'?') => Some(1),
            Some(b'[') => match pattern[at..] {
                [_, from, b'-', to, b']', ..] if (from..=to).contains(&name[of]) => Some(5),
                [_, _, b'-', _, b']', ..] => None,
                _ => (name[of] == b'[').then_some(1),
            },
            Some(byte) => (*byte == name[of]).then_some(1),
            None => None,
        };
        match (one, &mut star) {
            (Some(taken), _) => (at, of) = (at + taken, of + 1),
            (None, Some((behind, taken))) => {
                *taken += 1;
                (at, of) = (*behind, *taken);
            }
            (None, None) => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// The rules, and the inodes that they have been found to be about.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    /// Directories, with the rules of which they are the first so many names.
    directories: BTreeMap<Ino, BTreeSet<(usize, usize)>>,
    logs: BTreeSet<Ino>,
}

impl Rules {
    /// Adds one. Files are seen by it from their next look-up on.
    pub fn add(&mut self, rule: Rule) {
        if !self.rules.contains(&rule) {
            self.rules.push(rule);
        }
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Notes what `name` in `dir` is. True if that was new.
    pub fn note(&mut self, dir: Ino, name: &[u8], ino: Ino, is_dir: bool) -> bool {
        let begun: Vec<_> = self.directories.get(&dir).into_iter().flatten().copied().collect();
        let fresh = (0..self.rules.len()).map(|rule| (rule, 0));
        let mut is_new = false;
        for (rule, names) in begun.into_iter().chain(fresh) {
            let due = &self.rules[rule].0;
            if !fits(&due[names], name) {
                continue;
            }
            let is_last = names + 1 == due.len();
            if is_last && !is_dir {
                is_new |= self.logs.insert(ino);
            } else if !is_last && is_dir {
                is_new |= self.directories.entry(ino).or_default().insert((rule, names + 1));
            }
        }
        is_new
    }

    /// Whether a rule is about the file.
    pub fn is_log(&self, ino: Ino) -> bool {
        self.logs.contains(&ino)
    }

    /// Forgets an inode that has lost its last name.
    pub fn forget(&mut self, ino: Ino) {
        self.logs.remove(&ino);
        self.directories.remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_patterns() {
        for (pattern, name, does) in [
            ("*-wal", "a.db-wal", true),
            ("*-wal", "-wal", true),
            ("*-wal", "a.db-wal2", false),
            ("[0-9][0-9][0-9].log", "012.log", true),
            ("[0-9][0-9][0-9].log", "12.log", false),
            ("[0-9][0-9][0-9].log", "LOG", false),
            ("a?c*", "abc", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("[x", "[x", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), name.as_bytes()), does, "{pattern} {name}");
        }
    }

    #[test]
    fn a_rule_with_directories_is_about_files_below_them() {
        let mut rules = Rules::default();
        rules.add(Rule::parse("data/pg_wal/*").unwrap());
        assert!(rules.note(Ino(1), b"data", Ino(2), true));
        rules.note(Ino(1), b"pg_wal", Ino(3), true);
        rules.note(Ino(3), b"1", Ino(4), false);
        rules.note(Ino(2), b"pg_wal", Ino(5), true);
        rules.note(Ino(5), b"1", Ino(6), false);
        rules.note(Ino(5), b"archive_status", Ino(7), true);
        assert!(!rules.is_log(Ino(4)) && rules.is_log(Ino(6)) && !rules.is_log(Ino(7)));
        rules.forget(Ino(6));
        assert!(!rules.is_log(Ino(6)));
        assert!(Rule::parse("").is_err() && Rule::parse("a//b").is_err());
    }
}
