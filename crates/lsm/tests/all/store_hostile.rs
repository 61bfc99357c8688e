//! Bytes that no store wrote: opening and using such a store ends in an answer or a typed error, never in a
//! panic.
//!
//! Checksums are made right again after each change, so that what they guard is reached.

use std::sync::Arc;

use amphi_device::{BlockPort, BytePort, BytePortExt, Lpa, Structure};
use amphi_lsm::{Error, Store};
use amphi_rt::Sim;
use amphi_ssd::Ssd;
use proptest::prelude::*;

use crate::rig::{self, OPTIONS, SMALL_LOG};

const PAGE: usize = 4096;

/// Where a change is made.
#[derive(Clone, Copy, Debug)]
enum Target {
    Superblock,
    Manifest,
    Footer,
    Index,
    Filter,
    Block,
    Backing,
    Slots,
    Entry,
}

/// Bytes put over those at an offset of a structure.
type Change = (Target, usize, Vec<u8>);

fn change() -> impl Strategy<Value = Change> {
    use Target::*;
    let target =
        prop::sample::select(vec![Superblock, Manifest, Footer, Index, Filter, Block, Backing, Slots, Entry]);
    let number = prop_oneof![
        any::<[u8; 4]>().prop_map(|bytes| bytes.to_vec()),
        prop::sample::select(vec![0, 1, 2, 7, 64, 4096, 0x7fff_ffff, 0x8000_0000, u32::MAX])
            .prop_map(|number: u32| number.to_le_bytes().to_vec()),
        any::<u8>().prop_map(|byte| vec![byte]),
    ];
    (target, (0..32usize).prop_map(|field| field * 4), number)
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    let at = at.min(bytes.len() - new.len());
    bytes[at..at + new.len()].copy_from_slice(new);
}

