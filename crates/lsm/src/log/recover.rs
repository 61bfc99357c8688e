//! What the log holds after a crash: the slots, the files they name, the complete entries of these.

use amphi_device::MemoryArea;

use super::{Half, Log};
use crate::format::{self, Found, LINE, SLOTS, SLOTS_BYTES, Slot};
use crate::planted::{self, Bug};
use crate::{Error, Result};

/// A scan checks at most this many times the bytes that it looks at: entries that claim to be long and are
/// not complete cannot make it slower than that.
const CHECKED_MAX: u64 = 16;

/// What a recovery found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Complete entries.
    pub entries: u64,
    /// Entries dropped: their marks are there and not all of their content.
    pub torn: u64,
}

impl<D: MemoryArea> Log<D> {
    /// Gives `visit` the content of every complete entry, in no particular order. Nothing is changed.
    ///
    /// # Errors
    /// [`Error::Damaged`] for slots or sealed files that the log cannot have left; the device's; `visit`'s.
    pub fn recover(&self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Recovered> {
        let mut recovered = Recovered::default();
        for (half, slot) in self.slots()? {
            match (slot.active, slot.end) {
                // Its content is of no more use.
                (true, 1..) => {}
                (true, 0) => {
                    let bytes = self.load(SLOTS_BYTES + self.start(half), self.half_bytes as usize)?;
                    scan(self.salt, self.start(half), &bytes, &mut recovered, visit)?;
                }
                (false, end) => {
                    let bytes = (u64::from(end) - self.start(half)) as usize;
                    let bytes = self.load(SLOTS_BYTES + self.start(half), bytes)?;
                    recovered.entries += sealed(self.salt, self.start(half), &bytes, visit)?;
                }
            }
        }
        Ok(recovered)
    }

    /// Zeros what [`recover`](Log::recover) has found, once it is kept elsewhere.
    ///
    /// # Errors
    /// As for [`recover`](Log::recover).
    pub fn reset(&self) -> Result<()> {
        for (half, slot) in self.slots()? {
            let start = self.start(half);
            let bytes = if slot.end == 0 { self.half_bytes } else { u64::from(slot.end) - start };
            self.forget(half, start, bytes)?;
        }
        Ok(())
    }

    /// The slots that count, each inside its half.
    fn slots(&self) -> Result<Vec<(Half, Slot)>> {
        let bytes = self.load(0, SLOTS_BYTES as usize)?;
        let (slots, _) = bytes.as_chunks::<8>();
        let damaged = |what, slot: usize| Error::Damaged { what, at: slot as u64 * 8 };
        let mut valid = Vec::new();
        for (number, slot) in slots.iter().map(|bytes| Slot::decode(*bytes)).enumerate().take(SLOTS) {
            let half = Half::BOTH.get(number);
            match half {
                _ if slot == Slot::decode([0; 8]) => {}
                Some(half) if slot.valid => {
                    let start = self.start(*half);
                    let inside = start..=start + self.half_bytes;
                    let end = u64::from(slot.end);
                    let ended = inside.contains(&end) && (end - start).is_multiple_of(LINE as u64);
                    let open = slot.active && end == 0;
                    if u64::from(slot.start) != start || !(ended || open) {
                        return Err(damaged("the range of a log slot", number));
                    }
                    valid.push((*half, slot));
                }
                _ => return Err(damaged("a log slot that is not used", number)),
            }
        }
        if valid.iter().filter(|(_, slot)| slot.active && slot.end == 0).count() > 1 {
            return Err(damaged("a second active log slot", 1));
        }
        Ok(valid)
    }
}

/// Looks for entries in steps of 64 B: between them there may be some that were not completed.
fn scan(
    salt: u64,
    start: u64,
    bytes: &[u8],
    recovered: &mut Recovered,
    visit: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut at = 0;
    let mut checked = 0;
    while at < bytes.len() {
        match format::decode_entry(salt, start + at as u64, &bytes[at..]) {
            Found::Entry { content, bytes } => {
                recovered.entries += 1;
                visit(content)?;
                at += bytes;
            }
            Found::Torn { checked: now } => {
                checked += now as u64;
                if checked > CHECKED_MAX * bytes.len() as u64 {
                    return Err(Error::Damaged { what: "too many torn log entries", at: start + at as u64 });
                }
                if planted::has(Bug::TornEntryTaken) {
                    visit(&bytes[at + size_of::<format::TxBegin>()..][..now])?;
                }
                recovered.torn += 1;
                at += LINE;
            }
            Found::Nothing if planted::has(Bug::ScanStopsAtGap) => return Ok(()),
            Found::Nothing => at += LINE,
        }
    }
    Ok(())
}

/// The entries of a file that was sealed: one behind the other, all complete. Returns their number.
///
/// # Errors
/// [`Error::Damaged`] at the first that is not.
pub fn sealed(
    salt: u64,
    start: u64,
    bytes: &[u8],
    visit: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    let (mut at, mut entries) = (0, 0);
    while at < bytes.len() {
        let Found::Entry { content, bytes } = format::decode_entry(salt, start + at as u64, &bytes[at..])
        else {
            return Err(Error::Damaged { what: "an entry of a sealed log file", at: start + at as u64 });
        };
        visit(content)?;
        entries += 1;
        at += bytes;
    }
    Ok(entries)
}
