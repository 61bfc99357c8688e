//! The personalities that are built in: the files of `workloads/`, each value there with its source.

use super::personality::{Personality, PersonalityError};

/// A personality that is built in.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// Its text.
    pub toml: &'static str,
}

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        /// Every personality that is built in.
        pub const PRESETS: &[Preset] = &[
            $(Preset { name: $name, toml: include_str!(concat!("../../../../workloads/", $name, ".toml")) }),*
        ];
    };
}

presets![
    "create",
    "create-sync",
    "create-close",
    "create-reopen",
    "compress",
    "delete",
    "mkdir",
    "rmdir",
    "stat",
    "random-read",
    "sequential-read",
    "random-write",
    "unaligned-write",
    "fluctuating-write",
    "fluctuating-read",
    "shared-write",
    "shared-read",
    "aged-write",
    "full-overwrite",
    "append-many",
    "one-file-write",
    "one-file-read",
    "sequential-write",
    "append",
    "varmail",
    "fileserver",
    "webproxy",
    "fileserver-sync",
    "webproxy-sync",
    "webserver",
    "oltp",
    "oltp-sync",
    "names-create",
    "names-mkdir",
    "names-rmdir",
    "names-delete",
    "names-rename",
    "names-list",
    "set-attribute",
];

/// A built-in personality, with some of its parameters changed.
///
/// # Errors
/// There is none of that name, or it does not have such a parameter.
pub fn preset(name: &str, parameters: &[(String, u64)]) -> Result<Personality, PersonalityError> {
    let found = PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| {
        let known = PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ");
        PersonalityError::Syntax(format!("no personality is called {name}; built in are {known}"))
    })?;
    Personality::from_toml(found.toml, parameters)
}
