//! System programs, with errors that repeat what they said.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs a program.
///
/// # Errors
/// It is missing or failed.
pub fn run(program: &str, arguments: &[&str]) -> Result<()> {
    output(Command::new(program).args(arguments)).map(drop)
}

/// Runs a program; what it printed.
///
/// # Errors
/// It is missing or failed.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("{name} cannot be run; install it to include what needs it"))?;
    if !output.status.success() {
        let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
        bail!("{name} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
