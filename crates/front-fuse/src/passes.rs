//! Names under which the kernel finds an inode once.
//!
//! A program may have a file open that the kernel does not know: it made and opened it through the queue.
//! When it needs a descriptor of the kernel's after all, and the file has lost its name meanwhile, the queue
//! gives it a pass, a number that nobody can guess. The kernel then looks a name with that number up in the
//! root directory. The name may not be remembered, so the last close of the descriptor takes it away, and the
//! inode is forgotten as if it had never had it.

use std::collections::VecDeque;

use amphi_queue::format::PASS_PREFIX;
use amphi_rt::sync::Mutex;
use amphi_vfs::Ino;

/// Passes that were given and not used. The oldest makes room for a new one: who asks uses it at once.
const PASSES_MAX: usize = 1024;

/// What was given.
#[derive(Debug, Default)]
pub(crate) struct Passes(Mutex<VecDeque<(u128, Ino)>>);

impl Passes {
    /// A new one for `ino`.
    pub(crate) fn give(&self, ino: Ino) -> u128 {
        let pass = u128::from(amphi_rt::random::u64()) << 64 | u128::from(amphi_rt::random::u64());
        let mut given = self.0.lock();
        if given.len() == PASSES_MAX {
            given.pop_front();
        }
        given.push_back((pass, ino));
        pass
    }

    /// The inode of a name in `dir` that is a pass, which ends with this. None for every other name.
    pub(crate) fn take(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        let digits = name.strip_prefix(PASS_PREFIX.as_bytes()).filter(|digits| digits.len() == 32)?;
        if dir != Ino::ROOT {
            return None;
        }
        let pass = u128::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        let mut given = self.0.lock();
        let at = given.iter().position(|(known, _)| *known == pass)?;
        given.remove(at).map(|(_, ino)| ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_names_its_inode_once_and_only_in_the_root() {
        let passes = Passes::default();
        let pass = passes.give(Ino(7));
        let name = format!("{PASS_PREFIX}{pass:032x}");
        assert_eq!(passes.take(Ino(2), name.as_bytes()), None, "another directory");
        assert_eq!(passes.take(Ino::ROOT, &name.as_bytes()[..name.len() - 1]), None, "a part of it");
        assert_eq!(passes.take(Ino::ROOT, name.as_bytes()), Some(Ino(7)));
        assert_eq!(passes.take(Ino::ROOT, name.as_bytes()), None, "a second time");
        let first = passes.give(Ino(1));
        for ino in 0..PASSES_MAX as u64 {
            passes.give(Ino(ino));
        }
        assert_eq!(
            passes.take(Ino::ROOT, format!("{PASS_PREFIX}{first:032x}").as_bytes()),
            None,
            "the oldest"
        );
    }
}
