//! What each client refers to, so that it can be let go of when the client is gone.

use std::collections::BTreeMap;

use amphi_rt::sync::{Mutex, Padded};
use amphi_vfs::{FileSystem, Ino};

/// Parts of a client's table: its threads seldom meet in one.
const PARTS: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    lookups: u64,
    opens: u64,
}

/// One client's references.
#[derive(Debug, Default)]
pub(crate) struct Guest {
    parts: [Padded<Mutex<BTreeMap<u64, Count>>>; PARTS],
}

impl Guest {
    fn part(&self, ino: Ino) -> &Mutex<BTreeMap<u64, Count>> {
        &self.parts[ino.0 as usize % PARTS].0
    }

    /// A lookup took a reference.
    pub(crate) fn found(&self, ino: Ino) {
        self.part(ino).lock().entry(ino.0).or_default().lookups += 1;
    }

    /// An open took one.
    pub(crate) fn opened(&self, ino: Ino) {
        self.part(ino).lock().entry(ino.0).or_default().opens += 1;
    }

    /// How many of `count` lookups it has to give back.
    pub(crate) fn forgets(&self, ino: Ino, count: u64) -> u64 {
        self.take(ino, |held| {
            let taken = held.lookups.min(count);
            held.lookups -= taken;
            taken
        })
    }

    /// Whether it has an open to give back.
    pub(crate) fn releases(&self, ino: Ino) -> bool {
        self.take(ino, |held| {
            let taken = held.opens.min(1);
            held.opens -= taken;
            taken
        }) == 1
    }

    fn take(&self, ino: Ino, from: impl FnOnce(&mut Count) -> u64) -> u64 {
        let mut part = self.part(ino).lock();
        let Some(held) = part.get_mut(&ino.0) else { return 0 };
        let taken = from(held);
        if held.lookups == 0 && held.opens == 0 {
            part.remove(&ino.0);
        }
        taken
    }

    /// Lets go of everything.
    pub(crate) fn see_off(&self, fs: &impl FileSystem) {
        for part in &self.parts {
            let held = std::mem::take(&mut *part.lock());
            for (ino, count) in held {
                for _ in 0..count.opens {
                    fs.release(Ino(ino));
                }
                if count.lookups > 0 {
                    fs.forget(Ino(ino), count.lookups);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gives_back_what_he_does_not_have() {
        let guest = Guest::default();
        assert_eq!((guest.forgets(Ino(3), 9), guest.releases(Ino(3))), (0, false));
        guest.found(Ino(3));
        guest.found(Ino(3));
        guest.opened(Ino(3));
        assert_eq!(
            (guest.forgets(Ino(3), 9), guest.releases(Ino(3)), guest.releases(Ino(3))),
            (2, true, false)
        );
        assert!(guest.parts.iter().all(|part| part.lock().is_empty()), "nothing is kept for nothing");
    }
}
