//! System programs, with errors that repeat what they said.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs a program.
///
/// # Errors
/// It is missing or failed.
pub fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("{program} cannot be run; install it to include this file system"))?;
    if !output.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
