//! What programs were answered, and what of it counts.
//!
//! What the kernel answers from its caches is true of some moment after the last change of that name or file
//! that had returned. It says nothing of changes that are still being made, whoever has seen them elsewhere:
//! the kernel is told of them, one name after the other, before their callers are. And it may look twice:
//!
//! - at a name, and then at what the name names: only the one or the other is of one moment, and neither
//!   counts while others change names;
//! - for both names of a rename: it may find two that were never there together, and where it finds the same
//!   file it has nothing to do;
//! - at a file's size, which it does not take if it hears meanwhile that attributes of the file have changed;
//!   then it reads up to the size that it knew.
//!
//! A write that begins within a page it may hand over in two parts, that page's and the rest. It appends so,
//! too, where the first part ends at a place that nobody else can tell: programs append by direct I/O there.

use std::fmt;
use std::ops::Range;

use amphi_vfs::RenameMode;

use super::PAGE;
use super::calls::Call;
use super::lines::line;

/// How a program reaches the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// By one of its own, and by the kernel where it may know the answer: what a path leads to.
    Own,
    /// The same with descriptors that the kernel knows: it may know what is in a file, too.
    OwnWithDescriptors,
    /// By the kernel, which may answer from its caches.
    Kernel,
}

impl Door {
    /// Whether a call may go through the kernel.
    pub(super) const fn is_by_kernel(self, call: Call) -> bool {
        match self {
            Self::Kernel => true,
            Self::OwnWithDescriptors => {
                matches!(call, Call::Lookup(_) | Call::GetAttr(_) | Call::Read { .. } | Call::List(_))
            }
            Self::Own => matches!(call, Call::Lookup(_) | Call::List(_)),
        }
    }
}

/// What counts of an answer.
#[derive(Clone, Copy)]
pub(super) enum Judged {
    Whole,
    /// The whole, of a call that may have changed nothing instead.
    WholeOrNoEffect,
    /// The words with these indices.
    Words(&'static [usize]),
    Nothing,
}

/// A call that has returned, or a part of one.
pub(super) struct Event {
    pub program: usize,
    pub by_kernel: bool,
    pub call: Call,
    pub began: u64,
    pub returned: u64,
    pub answer: String,
    /// The bytes of a write that it is; none if it is a whole call.
    pub part: Range<usize>,
    /// Its place among all of its program's.
    pub number: usize,
    pub judged: Judged,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, by_kernel, call, began, returned, answer, judged, part, .. } = self;
        let way = if *by_kernel { " (kernel)" } else { "" };
        write!(f, "program {program}{way}, ns {began} to {returned}: {}: {answer}", line(*call))?;
        if !part.is_empty() {
            write!(f, " (its bytes {part:?})")?;
        }
        match judged {
            Judged::Whole => Ok(()),
            Judged::WholeOrNoEffect => f.write_str(" (which may have had no effect)"),
            Judged::Words(words) => write!(f, " (of which words {words:?} count)"),
            Judged::Nothing => f.write_str(" (which does not count)"),
        }
    }
}

impl Event {
    /// Whether it has changed anything.
    pub(super) fn changes(&self) -> bool {
        use Call::{Fsync, GetAttr, GetXattr, List, Lookup, Read};
        let is_query =
            matches!(self.call, Fsync(_) | GetAttr(_) | GetXattr(_) | List(_) | Lookup(_) | Read { .. });
        !is_query && self.has_succeeded()
    }

    pub(super) fn has_succeeded(&self) -> bool {
        ["done", "wrote"].iter().any(|said| self.answer.starts_with(said))
    }

    /// Whether it has taken effect before another one.
    pub(super) fn is_before(&self, other: &Self) -> bool {
        let is_from_caches = other.by_kernel && !other.changes();
        let is_earlier = if self.program == other.program {
            self.number < other.number
        } else {
            self.returned < other.began
        };
        is_earlier && (!is_from_caches || self.changes() && self.is_about(other))
    }

    /// Whether what it has changed is what another one asks for.
    fn is_about(&self, other: &Self) -> bool {
        let names = other.call.places().into_iter().flatten();
        let is_its_name = names.into_iter().any(|place| self.call.places().contains(&Some(place)));
        is_its_name || other.call.file().is_some() && self.call.file() == other.call.file()
    }

    /// Whether both were under way at some moment.
    fn meets(&self, other: &Self) -> bool {
        self.returned >= other.began && other.returned >= self.began
    }

    /// Whether it may change bytes or attributes of a file.
    fn may_change(&self, file: usize) -> bool {
        let is_query = matches!(self.call, Call::Read { .. } | Call::GetAttr(_) | Call::GetXattr(_));
        let may_be_its_name = matches!(self.call, Call::Rename(..) | Call::Unlink(_));
        may_be_its_name || !is_query && self.call.file() == Some(file)
    }

    /// Whether it has only found something out about a name.
    fn asks_for_a_name(&self) -> bool {
        !self.changes() && self.call.places()[0].is_some()
    }

    /// Whether it has changed names while another program's call was under way.
    fn names_beside(&self, other: &Self) -> bool {
        let has_named = self.changes() && self.call.places().iter().any(Option::is_some);
        has_named && self.program != other.program && self.meets(other)
    }

    /// Whether the kernel may have found the same file under both names of a rename, and done nothing.
    fn may_be_nothing(&self, history: &[Self]) -> bool {
        let Call::Rename(from, to, RenameMode::Replace | RenameMode::Exchange) = self.call else {
            return false;
        };
        let is_at_one = |other: &Self| [from, to].iter().any(|it| other.call.places().contains(&Some(*it)));
        let meets = |other: &Self| other.program != self.program && is_at_one(other) && other.meets(self);
        self.by_kernel && history.iter().any(meets)
    }
}

/// The parts in which a write may be handed over, or an empty one: it is handed over as a whole.
pub(super) fn parts(by_kernel: bool, call: Call) -> [Option<Range<usize>>; 2] {
    const WHOLE: [Option<Range<usize>>; 2] = [Some(0..0), None];
    match call {
        Call::Write { offset, data, append: false, direct: false, .. } if by_kernel => {
            let (first, length) = (PAGE - offset as usize % PAGE, data.length as usize);
            if first == PAGE || first >= length { WHOLE } else { [Some(0..first), Some(first..length)] }
        }
        _ => WHOLE,
    }
}

/// What counts of the answer to one of these calls.
pub(super) fn judged(history: &[Event], at: usize) -> Judged {
    let event = &history[at];
    let has_failed = !event.has_succeeded();
    match (event.by_kernel, event.call) {
        // By a descriptor the library does not link either.
        (_, Call::Link(..)) if has_failed => Judged::Nothing,
        (false, _) => Judged::Whole,
        (true, _) if event.asks_for_a_name() && history.iter().any(|other| other.names_beside(event)) => {
            Judged::Nothing
        }
        // Twice somebody was faster than the kernel with what it was about to make.
        (true, Call::Create(_)) if event.answer == "stale" => Judged::Nothing,
        (true, Call::Rename(..)) if has_failed => Judged::Nothing,
        (true, Call::Rename(..)) if event.may_be_nothing(history) => Judged::WholeOrNoEffect,
        (true, Call::Lookup(_)) => Judged::Words(&[0, 1, 5]),
        (true, Call::GetAttr(_)) => Judged::Words([&[1], &[2], &[3]][at % 3]),
        (true, Call::Read { file, .. }) => {
            let is_changed = history.iter().any(|other| other.may_change(file) && other.meets(event));
            if is_changed { Judged::Nothing } else { Judged::Whole }
        }
        (true, _) => Judged::Whole,
    }
}
