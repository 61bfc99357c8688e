//! What measurements have in common: a mount namespace of their own, an end on request, and where results go.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::TERM_SIGNALS;

/// Says to a process that it is alone in its mount namespace.
const ALONE: &str = "AMPHI_BENCH_ALONE";

/// Becomes this same command in a mount namespace of its own, where every mount goes with the last process.
/// Returns where that is so already, or where it cannot be had.
pub fn be_alone() {
    if std::env::var_os(ALONE).is_some() || !rustix::process::geteuid().is_root() {
        return;
    }
    let private = ["--mount", "--propagation", "private"];
    let probe = Command::new("unshare").args(private).arg("true").output();
    if let (Ok(program), true) = (std::env::current_exe(), probe.is_ok_and(|probe| probe.status.success())) {
        let mut command = Command::new("unshare");
        command.args(private).arg(program).args(std::env::args_os().skip(1)).env(ALONE, "1");
        // It returns only if it fails; the run then takes place here.
        let _ = command.exec();
    }
}

/// Sets `ended` when somebody wants the run to end. Whoever asks twice is served at once: everything goes
/// with the process then.
///
/// # Errors
/// The system refuses.
pub fn end_on_signals(ended: &Arc<AtomicBool>) -> Result<()> {
    for &signal in TERM_SIGNALS {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(ended))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(ended)))
            .context("signals cannot be caught")?;
    }
    Ok(())
}

/// Whether results are to go to standard output.
pub fn is_stdout(file: Option<&Path>) -> bool {
    file.is_some_and(|file| file.as_os_str() == "-")
}

/// Writes results to a file; `-` is standard output.
///
/// # Errors
/// The file cannot be written.
pub fn write(file: &Path, text: &str) -> Result<()> {
    if is_stdout(Some(file)) {
        print!("{text}");
        return Ok(());
    }
    std::fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))
}
