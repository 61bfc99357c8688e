//! Who reads in order has more read ahead each time.

/// The first window of a sequential reader, in pages, as the kernel has it.
const FIRST_WINDOW: u64 = 4;

/// What was read ahead of one file.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadAhead {
    /// First page not read ahead yet.
    end: u64,
    /// Pages of the last window.
    window: u64,
}

impl ReadAhead {
    /// The last page to read when a read of `first ..= last` finds pages missing: twice as far ahead as the
    /// last time if it goes on where that ended, `limit` pages at the most.
    pub fn last(&mut self, first: u64, last: u64, limit: u64) -> u64 {
        let sequential = first == 0 || first == self.end;
        self.window = if sequential { (self.window * 2).clamp(FIRST_WINDOW.min(limit), limit) } else { 0 };
        let end = last.max(first.saturating_add(self.window.saturating_sub(1)));
        self.end = end.saturating_add(1);
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_doubles_while_reads_are_in_order() {
        let mut ahead = ReadAhead::default();
        assert_eq!(ahead.last(0, 0, 32), 3);
        assert_eq!(ahead.last(4, 4, 32), 11);
        assert_eq!(ahead.last(12, 12, 32), 27);
        assert_eq!(ahead.last(28, 28, 32), 59);
        assert_eq!(ahead.last(60, 60, 32), 91, "and is limited");
        assert_eq!(ahead.last(7, 9, 32), 9, "elsewhere nothing is read ahead");
        assert_eq!(ahead.last(10, 10, 0), 10, "nor without a limit above zero");
    }
}
