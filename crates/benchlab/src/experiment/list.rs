//! The experiments that are built in, by the chapters of the results.

use super::definition::Definition;

/// Why an experiment cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// None has this name.
    #[error("no experiment is called {name}; there are {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// Those there are.
        known: String,
    },
    /// It is not TOML, or has a key or value that none has.
    #[error("experiment {name} cannot be read: {why}")]
    Syntax {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
}

/// An experiment that is built in.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// The chapter of the results that it belongs to: the system whose paper has it.
    pub chapter: &'static str,
    /// Its text.
    pub toml: &'static str,
}

macro_rules! experiments {
    ($($chapter:literal: $($name:literal),*;)*) => {
        /// Every experiment that is built in, chapter by chapter, each in the order of its paper.
        pub const EXPERIMENTS: &[Experiment] = &[
            $($(Experiment {
                name: $name,
                chapter: $chapter,
                toml: include_str!(concat!("../../../../experiments/", $name, ".toml")),
            }),*),*
        ];
    };
}

experiments! {
    "All designs on one SSD":
        "designs";
    "ByteFS":
        "table1",
        "table2",
        "fig1",
        "fig6",
        "fig6-artifact",
        "fig6-grouped",
        "fig6-f2fs",
        "fig7",
        "fig7-f2fs",
        "fig8",
        "fig9",
        "fig10",
        "fig11",
        "fig12",
        "fig12-rows",
        "fig13",
        "fig14",
        "recovery";
    "RomeFS":
        "romefs-fig6",
        "romefs-fig6-b",
        "romefs-fig6-nova",
        "romefs-table4",
        "romefs-fig7",
        "romefs-fig8",
        "romefs-fig8-nova",
        "romefs-fig9",
        "romefs-fig9-nova",
        "romefs-fig10",
        "romefs-fig10-nova",
        "romefs-fig11",
        "romefs-fig11-nova",
        "romefs-fig12",
        "romefs-fig12-nova",
        "romefs-aged";
    "2B-SSD":
        "2b-ssd-fig9";
    "AugeFS":
        "augefs-fig9",
        "augefs-fig10",
        "augefs-fig10-b",
        "augefs-fig11",
        "augefs-fig12",
        "augefs-fig13",
        "augefs-fig14",
        "augefs-fig15-a",
        "augefs-fig15-b",
        "augefs-fig15-c",
        "augefs-fig15-d",
        "augefs-fig16-a",
        "augefs-fig16-b",
        "augefs-recovery";
    "DevFS":
        "devfs-fig6",
        "devfs-fig7",
        "devfs-fig8",
        "devfs-fig9",
        "devfs-fig10",
        "devfs-fig10-b";
}

/// A built-in experiment.
///
/// # Errors
/// There is none of that name.
pub fn experiment(name: &str) -> Result<Definition, DefinitionError> {
    let found = EXPERIMENTS.iter().find(|experiment| experiment.name == name).ok_or_else(|| {
        let known = EXPERIMENTS.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", ");
        DefinitionError::Unknown { name: name.to_owned(), known }
    })?;
    Definition::from_toml(found.toml).map_err(|why| DefinitionError::Syntax { name: name.to_owned(), why })
}
