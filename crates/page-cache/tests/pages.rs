//! One file's pages against an array of bytes, with a device that is a map: whatever is written, written
//! back, forgotten and dropped, readers see the newest bytes, and the budget counts what there is.

use std::collections::BTreeMap;

use amphi_page_cache::{
    Beside, BoxedFrame, Budget, Frame, Limits, Mapped, Mapping, PAGE, Page, Pages, Plain, SharedFrame, Wanted,
};
use amphi_vfs::{Error, Seek};
use proptest::prelude::*;

const FILE_PAGES: u64 = 24;
const FILE_BYTES: u64 = FILE_PAGES * PAGE as u64;

#[derive(Clone, Debug)]
enum Step {
    Write { at: u64, len: u64, byte: u8 },
    Read { at: u64, len: u64 },
    WriteBack,
    WriteBackPart { most: usize, every: usize },
    Forget { first: u64, pages: u64 },
    DropClean { frames: usize, also_used: bool },
    DropCleanRange { first: u64, pages: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0..FILE_BYTES;
    let len = prop_oneof![1..300_u64, 1..5 * PAGE as u64];
    let pages = || (0..FILE_PAGES, 1..FILE_PAGES);
    prop_oneof![
        4 => (at.clone(), len.clone(), 1..=u8::MAX).prop_map(|(at, len, byte)| Step::Write { at, len, byte }),
        4 => (at, len).prop_map(|(at, len)| Step::Read { at, len }),
        1 => Just(Step::WriteBack),
        2 => (1..6_usize, 1..3_usize).prop_map(|(most, every)| Step::WriteBackPart { most, every }),
        1 => pages().prop_map(|(first, pages)| Step::Forget { first, pages }),
        1 => (1..9_usize, any::<bool>()).prop_map(|(frames, also_used)| Step::DropClean { frames, also_used }),
        1 => pages().prop_map(|(first, pages)| Step::DropCleanRange { first, pages }),
    ]
}

/// Pages that the device holds, each at twice its number so that none are contiguous but pairs.
#[derive(Default)]
struct Device(BTreeMap<u64, [u8; PAGE]>);

impl Device {
    const fn lba(index: u64) -> u64 {
        index + index / 2
    }
}

impl Mapping for Device {
    fn map(&self, index: u64) -> Mapped {
        match self.0.range(index..).next() {
            Some((found, _)) if *found == index => {
                let pair = index.is_multiple_of(2) && self.0.contains_key(&(index + 1));
                Mapped::At { lba: Self::lba(index), pages: 1 + u64::from(pair) }
            }
            Some((next, _)) => Mapped::Hole { pages: next - index },
            None => Mapped::Hole { pages: u64::MAX - index },
        }
    }
}

/// Beside each page one more frame while it is dirty.
#[derive(Default)]
struct Extra(bool);

impl Beside for Extra {
    fn frames(&self) -> usize {
        usize::from(self.0)
    }
}

struct Rig<F, B> {
    pages: Pages<F, B>,
    budget: Budget,
    device: Device,
    expected: Vec<u8>,
}

impl<F: Frame + Clone, B: Beside + Default> Rig<F, B> {
    fn new() -> Self {
        let limits = Limits { frames: 1000, drop_to: 900, enough: 900, dirty: 100 };
        let (pages, budget, device) = (Pages::default(), Budget::new(limits), Device::default());
        Self { pages, budget, device, expected: vec![0; FILE_BYTES as usize] }
    }

    fn load(&mut self, first: u64, last: u64) {
        let mut at = first;
        while let Some(run) = self.pages.missing(&self.device, at, last, 3) {
            assert!(run.index >= at && run.pages > 0 && run.pages <= 3 && run.index + run.pages <= last + 1);
            assert_eq!(run.lba, Device::lba(run.index));
            for index in run.index..run.index + run.pages {
                assert_eq!(Device::lba(index), run.lba + (index - run.index), "one command reads it");
                assert!(self.pages.get(index).is_none());
                let mut data = F::zeros();
                *data.bytes_mut() = self.device.0[&index];
                self.pages.keep(&self.budget, index, Page::new(data, B::default()), false);
            }
            at = run.index + run.pages;
        }
    }

