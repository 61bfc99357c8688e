//! Whether the baseline `fs-ext4like` writes to its device what the kernel's ext4 writes: the same steps on
//! both, every request of both written down, the two records compared.
//!
//! - `record` requests as they were written down, and their sums
//! - `layout` which structure of the kernel's ext4 a block belongs to
//! - `steps` what is done on both
//! - `rivals` both file systems, each on an SSD of the same size
//! - `trace` what the kernel did in each step, by its tracepoints
//! - `report` the comparison

mod layout;
mod record;
mod report;
mod rivals;
mod run;
mod steps;
mod trace;

pub use record::Traffic;
pub use report::{Report, Row, SCHEMA, Share, TOLERANCE};
pub use run::{Settings, run};
