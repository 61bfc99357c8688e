//! Threads that write, store and trim on a device that is nearly full, and whose power goes. What they meet
//! differs from run to run.

use std::sync::Arc;

use amphi_device::{BlockPort, BytePortExt, Error, Lpa, Structure, WriteLog};
use amphi_rt::random::Generator;
use amphi_ssd::{BlockDurabilityName, Firmware, Profile, Ssd};

const TAG: Structure = Structure::Data;
const WRITERS: u64 = 3;
const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;
const LINE: usize = 64;

/// 2048 pages of flash for the host in blocks of 16, few frames and a short log.
fn profile(firmware: Firmware) -> Profile {
    let mut profile = crate::pressure::profile("free");
    (profile.firmware.kind, profile.firmware.memory_bytes) = (firmware, 64 << 10);
    profile
}

/// Has each thread do `body` with its number and what it has.
fn threads<T: Send + 'static>(
    ssd: Ssd,
    all: Vec<T>,
    body: impl Fn(&Ssd, u64, &mut T) + Send + Sync + Copy + 'static,
) -> (Ssd, Vec<T>) {
    let ssd = Arc::new(ssd);
    let writers: Vec<_> = (0..)
        .zip(all)
        .map(|(writer, mut own)| {
            let ssd = Arc::clone(&ssd);
            amphi_rt::task::spawn("writer", move || {
                body(&ssd, writer, &mut own);
                own
            })
        })
        .collect();
    let all = writers.into_iter().map(amphi_rt::task::JoinHandle::join).collect();
    (Arc::into_inner(ssd).expect("nobody writes any more"), all)
}

fn power_up(ssd: Ssd, seed: u64) -> Ssd {
    ssd.power_cut(seed);
    let ssd = ssd.restart().expect("whole");
    // A page cache has no transactions.
    assert!(matches!(ssd.recover(), Ok(_) | Err(Error::Unsupported(_))));
    ssd
}

fn cycled(value: u64, bytes: usize) -> Vec<u8> {
    value.to_le_bytes().into_iter().cycle().take(bytes).collect()
}

/// What each word of a writer's pages may hold: what was acknowledged last, and what was on its way.
#[derive(Clone)]
struct Own {
    words: Vec<u64>,
    on_its_way: Vec<Option<u64>>,
}

impl Own {
    const PAGES: u64 = 600;

    fn new() -> Self {
        let words = Self::PAGES as usize * WORDS;
        Self { words: vec![0; words], on_its_way: vec![None; words] }
    }

    /// Trims pages, stores lines and pages, writes pages until the power goes.
    fn work(&mut self, ssd: &Ssd, writer: u64, round: u64) {
        let mut dice = Generator::new(round * WRITERS + writer);
        for number in 0..4000_u64 {
            let page = dice.below(Self::PAGES);
            let at = Lpa(page * WRITERS + writer);
            let value = (round << 32) + number + 1;
            let mut part = (0, PAGE);
            let (outcome, value) = match dice.below(8) {
                0 => (ssd.trim(at, 1), 0),
                1..=3 => {
                    part = (dice.below((PAGE / LINE) as u64) as usize * LINE, LINE);
                    (ssd.persist(at.byte(part.0), &cycled(value, LINE), None, TAG), value)
                }
                4 => (ssd.persist(at.byte(0), &cycled(value, PAGE), None, TAG), value),
                _ => (ssd.write(at, &cycled(value, PAGE), TAG), value),
            };
            let first = page as usize * WORDS + part.0 / 8;
            let words = first..first + part.1 / 8;
            match outcome {
                Ok(()) => self.words[words].fill(value),
                Err(Error::PowerLost) => return self.on_its_way[words].fill(Some(value)),
                Err(cause) => panic!("{cause}"),
            }
        }
    }

    fn judge(&mut self, ssd: &Ssd, writer: u64, round: u64) {
        let mut bytes = [0; PAGE];
        for page in 0..Self::PAGES {
            ssd.read(Lpa(page * WRITERS + writer), &mut bytes, TAG).expect("reads");
            for (found, word) in bytes.as_chunks().0.iter().zip(page as usize * WORDS..) {
                let found = u64::from_le_bytes(*found);
                let (last, next) = (self.words[word], self.on_its_way[word].take());
                assert!(
                    found == last || Some(found) == next,
                    "round {round}: word {word} of writer {writer} is {found:#x}; {last:#x} was acknowledged, \
                     {next:x?} on its way"
                );
                self.words[word] = found;
            }
        }
    }
}

fn what_was_acknowledged_is_there(firmware: Firmware) {
    let mut ssd = Ssd::in_memory(&profile(firmware), 8 << 20);
    let mut all = vec![Own::new(); WRITERS as usize];
    let mut dice = Generator::new(77);
    for round in 1..=30 {
        ssd.cut_after_steps(dice.below(30_000), round);
        (ssd, all) = threads(ssd, all, move |ssd, writer, own: &mut Own| own.work(ssd, writer, round));
        ssd = power_up(ssd, round);
        for (writer, own) in (0..).zip(&mut all) {
            own.judge(&ssd, writer, round);
        }
    }
}

#[test]
fn what_was_acknowledged_is_there_with_a_log() {
    what_was_acknowledged_is_there(Firmware::Log);
}

#[test]
fn what_was_acknowledged_is_there_with_a_page_cache() {
    what_was_acknowledged_is_there(Firmware::PageCache);
}

/// Writes to a volatile buffer while blocks are emptied: collection once erased the block of a page that was
/// replaced meanwhile, and a power cut that took the write back found what was there long before.
#[test]
fn a_write_that_a_cut_takes_back_uncovers_nothing_older_than_the_last_flush() {
    const PAGES: u64 = 1800;
    let mut profile = profile(Firmware::Log);
    profile.persistence.block_durability = BlockDurabilityName::Flush;
    profile.flash.write_buffer_pages = 256;
    let mut ssd = Ssd::in_memory(&profile, 8 << 20);
    let sectors = |ssd: &Ssd, page: usize| -> Vec<u64> {
        let mut bytes = [0; PAGE];
        ssd.read(Lpa(page as u64), &mut bytes, TAG).expect("reads");
        let sectors = bytes.chunks_exact(512);
        sectors.map(|sector| u64::from_le_bytes(*sector.first_chunk().expect("it is longer"))).collect()
    };
    // Of each page: the numbers of the writes that its sectors are from.
    let mut flushed = vec![vec![0; PAGE / 512]; PAGES as usize];
    for round in 1..=40_u64 {
        let write = move |ssd: &Ssd, writer: u64, (): &mut ()| {
            let mut dice = Generator::new(round * WRITERS + writer);
            for number in 0..if round == 1 { PAGES / WRITERS } else { 1500 } {
                let own = if round == 1 { number } else { dice.below(PAGES / WRITERS) };
                let page = cycled((round << 32) + number + 1, PAGE);
                ssd.write(Lpa(own * WRITERS + writer), &page, TAG).expect("room");
            }
        };
        (ssd, _) = threads(ssd, vec![(); WRITERS as usize], write);
        if round % 4 == 1 {
            ssd.flush().expect("flushes");
            flushed = (0..PAGES as usize).map(|page| sectors(&ssd, page)).collect();
        } else {
            ssd = power_up(ssd, round);
        }
        for (page, flushed) in flushed.iter().enumerate() {
            let found = sectors(&ssd, page);
            let newer = found.iter().zip(flushed).all(|(found, flushed)| found >= flushed);
            assert!(newer, "round {round}: page {page} has {found:x?}, and {flushed:x?} was flushed");
        }
    }
}
