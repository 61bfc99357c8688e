//! Parameters of the kernel that a run sets and then sets back.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// What `parameter` holds, without the end of the line.
///
/// # Errors
/// It cannot be read.
pub fn read(parameter: &Path) -> Result<String> {
    let text = std::fs::read_to_string(parameter)
        .with_context(|| format!("{} cannot be read", parameter.display()))?;
    Ok(text.trim().to_owned())
}

/// A parameter with another value, until this is dropped.
#[derive(Debug)]
pub struct Changed {
    parameter: PathBuf,
    before: String,
}

impl Changed {
    /// Sets `parameter` to `value`, as the option `option` asks for.
    ///
    /// # Errors
    /// It is not there, or only root may.
    pub fn begin(parameter: &Path, value: &str, option: &str) -> Result<Self> {
        let before = read(parameter)?;
        std::fs::write(parameter, value)
            .with_context(|| format!("{} cannot be written: {option} needs root", parameter.display()))?;
        Ok(Self { parameter: parameter.to_owned(), before })
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        if let Err(cause) = std::fs::write(&self.parameter, &self.before) {
            let parameter = self.parameter.display();
            crate::complain(format_args!(
                "{parameter} stays as the run has set it, it was {}: {cause}",
                self.before
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_before_is_set_again() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let parameter = directory.path().join("guest_halt_poll_ns");
        std::fs::write(&parameter, "7\n").expect("a file");
        let changed = Changed::begin(&parameter, "200000", "--poll-idle").expect("it can be written");
        assert_eq!(read(&parameter).expect("a value"), "200000");
        drop(changed);
        assert_eq!(read(&parameter).expect("a value"), "7");
    }

    #[test]
    fn who_may_not_hears_of_the_option() {
        let error = Changed::begin(Path::new("/proc/version"), "1", "--offer-rings").unwrap_err().to_string();
        assert!(error.contains("--offer-rings needs root"), "{error}");
    }
}
