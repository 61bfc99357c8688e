//! The entries of one directory, with cookies that stay valid while the directory changes.

use std::collections::BTreeMap;

use amphi_vfs::Ino;

/// Cookies 1 and 2 follow `.` and `..`.
const FIRST_COOKIE: u64 = 3;

/// A directory's parent and its names. A name keeps its cookie as long as it exists, whatever it comes to
/// name.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) parent: Ino,
    by_name: BTreeMap<Vec<u8>, (Ino, u64)>,
    by_cookie: BTreeMap<u64, Vec<u8>>,
    next_cookie: u64,
}

impl Names {
    pub(crate) const fn new(parent: Ino) -> Self {
        Self { parent, by_name: BTreeMap::new(), by_cookie: BTreeMap::new(), next_cookie: FIRST_COOKIE }
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<Ino> {
        self.by_name.get(name).map(|&(ino, _)| ino)
    }

    /// Makes `name` name `ino`; a name that exists is redirected in place.
    pub(crate) fn set(&mut self, name: &[u8], ino: Ino) {
        if let Some(entry) = self.by_name.get_mut(name) {
            entry.0 = ino;
            return;
        }
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.by_name.insert(name.to_vec(), (ino, cookie));
        self.by_cookie.insert(cookie, name.to_vec());
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        if let Some((_, cookie)) = self.by_name.remove(name) {
            self.by_cookie.remove(&cookie);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Names whose cookie is above `cookie`, in the order of their cookies.
    pub(crate) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], Ino)> {
        self.by_cookie
            .range(cookie.saturating_add(1)..)
            .map(|(&cookie, name)| (cookie, name.as_slice(), self.by_name[name].0))
    }
}
