//! A personality as it is written down: filesets, groups of threads, and the steps that each thread repeats.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Size;

/// Why a personality cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PersonalityError {
    /// It is not TOML, or has a key or value that no personality has; the message names it.
    #[error("the personality cannot be read: {0}")]
    Syntax(String),
    /// What it says is impossible.
    #[error("personality {name}: {what}")]
    Impossible {
        /// Its name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// Parameters were given that it does not have.
    #[error("personality {name} has no parameter called {parameter}; it has: {known}")]
    Parameter {
        /// Its name.
        name: String,
        /// The parameter asked for.
        parameter: String,
        /// Those there are.
        known: String,
    },
}

/// A workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Personality {
    /// Short name.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Where its numbers come from.
    pub source: String,
    /// Values that a string `"$name"` anywhere below stands for, and that a user may change.
    #[serde(default)]
    pub parameters: BTreeMap<String, u64>,
    /// How long it runs.
    pub run: Run,
    /// The files.
    #[serde(rename = "fileset")]
    pub filesets: Vec<Fileset>,
    /// The threads.
    #[serde(rename = "group")]
    pub groups: Vec<Group>,
}

/// How long a workload runs: exactly one of the three ends it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// So many seconds, scaled with the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// So many operations over all threads, scaled with the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// Until a thread finds nothing left to create or delete.
    #[serde(default)]
    pub until_exhausted: bool,
    /// Seconds before that, which do not count; scaled with the files.
    #[serde(default)]
    pub warm_up_seconds: f64,
}

/// What a fileset holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Regular files.
    #[default]
    Files,
    /// Empty directories.
    Directories,
}

/// What of a fileset `--scale` multiplies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scaled {
    /// How many files there are.
    #[default]
    Count,
    /// How large they are.
    Size,
    /// Nothing.
    Nothing,
}

/// A set of files or directories in a tree of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fileset {
    /// Its name, and that of its directory.
    pub name: String,
    /// What it holds.
    #[serde(default)]
    pub kind: Kind,
    /// How many.
    pub files: u64,
    /// How large each is when it is made beforehand, and what `write-whole` writes.
    #[serde(default = "nothing")]
    pub size: Size,
    /// How much of the space that is free when they are made all of them take together, in percent, instead
    /// of `size`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fills_percent: Option<u64>,
    /// Most names in one directory.
    pub dir_width: u64,
    /// How many of a hundred exist before the run.
    #[serde(default)]
    pub existing_percent: u64,
    /// What `--scale` multiplies.
    #[serde(default)]
    pub scaled: Scaled,
    /// Each thread has directories of its own, and finds, makes and removes names in these alone.
    #[serde(default)]
    pub private: bool,
    /// What is done to each file that exists beforehand, after it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overwritten: Option<Overwritten>,
}

/// Overwrites of a file before the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overwritten {
    /// Bytes of each, at any byte of the file.
    pub size: Size,
    /// Bytes of all together, in percent of the file's size.
    pub percent: u64,
}

const fn nothing() -> Size {
    Size::Bytes(0)
}

/// Threads that do the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// How many threads.
    pub threads: usize,
    /// Rounds through the steps a second, over all its threads; unlimited if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds_per_second: Option<f64>,
    /// What each thread does, again and again.
    pub steps: Vec<Step>,
}

/// One step. Which of the keys an operation needs, [`Plan`](super::Plan) says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// What is done.
    pub op: Operation,
    /// To a file of this set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fileset: Option<String>,
    /// To, or as, the thread's open file of this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fd: Option<usize>,
    /// How much is transferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// At a random multiple of the size rather than after the last transfer.
    #[serde(default)]
    pub random: bool,
    /// With `random`: at any byte, rather than at a multiple of the size.
    #[serde(default)]
    pub unaligned: bool,
    /// Rounds place and size of a random transfer to multiples of so many bytes; 0: of its size, or not at
    /// all.
    #[serde(default)]
    pub aligned: u64,
    /// With a fileset in place of an open file: always the same file of the set, each thread another one.
    #[serde(default)]
    pub own: bool,
    /// `open` takes the file that the thread last had open under this number, not any.
    #[serde(default)]
    pub again: bool,
    /// The files opened are opened past the page cache.
    #[serde(default)]
    pub direct: bool,
    /// The files opened are opened so that each write is durable.
    #[serde(default)]
    pub sync_data: bool,
    /// After a change of a name, the directory is synced; that belongs to the operation.
    #[serde(default)]
    pub durable: bool,
    /// `fsync` makes data durable only (`fdatasync`).
    #[serde(default)]
    pub data_only: bool,
    /// So many times in a row.
    #[serde(default = "one")]
    pub times: u64,
    /// Only in each so many-th round.
    #[serde(default = "one")]
    pub every: u64,
    /// Processor time of `think`, ns.
    #[serde(default)]
    pub ns: u64,
    /// The semaphore of `post` and `wait`, and by how much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semaphore: Option<String>,
    /// See `semaphore`.
    #[serde(default = "one")]
    pub value: u64,
    /// `post` waits while the semaphore is at so much or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_water: Option<u64>,
}

