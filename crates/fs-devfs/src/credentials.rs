//! The credential table (§4.5): who sends commands. Only the host's operating system changes it; a program's
//! commands carry a number that its operating system gave to the program's command buffer, not the program.
//!
//! An entry's number says its place and how often the place was used, so a number that was taken back names
//! nobody, also after its place has another holder.

use std::sync::Arc;

use amphi_rt::sync::RwLock;
use amphi_vfs::Cred;

use crate::memory::{DeviceMemory, Kind};

/// Entries that fit.
const ENTRIES_MAX: usize = 4096;

/// The number of an entry. Never 0, which means "whoever the buffer belongs to".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CredentialId(pub(crate) u64);

impl CredentialId {
    /// As a command has it.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

#[derive(Debug, Default)]
struct Entry {
    /// How often the place was used.
    uses: u32,
    /// How often its credentials were changed: by this a lane knows that its copy is old.
    version: u64,
    cred: Option<Arc<Cred>>,
}

#[derive(Debug, Default)]
struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
    versions: u64,
}

/// The table.
#[derive(Debug)]
pub struct Credentials {
    table: RwLock<Table>,
    memory: Arc<DeviceMemory>,
}

impl Credentials {
    pub(crate) fn new(memory: &Arc<DeviceMemory>) -> Self {
        Self { table: RwLock::default(), memory: Arc::clone(memory) }
    }

    /// An entry for `cred`, or none if the table is full.
    #[must_use]
    pub fn grant(&self, cred: Cred) -> Option<CredentialId> {
        let mut table = self.table.write();
        let place = match table.free.pop() {
            Some(place) => place as usize,
            None if table.entries.len() == ENTRIES_MAX => return None,
            None => {
                table.entries.push(Entry::default());
                table.entries.len() - 1
            }
        };
        table.versions += 1;
        let version = table.versions;
        let entry = &mut table.entries[place];
        self.memory.take(Kind::Credentials, 1, bytes_of(&cred));
        *entry = Entry { uses: entry.uses.wrapping_add(1), version, cred: Some(Arc::new(cred)) };
        Some(CredentialId(u64::from(entry.uses) << 32 | (place as u64 + 1)))
    }

    /// Another process runs where `id` was given, or its user has changed. False if there is no such entry.
    #[must_use]
    pub fn change(&self, id: CredentialId, cred: Cred) -> bool {
        let mut table = self.table.write();
        table.versions += 1;
        let version = table.versions;
        let Some(entry) = table.find(id.0) else { return false };
        self.memory.take(Kind::Credentials, 1, bytes_of(&cred));
        if let Some(before) = entry.cred.replace(Arc::new(cred)) {
            self.memory.give(Kind::Credentials, 1, bytes_of(&before));
        }
        entry.version = version;
        true
    }

    /// Takes an entry back: the next command that carries it is refused. False if there is no such entry.
    #[must_use]
    pub fn revoke(&self, id: CredentialId) -> bool {
        let mut table = self.table.write();
        let Some(cred) = table.find(id.0).and_then(|entry| entry.cred.take()) else { return false };
        self.memory.give(Kind::Credentials, 1, bytes_of(&cred));
        table.free.push(id.0 as u32 - 1);
        true
    }

    /// Who `id` is and of which version that is.
    pub(crate) fn get(&self, id: u64) -> Option<(u64, Arc<Cred>)> {
        let table = self.table.read();
        let entry = table.entries.get(place(id)?).filter(|entry| entry.uses == (id >> 32) as u32)?;
        Some((entry.version, entry.cred.clone()?))
    }
}

impl Table {
    fn find(&mut self, id: u64) -> Option<&mut Entry> {
        let uses = (id >> 32) as u32;
        self.entries.get_mut(place(id)?).filter(|entry| entry.uses == uses && entry.cred.is_some())
    }
}

/// The place that a number says.
fn place(id: u64) -> Option<usize> {
    (id as u32).checked_sub(1).map(|place| place as usize)
}

fn bytes_of(cred: &Cred) -> u64 {
    (size_of::<Entry>() + size_of::<Cred>() + size_of_val(&*cred.groups)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Credentials {
        Credentials::new(&Arc::new(DeviceMemory::new(u64::MAX, 1)))
    }

    fn user(uid: u32) -> Cred {
        Cred { uid, ..Cred::ROOT }
    }

    #[test]
    fn a_number_that_was_taken_back_names_nobody_ever_after() {
        let table = table();
        let first = table.grant(user(1)).unwrap();
        assert_eq!(table.get(first.0).unwrap().1.uid, 1);
        assert!(table.revoke(first) && !table.revoke(first) && !table.change(first, user(1)));
        let second = table.grant(user(2)).unwrap();
        assert_eq!(place(first.0), place(second.0), "the place is used again");
        assert!(table.get(first.0).is_none());
        assert_eq!(table.get(second.0).unwrap().1.uid, 2);
        assert!([0, 1, u64::MAX, 5 << 32 | 77].iter().all(|number| table.get(*number).is_none()));
    }

    #[test]
    fn a_change_is_a_new_version_and_the_table_has_an_end() {
        let table = table();
        let id = table.grant(user(1)).unwrap();
        let (before, _) = table.get(id.0).unwrap();
        assert!(table.change(id, user(7)));
        let (after, cred) = table.get(id.0).unwrap();
        assert_eq!((cred.uid, after > before), (7, true));
        let all: Vec<_> = (1..ENTRIES_MAX).map(|_| table.grant(user(2)).unwrap()).collect();
        assert!(table.grant(user(3)).is_none());
        assert!(table.revoke(all[7]));
        assert!(table.grant(user(3)).is_some());
        assert!(all.into_iter().chain([id]).filter(|id| table.revoke(*id)).count() == ENTRIES_MAX - 1);
    }

    #[test]
    fn entries_are_device_memory() {
        let memory = Arc::new(DeviceMemory::new(u64::MAX, 1));
        let table = Credentials::new(&memory);
        let id = table.grant(user(1)).unwrap();
        assert!(memory.used() > 0);
        assert!(table.change(id, user(2)) && table.revoke(id));
        assert_eq!(memory.used(), 0);
    }
}