    fn step(&mut self, step: &Step, beside: impl Fn(&mut B, bool)) {
        match *step {
            Step::Write { at, len, byte } => {
                let end = (at + len).min(FILE_BYTES);
                let (first, last) = (at / PAGE as u64, (end - 1) / PAGE as u64);
                let due = (first..=last).filter(|index| !self.device.0.contains_key(index));
                let due = due.filter(|index| !self.pages.is_dirty(*index)).count() as u64;
                let wanted = self.pages.wanted(&self.device, first, last);
                assert_eq!(wanted, Wanted { unmapped: due, unwritten: 0 });
                self.load(first, first);
                self.load(last, last);
                let data = vec![byte; (end - at) as usize];
                self.pages.write(&self.budget, at, &data, &mut Plain);
                for index in first..=last {
                    self.pages.change(&self.budget, index, |page| beside(&mut page.beside, true));
                }
                self.expected[at as usize..end as usize].fill(byte);
            }
            Step::Read { at, len } => {
                let end = (at + len).min(FILE_BYTES);
                let mut into = vec![1; (end - at) as usize];
                if !self.pages.copy_out(&self.device, at, &mut into) {
                    self.load(at / PAGE as u64, (end - 1) / PAGE as u64);
                    assert!(self.pages.copy_out(&self.device, at, &mut into));
                }
                assert!(into == self.expected[at as usize..end as usize], "what was written is read");
            }
            Step::WriteBack => {
                let dirty = self.pages.take_dirty();
                assert!(dirty.is_sorted());
                for index in &dirty {
                    self.device.0.insert(*index, *self.pages.get(*index).unwrap().data());
                }
                self.pages.written(&self.budget, dirty, |page| beside(&mut page.beside, false));
                assert!(self.pages.is_clean());
            }
            Step::WriteBackPart { most, every } => {
                let batch: Vec<_> = self.pages.first_dirty(most).into_iter().step_by(every).collect();
                let before = self.pages.dirty_pages();
                let leave = |index, page: &mut Page<F, B>| Ok((index, page.data.clone()));
                for (index, data) in self.pages.leave(&self.budget, &batch, leave).unwrap() {
                    self.device.0.insert(index, *data.bytes());
                }
                assert_eq!(self.pages.dirty_pages(), before - batch.len());
            }
            Step::Forget { first, pages } => {
                let end = (first + pages).min(FILE_PAGES);
                let dirty = |index: &u64| self.pages.is_dirty(*index) && !self.device.0.contains_key(index);
                let due = (first..end).filter(dirty).count() as u64;
                assert_eq!(self.pages.forget(&self.budget, &self.device, first..end), due);
                self.device.0.retain(|index, _| !(first..end).contains(index));
                self.expected[first as usize * PAGE..end as usize * PAGE].fill(0);
            }
            Step::DropClean { frames, also_used } => self.pages.drop_clean(&self.budget, frames, also_used),
            Step::DropCleanRange { first, pages } => {
                self.pages.forget_clean(&self.budget, first..first + pages);
                assert!((first..first + pages).all(|i| self.pages.get(i).is_none_or(Page::is_dirty)));
            }
        }
        let cached = || (0..FILE_PAGES).filter_map(|index| self.pages.get(index));
        let usage = self.budget.usage();
        assert_eq!(usage.frames, cached().map(Page::frames).sum::<usize>());
        assert_eq!(usage.dirty, cached().filter(|page| page.is_dirty()).count());
        assert_eq!(usage.dirty, self.pages.dirty_pages());
        self.seeks();
    }

    /// Each page's first byte, sought from.
    fn seeks(&self) {
        let is_data = |index: &u64| self.device.0.contains_key(index) || self.pages.get(*index).is_some();
        for from in 0..FILE_PAGES {
            let seek = |what| self.pages.seek(&self.device, FILE_BYTES, from * PAGE as u64, what);
            let data = (from..FILE_PAGES).find(is_data).map(|index| index * PAGE as u64);
            assert_eq!(seek(Seek::Data), data.ok_or(Error::NoData));
            let hole = (from..FILE_PAGES).find(|index| !is_data(index)).unwrap_or(FILE_PAGES);
            assert_eq!(seek(Seek::Hole), Ok(hole * PAGE as u64));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn pages_with_something_beside_hold_what_was_written(steps in proptest::collection::vec(step(), 1..60)) {
        let mut rig = Rig::<BoxedFrame, Extra>::new();
        for step in &steps {
            rig.step(step, |extra, on| extra.0 = on);
        }
    }

    #[test]
    fn shared_pages_hold_what_was_written(steps in proptest::collection::vec(step(), 1..60)) {
        let mut rig = Rig::<SharedFrame, ()>::new();
        for step in &steps {
            rig.step(step, |(), _| ());
        }
    }
}

/// Who writes a page that is on its way to the device changes a copy.
#[test]
fn a_page_in_flight_keeps_its_contents() {
    let mut rig = Rig::<SharedFrame, ()>::new();
    rig.pages.write(&rig.budget, 0, &[1; PAGE], &mut Plain);
    let batch = rig.pages.first_dirty(8);
    let leaving = rig.pages.leave(&rig.budget, &batch, |_, page| Ok(page.data.clone())).unwrap();
    rig.pages.write(&rig.budget, 0, &[2; 10], &mut Plain);
    assert_eq!((leaving[0][0], rig.pages.get(0).unwrap().data()[0]), (1, 2));
    assert!(rig.pages.is_dirty(0));
}

#[test]
fn pages_not_used_of_late_leave_first() {
    let mut rig = Rig::<BoxedFrame, ()>::new();
    rig.pages.write(&rig.budget, 0, &[1; 4 * PAGE], &mut Plain);
    let dirty = rig.pages.take_dirty();
    rig.pages.written(&rig.budget, dirty, |_| ());
    rig.pages.drop_clean(&rig.budget, usize::MAX, false);
    assert_eq!(rig.pages.len(), 4, "all were used");
    rig.pages.get(2).unwrap().touch();
    rig.pages.drop_clean(&rig.budget, usize::MAX, false);
    assert_eq!(rig.pages.len(), 1);
    assert!(rig.pages.get(2).is_some());
}
