//! Whether a baseline writes to its device what the kernel's file system of its kind writes, `fs-ext4like`
//! beside ext4 and `fs-f2fslike` beside F2FS: the same steps on both, every request of both written down, the
//! two records compared.
//!
//! - `record` requests as they were written down, and their sums
//! - `layout` which structure of the kernel's file system a block belongs to
//! - `steps` what is done on both
//! - `settings` what is compared
//! - `rivals` both file systems, each on an SSD of the same size
//! - `machine` a virtual machine in which the kernel's one is, if that is asked for
//! - `trace` what the kernel did in each step, by its tracepoints
//! - `report` the comparison

mod layout;
mod machine;
mod record;
mod report;
mod rivals;
mod run;
mod settings;
mod steps;
mod trace;

pub use machine::serve;
pub use record::Traffic;
pub use report::{Report, Row, SCHEMA, Share, TOLERANCE};
pub use run::run;
pub use settings::{Kind, Settings};
pub use steps::Asked;
