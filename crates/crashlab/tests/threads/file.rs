//! What a file may hold and where it may be, by what its writer has done.

use std::collections::BTreeMap;

use amphi_vfs::Promise;

/// Where a file is: nowhere, or under one of its names, as the so-manyeth that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Nowhere,
    Under(usize, u64),
}

/// Versions that a file may hold: from the last that was synced, or 0 for none, to the last that was begun.
#[derive(Clone, Copy, Debug, Default)]
pub struct Versions {
    pub synced: u64,
    /// The last whose write has returned.
    pub written: u64,
    pub begun: u64,
}

impl Versions {
    /// Takes the oldest that was found for the one that is durable.
    pub fn found(self, words: &[u64]) -> Self {
        let oldest = words.iter().map(|word| word & ((1 << VERSION_BITS) - 1)).min().unwrap_or(0);
        Self { synced: oldest, written: oldest, begun: self.begun }
    }

    /// The first of these words that none of the versions has left, all by `word_of`.
    pub fn wrong(self, words: &[u64], word_of: impl Fn(u64) -> u64) -> Option<usize> {
        let legal = |found: u64| {
            found == 0 && self.synced == 0
                || (self.synced..=self.begun).any(|version| found == word_of(version))
        };
        words.iter().position(|word| !legal(*word))
    }
}

/// A word of a file says who wrote it.
pub const VERSION_BITS: u32 = 32;
pub const MADE_BITS: u32 = 24;

pub fn word(owner: u64, made: u64, version: u64) -> u64 {
    owner << (VERSION_BITS + MADE_BITS) | made << VERSION_BITS | version
}

pub fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

pub fn bytes_of(word: u64, bytes: usize) -> Vec<u8> {
    word.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

/// What a crash may leave of a file.
#[derive(Clone, Debug)]
pub struct File {
    /// What tells its words from those of all others.
    pub owner: u64,
    pub size: usize,
    /// The oldest is durable.
    pub places: Vec<Place>,
    /// Of each that was made.
    pub versions: BTreeMap<u64, Versions>,
    pub made: u64,
    /// It was cut, and not written and synced since: it may have half its bytes, or zeros in the other half.
    pub is_cut: bool,
    /// What readers find: so many bytes of one version. Nobody knows after a crash, until it is written.
    pub holds: Option<(usize, u64)>,
}

impl File {
    pub fn new(owner: u64, size: usize) -> Self {
        Self {
            owner,
            size,
            places: vec![Place::Nowhere],
            versions: BTreeMap::new(),
            made: 0,
            is_cut: false,
            holds: None,
        }
    }

    pub fn now(&self) -> Place {
        *self.places.last().expect("there is one at least")
    }

    /// Where it is now is durable.
    pub fn settle(&mut self) {
        self.places.drain(..self.places.len() - 1);
    }

    /// What it holds now is durable.
    pub fn settle_contents(&mut self) {
        if let Place::Under(_, made) = self.now() {
            let versions = self.versions.entry(made).or_default();
            versions.synced = versions.written;
            self.is_cut = false;
        }
    }

    /// Where it is cut, in bytes.
    pub const fn half(&self) -> usize {
        self.size / 16 * 8
    }

    /// Compares what a reader finds of it, with its writer doing nothing to it and no crash since.
    pub fn judge_reader(&self, found: &[(usize, Vec<u8>)]) -> Result<(), String> {
        let (which, made, bytes) = match (self.now(), found) {
            (Place::Nowhere, []) => return Ok(()),
            (Place::Under(at, made), [(which, bytes)]) if at == *which => (which, made, bytes),
            (now, _) => {
                let names: Vec<_> = found.iter().map(|(which, _)| which).collect();
                return Err(format!("it has the names {names:?} and should be {now:?}"));
            }
        };
        let Some((size, version)) = self.holds else { return Ok(()) };
        let due = if version == 0 { 0 } else { word(self.owner, made, version) };
        if bytes.len() != size {
            return Err(format!("it has {} bytes of {size} under name {which}", bytes.len()));
        }
        let words = words_of(bytes);
        let wrong = words.iter().position(|word| *word != due);
        wrong.map_or(Ok(()), |at| Err(format!("its word {at} is {:#x} and should be {due:#x}", words[at])))
    }

    /// Compares what is found of it, and takes that for what it is from now on.
    pub fn judge(&mut self, found: &[(usize, Vec<u8>)], promise: Promise) -> Result<(), String> {
        self.holds = None;
        let [(which, bytes)] = found else {
            if found.len() > 1 {
                return Err("it has several names".to_owned());
            }
            if !self.places.contains(&Place::Nowhere) {
                return Err("it is missing".to_owned());
            }
            (self.places, self.versions) = (vec![Place::Nowhere], BTreeMap::new());
            self.is_cut = false;
            return Ok(());
        };
        let mut words = words_of(bytes);
        if self.is_cut {
            // Of a size and what is behind it one may come without the other.
            let rest = words.split_off(words.len().min(self.half() / 8));
            let is_whole = promise.atomic_writes && rest.iter().any(|word| *word != 0);
            words.extend(rest.into_iter().filter(|word| is_whole || *word != 0));
        }
        let made_of = |word: u64| word >> VERSION_BITS & ((1 << MADE_BITS) - 1);
        let told = words.iter().find(|word| **word != 0).map(|word| made_of(*word));
        // Of one that holds nothing, it may be the one of which least is promised.
        let promised = |made: &u64| self.versions.get(made).map_or(0, |versions| versions.synced);
        let fits = |place: &Place| match place {
            Place::Under(at, made) => (at == which && told.is_none_or(|told| told == *made)).then_some(*made),
            Place::Nowhere => None,
        };
        let made = self.places.iter().filter_map(fits).min_by_key(promised);
        let Some(made) = made else { return Err(format!("it is number {told:?} under name {which}")) };
        let versions = self.versions.get(&made).copied().unwrap_or_default();
        if let Some(at) = versions.wrong(&words, |version| word(self.owner, made, version)) {
            return Err(format!("its word {at} is {:#x}", words[at]));
        }
        let least = if self.is_cut { self.half() } else { self.size };
        if bytes.len() > self.size || versions.synced > 0 && bytes.len() < least {
            return Err(format!("it has {} bytes", bytes.len()));
        }
        if promise.atomic_writes && words.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err("it holds parts of two writes".to_owned());
        }
        self.is_cut &= words.len() < self.size / 8;
        let whole = if bytes.len() >= least { &words[..] } else { &[] };
        self.versions = BTreeMap::from([(made, versions.found(whole))]);
        self.places = vec![Place::Under(*which, made)];
        Ok(())
    }
}
