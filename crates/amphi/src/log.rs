//! What a daemon has to say: on standard error, which in the background is a file in the run-time folder. A
//! file that has grown large is set aside under another name, in place of the one before, so that two are
//! there at the most. What cannot be written is dropped: a full disk must not end a mount.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use amphi_rt::sync::Mutex;
use anyhow::{Context, Result};
use tracing_subscriber::filter::LevelFilter;

/// Bytes after which the file is set aside.
const BYTES_MAX: u64 = 1 << 20;

/// The file of a daemon in the background.
struct LogFile {
    path: PathBuf,
    bytes: u64,
}

static FILE: Mutex<Option<LogFile>> = Mutex::new(None);

/// Begins to show what happens inside, as much as `AMPHI_LOG` asks for. In colours only where a person looks.
pub fn begin() {
    let level = std::env::var("AMPHI_LOG").ok().and_then(|level| level.parse().ok());
    tracing_subscriber::fmt()
        .with_max_level(level.unwrap_or(LevelFilter::WARN))
        .with_writer(|| Output)
        .with_ansi(io::stderr().is_terminal())
        // The subscriber would complain on standard error of what cannot be written, and panic where that is
        // standard error.
        .log_internal_errors(false)
        .init();
}

/// Lets standard error go to the file from now on. The one of an earlier daemon is set aside.
///
/// # Errors
/// If it cannot be made.
pub fn to_file(path: &Path) -> Result<()> {
    let mut file = FILE.lock();
    renew(path).with_context(|| format!("the log {} cannot be written", path.display()))?;
    *file = Some(LogFile { path: path.to_owned(), bytes: 0 });
    Ok(())
}

/// Sets the file aside and begins a new one.
fn renew(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0) {
        std::fs::rename(path, path.with_extension("log.1"))?;
    }
    rustix::stdio::dup2_stderr(File::create(path)?)?;
    Ok(())
}

/// Standard error. Whatever becomes of a text, it counts as written.
struct Output;

impl Write for Output {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if let Some(file) = FILE.lock().as_mut() {
            file.bytes += text.len() as u64;
            if file.bytes > BYTES_MAX {
                file.bytes = 0;
                // One that cannot be set aside grows on.
                let _ = renew(&file.path);
            }
        }
        let _ = io::stderr().write_all(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
