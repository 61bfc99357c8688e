//! Progress on one line that overwrites itself; on something that is no terminal, nothing until the step
//! ends.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Progress of one step.
pub struct Progress {
    title: String,
    shown: Option<Instant>,
}

impl Progress {
    /// Progress of the step called `title`.
    pub fn new(title: &str) -> Self {
        let mut progress = Self { title: title.to_owned(), shown: None };
        progress.show("");
        progress
    }

    /// Shows `state`, at most ten times a second.
    pub fn show(&mut self, state: &str) {
        const EVERY: Duration = Duration::from_millis(100);
        if std::io::stdout().is_terminal() && self.shown.is_none_or(|shown| shown.elapsed() >= EVERY) {
            print!("\r\x1b[K    {} {state}", self.title);
            flush();
            self.shown = Some(Instant::now());
        }
    }

    /// Replaces the line by what came out.
    pub fn done(self, outcome: &str) {
        clear_line();
        println!("    {}: {outcome}", self.title);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        clear_line();
    }
}

fn clear_line() {
    if std::io::stdout().is_terminal() {
        print!("\r\x1b[K");
        flush();
    }
}

fn flush() {
    // A closed terminal is no reason to stop.
    let _ = std::io::stdout().flush();
}

/// `count` with a comma between thousands.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}
