//! Real threads that write, store and trim on a nearly full device while its power goes: what was
//! acknowledged is there.

use std::sync::Arc;

use amphi_device::{BlockPort, BytePortExt, Error, Lpa, Structure, WriteLog};
use amphi_ssd::{Firmware, Profile, Ssd};

const TAG: Structure = Structure::Data;
const WORDS: usize = 512;

fn random(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % bound
}

/// What each word of a writer's pages may hold: the last that was acknowledged, and what was on its way.
struct Own {
    words: Vec<u64>,
    on_its_way: Vec<Option<u64>>,
}

const PAGES: u64 = 600;
const WRITERS: u64 = 3;

fn work(ssd: &Ssd, writer: u64, round: u64, own: &mut Own) {
    let mut state = round * WRITERS + writer;
    for number in 0..4000_u64 {
        let page = random(&mut state, PAGES);
        let at = Lpa(page * WRITERS + writer);
        let value = round << 32 | number + 1;
        let kind = random(&mut state, 8);
        let (first, count, value) = match kind {
            0 => (0, WORDS, 0),
            1..=3 => (random(&mut state, 64) as usize * 8, 8, value),
            4 => (0, WORDS, value),
            _ => (0, WORDS, value),
        };
        let slots = page as usize * WORDS + first..page as usize * WORDS + first + count;
        let bytes: Vec<u8> = value.to_le_bytes().into_iter().cycle().take(count * 8).collect();
        let outcome = if value == 0 {
            ssd.trim(at, 1)
        } else if count < WORDS || kind == 4 {
            ssd.persist(at.byte(first * 8), &bytes, None, TAG)
        } else {
            ssd.write(at, &bytes, TAG)
        };
        match outcome {
            Ok(()) => own.words[slots].fill(value),
            Err(Error::PowerLost) => return own.on_its_way[slots].fill(Some(value)),
            Err(cause) => panic!("{cause}"),
        }
    }
}

fn cuts(firmware: Firmware, rounds: u64) {
    let mut profile = Profile::named("free").expect("built in");
    profile.flash.channels = 2;
    profile.flash.ways = 2;
    profile.flash.pages_per_block = 16;
    profile.log.region_bytes = 128 << 10;
    profile.log.txlog_bytes = 4096;
    profile.log.partition_bytes = 1 << 20;
    (profile.firmware.kind, profile.firmware.memory_bytes) = (firmware, 64 << 10);
    let mut ssd = Ssd::in_memory(&profile, 8 << 20);
    let empty =
        || Own { words: vec![0; PAGES as usize * WORDS], on_its_way: vec![None; PAGES as usize * WORDS] };
    let mut all: Vec<Own> = (0..WRITERS).map(|_| empty()).collect();
    let mut state = 77;
    for round in 1..=rounds {
        let steps = random(&mut state, 30_000);
        ssd.cut_after_steps(steps, round);
        let shared = Arc::new(ssd);
        let writers: Vec<_> = (0..)
            .zip(all)
            .map(|(writer, mut own)| {
                let ssd = Arc::clone(&shared);
                amphi_rt::task::spawn("writer", move || {
                    work(&ssd, writer, round, &mut own);
                    own
                })
            })
            .collect();
        all = writers.into_iter().map(amphi_rt::task::JoinHandle::join).collect();
        ssd = Arc::into_inner(shared).expect("nobody writes any more");
        ssd.power_cut(round);
        ssd = ssd.restart().expect("whole");
        if firmware == Firmware::Log {
            ssd.recover().expect("recovers");
        }
        for (writer, own) in (0..).zip(&mut all) {
            let mut bytes = [0; 4096];
            for page in 0..PAGES {
                ssd.read(Lpa(page * WRITERS + writer), &mut bytes, TAG).expect("reads");
                for (word, found) in bytes.as_chunks().0.iter().enumerate() {
                    let (slot, found) = (page as usize * WORDS + word, u64::from_le_bytes(*found));
                    let (last, next) = (own.words[slot], own.on_its_way[slot].take());
                    assert!(
                        found == last || Some(found) == next,
                        "round {round}: word {word} of page {page} of writer {writer} is {found:#x}; {last:#x} was \
                         acknowledged, {next:x?} on its way"
                    );
                    own.words[slot] = found;
                }
            }
        }
    }
}

#[test]
fn log() {
    cuts(Firmware::Log, 30);
}

#[test]
fn page_cache() {
    cuts(Firmware::PageCache, 200);
}