const fn one() -> u64 {
    1
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Creates a file that is not there, and opens it.
    Create,
    /// Opens an existing file, chosen at random.
    Open,
    /// Closes.
    Close,
    /// Removes a file, chosen at random among those that nobody has open.
    Delete,
    /// Makes a directory that is not there.
    Mkdir,
    /// Removes a directory, chosen at random.
    Rmdir,
    /// Attributes of a file chosen at random.
    Stat,
    /// Sets an extended attribute of a file of 16 B: of the set's first one, whoever does it.
    SetAttribute,
    /// Gives a file, chosen at random among those that nobody has open, another name for good.
    Rename,
    /// Lists the directory of a file chosen at random.
    List,
    /// Reads an open file from its beginning to its end.
    ReadWhole,
    /// Writes an open file from its beginning, as much as its fileset's size says.
    WriteWhole,
    /// Reads. With a fileset in place of an open file: the thread opens all files of the set one after the
    /// other, and takes the next one each time.
    Read,
    /// Writes; fileset as for reading.
    Write,
    /// Writes at the end.
    Append,
    /// `fsync` of an open file.
    Fsync,
    /// `sync`.
    Sync,
    /// Occupies a processor.
    Think,
    /// Adds to a semaphore.
    Post,
    /// Takes from a semaphore, waiting until there is as much.
    Wait,
}

impl Operation {
    /// Its name in personalities and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Close => "close",
            Self::Delete => "delete",
            Self::Mkdir => "mkdir",
            Self::Rmdir => "rmdir",
            Self::Stat => "stat",
            Self::SetAttribute => "set-attribute",
            Self::Rename => "rename",
            Self::List => "list",
            Self::ReadWhole => "read-whole",
            Self::WriteWhole => "write-whole",
            Self::Read => "read",
            Self::Write => "write",
            Self::Append => "append",
            Self::Fsync => "fsync",
            Self::Sync => "sync",
            Self::Think => "think",
            Self::Post => "post",
            Self::Wait => "wait",
        }
    }

    /// Whether it is an operation on files, which results count.
    #[must_use]
    pub const fn counts(self) -> bool {
        !matches!(self, Self::Think | Self::Post | Self::Wait)
    }
}

impl Personality {
    /// Reads a personality, with some of its parameters changed.
    ///
    /// # Errors
    /// It is not TOML, says something that no personality has, or does not have a parameter that is to be
    /// changed.
    pub fn from_toml(text: &str, parameters: &[(String, u64)]) -> Result<Self, PersonalityError> {
        let syntax = |error: toml::de::Error| PersonalityError::Syntax(error.to_string());
        let mut table: toml::Table = text.parse().map_err(syntax)?;
        let mut values = BTreeMap::new();
        if let Some(defaults) = table.get("parameters").and_then(toml::Value::as_table) {
            for (name, value) in defaults {
                let whole = value.as_integer().and_then(|value| u64::try_from(value).ok());
                let value = whole.ok_or_else(|| {
                    PersonalityError::Syntax(format!("parameter {name} must be a whole number"))
                })?;
                values.insert(name.clone(), value);
            }
        }
        for (parameter, value) in parameters {
            let Some(known) = values.get_mut(parameter) else {
                let name = table.get("name").and_then(toml::Value::as_str).unwrap_or("?").to_owned();
                let known = values.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                return Err(PersonalityError::Parameter { name, parameter: parameter.clone(), known });
            };
            *known = *value;
        }
        let changed = values.iter().map(|(name, value)| (name.clone(), toml::Value::Integer(*value as i64)));
        if !values.is_empty() {
            table.insert("parameters".to_owned(), toml::Value::Table(changed.collect()));
        }
        let mut root = toml::Value::Table(table);
        replace(&mut root, &values)?;
        root.try_into().map_err(syntax)
    }

    /// The same workload made small: files (or their sizes), run length and warm-up multiplied by `scale`.
    /// Thread counts, directory widths and transfer sizes stay.
    #[must_use]
    pub fn scaled(&self, scale: f64) -> Self {
        let mut scaled = self.clone();
        for fileset in &mut scaled.filesets {
            match fileset.scaled {
                Scaled::Count => fileset.files = ((fileset.files as f64 * scale).round() as u64).max(1),
                Scaled::Size => fileset.size = fileset.size.scaled(scale),
                Scaled::Nothing => {}
            }
        }
        let run = &mut scaled.run;
        run.seconds = run.seconds.map(|seconds| seconds * scale);
        run.operations = run.operations.map(|operations| ((operations as f64 * scale) as u64).max(1));
        run.warm_up_seconds *= scale;
        scaled
    }

    /// The same workload with `threads` threads in its largest group.
    #[must_use]
    pub fn with_threads(&self, threads: usize) -> Self {
        let mut changed = self.clone();
        let largest = changed.groups.iter().map(|group| group.threads).max().unwrap_or(0);
        if let Some(group) = changed.groups.iter_mut().find(|group| group.threads == largest) {
            group.threads = threads;
        }
        changed
    }

    /// Bytes of all files that exist before the run, on average.
    #[must_use]
    pub fn bytes_before(&self) -> u64 {
        self.filesets.iter().map(|set| set.files * set.existing_percent / 100 * set.size.mean()).sum()
    }
}

/// Puts values in the place of strings such as `"$io"`.
fn replace(value: &mut toml::Value, values: &BTreeMap<String, u64>) -> Result<(), PersonalityError> {
    match value {
        toml::Value::String(text) => {
            if let Some(name) = text.strip_prefix('$') {
                let Some(number) = values.get(name) else {
                    return Err(PersonalityError::Syntax(format!("{text} names no parameter")));
                };
                *value = toml::Value::Integer(*number as i64);
            }
            Ok(())
        }
        toml::Value::Array(values_within) => values_within.iter_mut().try_for_each(|v| replace(v, values)),
        toml::Value::Table(table) => table.iter_mut().try_for_each(|(_, v)| replace(v, values)),
        _ => Ok(()),
    }
}
