//! Workloads as data: a personality in TOML says which files there are and what threads do to them; it runs
//! on anything that is [`Files`](crate::files::Files), in virtual or real time. The vocabulary is
//! filebench's, whose published personalities are the presets.

mod driver;
mod fileset;
mod outcome;
mod personality;
mod plan;
mod preset;
mod semaphore;
mod shared;
mod size;
mod thread;

pub use driver::{Settings, prepare, run};
pub use fileset::Prepared;
pub(crate) use outcome::empty as empty_histogram;
pub use outcome::{LatencySummary, Outcome, StepOutcome};
pub use personality::{Fileset, Group, Kind, Operation, Personality, PersonalityError, Run, Scaled, Step};
pub use plan::Plan;
pub use preset::{PRESETS, Preset, preset};
pub use shared::Window;
pub use size::Size;
