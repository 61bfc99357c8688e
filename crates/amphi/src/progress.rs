//! How far a check of a file system is, shown as a bar while it works: on standard error, and only if that is
//! a terminal.

use amphi_volume::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that starts over with each phase. Gone when dropped, so that only the report stays.
pub struct CheckBar {
    bar: ProgressBar,
    /// The phase that is shown, and whether its size is known.
    shown: Option<(&'static str, bool)>,
}

impl CheckBar {
    /// A bar, which draws nothing where standard error is no terminal.
    pub fn new() -> Self {
        Self::on(ProgressDrawTarget::stderr())
    }

    fn on(target: ProgressDrawTarget) -> Self {
        Self { bar: ProgressBar::with_draw_target(None, target), shown: None }
    }

    /// Shows `progress`.
    pub fn show(&mut self, progress: Progress) {
        // Before the template, so that a new phase does not flash up as a bar of length 0.
        self.bar.set_length(progress.total);
        self.bar.set_position(progress.done);
        let shown = (progress.phase, progress.total != 0);
        if self.shown.replace(shown) != Some(shown) {
            let template = if shown.1 { "{msg:24} [{bar:40}] {pos}/{len} {eta}" } else { "{spinner} {msg}" };
            self.bar
                .set_style(ProgressStyle::with_template(template).expect("the templates are well-formed"));
            self.bar.set_message(progress.phase);
        }
    }
}

impl Drop for CheckBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use indicatif::{InMemoryTerm, TermLike};

    use super::*;

    #[test]
    fn a_terminal_sees_the_phase_and_how_far_it_is_and_then_nothing() {
        let terminal = InMemoryTerm::new(10, 100);
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let mut bar = CheckBar::on(target);
        bar.show(Progress { phase: "loading log and bitmaps", done: 0, total: 0 });
        bar.show(Progress { phase: "inodes and extents", done: 30, total: 120 });
        bar.bar.force_draw();
        let seen = terminal.contents();
        assert!(seen.contains("inodes and extents") && seen.contains("30/120"), "{seen}");
        drop(bar);
        assert_eq!(terminal.contents(), "");
        assert_eq!(terminal.width(), 100);
    }
}
