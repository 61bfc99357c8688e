//! What a recorder knows: the names of all files, from which it tells the path of each.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use amphi_vfs::Ino;
use hashbrown::HashMap;

use crate::operation::Operation;

/// Takes a line of the trace.
pub type Sink = Box<dyn FnMut(&str) + Send>;

/// Knows the names and writes.
pub(crate) struct Scribe {
    pub(crate) names: Names,
    pub(crate) sink: Sink,
}

/// Every name, from both sides: a mount may have a million files, and each operation asks for a path.
#[derive(Default)]
pub(crate) struct Names {
    named: HashMap<(Ino, Vec<u8>), Ino>,
    /// The names of each file, in order.
    of: HashMap<Ino, BTreeSet<(Ino, Vec<u8>)>>,
}

impl Names {
    pub(crate) fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    pub(crate) fn get(&self, place: &(Ino, Vec<u8>)) -> Option<Ino> {
        self.named.get(place).copied()
    }

    /// Of several names any will do; the first in order, so that the same is taken each time.
    fn first_of(&self, ino: Ino) -> Option<&(Ino, Vec<u8>)> {
        self.of.get(&ino)?.first()
    }

    pub(crate) fn insert(&mut self, place: (Ino, Vec<u8>), ino: Ino) {
        self.remove(&place);
        self.of.entry(ino).or_default().insert(place.clone());
        self.named.insert(place, ino);
    }

    pub(crate) fn remove(&mut self, place: &(Ino, Vec<u8>)) {
        let Some(ino) = self.named.remove(place) else { return };
        if let Some(places) = self.of.get_mut(&ino) {
            places.remove(place);
            if places.is_empty() {
                self.of.remove(&ino);
            }
        }
    }
}

/// A name as a trace can have it: what is not a visible ASCII character becomes `%` and its number.
pub(crate) fn plain(name: &[u8]) -> String {
    let mut text = String::new();
    for byte in name {
        if byte.is_ascii_graphic() {
            text.push(char::from(*byte));
        } else {
            let _infallible = write!(text, "%{byte:02x}");
        }
    }
    text
}

impl Scribe {
    pub(crate) fn path(&self, ino: Ino) -> Option<String> {
        if ino == Ino::ROOT {
            return Some(".".to_owned());
        }
        let (dir, name) = self.names.first_of(ino)?;
        self.path_in(*dir, name)
    }

    pub(crate) fn path_in(&self, dir: Ino, name: &[u8]) -> Option<String> {
        let parent = self.path(dir)?;
        Some(if parent == "." { plain(name) } else { format!("{parent}/{}", plain(name)) })
    }

    pub(crate) fn note(&mut self, operation: &Operation) {
        (self.sink)(&operation.to_string());
    }

    /// Notes an operation on a file, unless it has no name any more and will never have one again that
    /// matters.
    pub(crate) fn on(&mut self, ino: Ino, operation: impl FnOnce(String) -> Operation) {
        if let Some(path) = self.path(ino) {
            self.note(&operation(path));
        }
    }

    /// Notes an operation that has given a file a name.
    pub(crate) fn named(
        &mut self,
        dir: Ino,
        name: &[u8],
        ino: Ino,
        operation: impl FnOnce(String) -> Operation,
    ) {
        if let Some(path) = self.path_in(dir, name) {
            self.note(&operation(path));
        }
        self.names.insert((dir, name.to_vec()), ino);
    }

    /// Notes an operation that has taken a name away.
    pub(crate) fn unnamed(&mut self, dir: Ino, name: &[u8], operation: impl FnOnce(String) -> Operation) {
        if let Some(path) = self.path_in(dir, name) {
            self.note(&operation(path));
        }
        self.names.remove(&(dir, name.to_vec()));
    }
}
