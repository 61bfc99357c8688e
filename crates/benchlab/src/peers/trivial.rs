//! The file system that shows what FUSE itself costs, served by a process like ours.

use std::path::Path;

use anyhow::Result;

use super::daemon::Daemon;
use super::workspace::{Workspace, text};

/// Has the program `amphi` serve one.
///
/// # Errors
/// What the program complains of.
pub fn served(workspace: &Workspace, amphi: &Path) -> Result<Daemon> {
    let directory = workspace.directory("trivial")?;
    let arguments = ["bench", "serve-trivial", text(&directory)?].map(str::to_owned);
    Daemon::new(amphi, &arguments.each_ref().map(String::as_str), directory)
}