fn put_crc(bytes: &mut [u8], at: usize, crc: u32) {
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// A run of bytes.
type Part = std::ops::Range<usize>;

/// The device's pages of a store, as a whole, and what was where in them before anything was changed.
#[derive(Clone)]
struct Image {
    pages: Vec<u8>,
    log: Vec<u8>,
    manifests: Part,
    manifest: Part,
    backing: Part,
    /// The first table's number and pages.
    number: u64,
    table: Part,
    index: Part,
    filter: Part,
    /// The content of the first entry of the log.
    entry: Part,
}

impl Image {
    /// A store with tables, files in the backing, and entries in the log that no table has.
    fn made() -> Self {
        let (device, store) = rig::store("free", &SMALL_LOG, rig::options(&SMALL_LOG));
        for number in 0..900u32 {
            store.put(&(number % 300).to_le_bytes(), &[number as u8; 80]).expect("writes");
            if number == 300 || number == 600 {
                store.flush().expect("flushes");
                store.settle().expect("settles");
            }
        }
        drop(store);
        let mut pages = vec![0; SMALL_LOG.pages as usize * PAGE];
        device.read(SMALL_LOG.first, &mut pages, Structure::Other).expect("reads");
        let mut log = vec![0; SMALL_LOG.log_bytes as usize];
        device.load(SMALL_LOG.log_at, &mut log, Structure::Other).expect("loads");
        Self::of(pages, log)
    }

    fn of(pages: Vec<u8>, log: Vec<u8>) -> Self {
        let manifest_bytes = u32_at(&pages, 40) * PAGE;
        let places = [0, 1].map(|which| PAGE + which * manifest_bytes);
        let manifest = places.into_iter().max_by_key(|at| u64_at(&pages, at + 24)).expect("two");
        let backing = PAGE + 2 * manifest_bytes;
        let record = manifest + 56;
        let area = backing + u32_at(&pages, 44) * u32_at(&pages, 48) * PAGE;
        let table = area + u64_at(&pages, record + 8) as usize * PAGE;
        let end = table + u32_at(&pages, record + 16) * PAGE;
        let part = |field: usize| {
            let from = table + u32_at(&pages, end - PAGE + field) * PAGE;
            from..from + u32_at(&pages, end - PAGE + field + 4)
        };
        let entry = [PAGE, PAGE + 8192].into_iter().find(|at| log[*at..].starts_with(b"TxB1"));
        let entry = entry.expect("the log has entries") + 8;
        Self {
            manifests: PAGE..backing,
            manifest: manifest..manifest + manifest_bytes,
            backing: backing..backing + PAGE,
            number: u64_at(&pages, record),
            table: table..end,
            index: part(32),
            filter: part(44),
            entry: entry..entry + u32_at(&log, entry - 4),
            pages,
            log,
        }
    }

    fn device(&self) -> Arc<Ssd> {
        let device = rig::device("free");
        device.write(SMALL_LOG.first, &self.pages, Structure::Other).expect("writes");
        for (number, page) in self.log.chunks(PAGE).enumerate() {
            let at = SMALL_LOG.log_at + (number * PAGE) as u64;
            device.persist(at, page, None, Structure::Other).expect("stores");
        }
        Arc::new(device)
    }

    fn footer(&mut self) -> &mut [u8] {
        &mut self.pages[self.table.end - PAGE..self.table.end]
    }

    fn seal_footer(&mut self) {
        let crc = crc32c::crc32c(&self.footer()[..60]);
        put_crc(self.footer(), 60, crc);
    }

    fn change_part(&mut self, part: Part, field: usize, at: usize, new: &[u8]) {
        put(&mut self.pages[part.clone()], at, new);
        let crc = crc32c::crc32c(&self.pages[part]);
        put_crc(self.footer(), field, crc);
        self.seal_footer();
    }

    fn apply(&mut self, (target, at, new): &Change) {
        match target {
            Target::Superblock => {
                put(&mut self.pages[..68], *at, new);
                let crc = crc32c::crc32c(&self.pages[..68]);
                put_crc(&mut self.pages, 68, crc);
            }
            Target::Manifest => {
                let manifest = &mut self.pages[self.manifest.clone()];
                put(&mut manifest[..52 + 128], *at, new);
                let tables = (u32_at(manifest, 12) * 24).min(manifest.len() - 56);
                let crc = crc32c::crc32c(&manifest[..52]);
                let crc = crc32c::crc32c_append(crc, &manifest[56..56 + tables]);
                put_crc(manifest, 52, crc);
            }
            Target::Footer => {
                put(&mut self.footer()[..60], *at, new);
                self.seal_footer();
            }
            Target::Index => self.change_part(self.index.clone(), 40, *at, new),
            Target::Filter => self.change_part(self.filter.clone(), 52, *at, new),
            Target::Block => {
                let number = self.number.to_le_bytes();
                let block = &mut self.pages[self.table.start..self.table.start + PAGE];
                put(&mut block[8..], *at, new);
                let bytes = u32_at(block, 8).min(PAGE - 16);
                let crc = crc32c::crc32c_append(crc32c::crc32c(&number), &block[8..16 + bytes]);
                put_crc(block, 4, crc);
            }
            Target::Backing => {
                let header = &mut self.pages[self.backing.clone()];
                put(&mut header[..44], *at, new);
                let crc = crc32c::crc32c(&header[..44]);
                put_crc(header, 44, crc);
            }
            Target::Slots => put(&mut self.log[..16], at % 16, new),
            Target::Entry => {
                put(&mut self.log[self.entry.clone()], *at, new);
                let begin = self.entry.start - 8;
                let mut crc = crc32c::crc32c(&self.pages[16..24]);
                crc = crc32c::crc32c_append(crc, &((begin - PAGE) as u64).to_le_bytes());
                crc = crc32c::crc32c_append(crc, &self.log[begin..self.entry.end]);
                let end = begin + (self.entry.len() + 16).next_multiple_of(64);
                put_crc(&mut self.log, end - 4, crc);
            }
        }
    }
}

/// Opens a store and does everything with it.
fn use_all(device: Arc<Ssd>) -> Result<(), Error> {
    let store = Store::open(device, Lpa(2), OPTIONS)?;
    for pair in store.range(&[], None)? {
        let (key, _) = pair?;
        store.get(&key)?;
    }
    store.get(b"absent")?;
    for number in 0..100u32 {
        store.put(&number.to_le_bytes(), &[1; 100])?;
    }
    store.flush()?;
    store.settle()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_hostile_store_is_opened_or_refused(changes in prop::collection::vec(change(), 1..4)) {
        Sim::new(1).run(|| {
            let mut image = Image::made();
            changes.iter().for_each(|change| image.apply(change));
            let outcome = use_all(image.device());
            assert!(!matches!(outcome, Err(Error::Device(amphi_device::Error::PowerLost))), "{outcome:?}");
        });
    }
}

#[test]
fn each_structure_is_missed_when_it_is_damaged() {
    Sim::new(1).run(|| {
        let image = Image::made();
        assert_eq!(use_all(image.device()), Ok(()));
        let (block, footer) = (image.table.start + 100, image.table.end - PAGE + 20);
        for at in [0, image.manifest.start + 8, block, footer] {
            let mut image = image.clone();
            image.pages[at] ^= 1;
            if image.manifest.contains(&at) {
                // The other one would count.
                let other = image.manifests.clone().find(|byte| !image.manifest.contains(byte)).expect("two");
                image.pages[other] ^= 1;
            }
            assert!(matches!(use_all(image.device()), Err(Error::Damaged { .. })), "byte {at}");
        }
    });
}
