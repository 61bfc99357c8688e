//! A file's contents: pages that were written, and holes between them.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes per page.
pub(crate) const PAGE: u64 = 4096;

/// Sparse contents. Bytes at and beyond the file's size are zero in every page kept. Copies share pages until
/// one of them writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bytes {
    size: u64,
    pages: BTreeMap<u64, Arc<[u8]>>,
}

fn zeros() -> Arc<[u8]> {
    Arc::new([0; PAGE as usize])
}

impl Bytes {
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Pages that hold data.
    pub(crate) fn page_count(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Pages a write of `[offset, end)` would add.
    pub(crate) fn pages_missing(&self, offset: u64, end: u64) -> u64 {
        if end <= offset {
            return 0;
        }
        let range = offset / PAGE..=(end - 1) / PAGE;
        let wanted = range.end() - range.start() + 1;
        wanted - self.pages.range(range).count() as u64
    }

    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let length = (into.len() as u64).min(self.size.saturating_sub(offset)) as usize;
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let step = (PAGE as usize - within).min(length - done);
            match self.pages.get(&(at / PAGE)) {
                Some(page) => into[done..done + step].copy_from_slice(&page[within..within + step]),
                None => into[done..done + step].fill(0),
            }
            done += step;
        }
        length
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let step = (PAGE as usize - within).min(data.len() - done);
            let page = Arc::make_mut(self.pages.entry(at / PAGE).or_insert_with(zeros));
            page[within..within + step].copy_from_slice(&data[done..done + step]);
            done += step;
        }
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    /// Gives every page of `[offset, end)` space, without growing the file.
    pub(crate) fn reserve(&mut self, offset: u64, end: u64) {
        for page in offset / PAGE..end.div_ceil(PAGE) {
            self.pages.entry(page).or_insert_with(zeros);
        }
    }

    /// Moves the end of the file further out.
    pub(crate) const fn grow(&mut self, size: u64) {
        self.size = size;
    }

    /// Makes `[offset, end)` read as zeros; pages that lie in it whole become holes.
    pub(crate) fn clear(&mut self, offset: u64, end: u64) {
        let whole = offset.div_ceil(PAGE)..end / PAGE;
        if whole.start < whole.end {
            let after = self.pages.split_off(&whole.end);
            drop(self.pages.split_off(&whole.start));
            self.pages.extend(after);
        }
        for number in [offset / PAGE, end / PAGE] {
            if let Some(page) = self.pages.get_mut(&number) {
                let from = offset.max(number * PAGE) - number * PAGE;
                let to = end.min((number + 1) * PAGE).saturating_sub(number * PAGE);
                if from < to {
                    Arc::make_mut(page)[from as usize..to as usize].fill(0);
                }
            }
        }
    }

    pub(crate) fn set_size(&mut self, size: u64) {
        // The same size gives back what was reserved beyond it.
        if size <= self.size {
            drop(self.pages.split_off(&size.div_ceil(PAGE)));
            if let Some(page) = self.pages.get_mut(&(size / PAGE)) {
                Arc::make_mut(page)[(size % PAGE) as usize..].fill(0);
            }
        }
        self.size = size;
    }

    /// First byte at or after `offset` that lies in a written page, if any before the end.
    pub(crate) fn next_data(&self, offset: u64) -> Option<u64> {
        let (&page, _) = self.pages.range(offset / PAGE..).next()?;
        let at = offset.max(page * PAGE);
        (at < self.size).then_some(at)
    }

    /// First byte at or after `offset` that lies in no written page; the end of the file at the latest.
    pub(crate) fn next_hole(&self, offset: u64) -> u64 {
        let mut page = offset / PAGE;
        while self.pages.contains_key(&page) {
            page += 1;
        }
        offset.max(page * PAGE).min(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shrink_and_a_growth_leave_zeros() {
        let mut bytes = Bytes::default();
        bytes.write(10, &[7; 9000]);
        bytes.set_size(5000);
        bytes.set_size(9000);
        let mut all = vec![1; 10_000];
        assert_eq!(bytes.read(0, &mut all), 9000);
        assert!(all[..10].iter().all(|&b| b == 0));
        assert!(all[10..5000].iter().all(|&b| b == 7));
        assert!(all[5000..9000].iter().all(|&b| b == 0));
    }

    #[test]
    fn cleared_ranges_are_zero_and_nothing_else_is() {
        for (offset, end) in
            [(0, 1), (100, 4_096), (4_000, 12_300), (4_096, 8_192), (1, 20_000), (5_000, 5_010)]
        {
            let mut bytes = Bytes::default();
            bytes.write(0, &[7; 16_384]);
            bytes.clear(offset, end);
            let mut all = vec![1; 16_384];
            assert_eq!(bytes.read(0, &mut all), 16_384);
            for (at, &byte) in all.iter().enumerate() {
                assert_eq!(byte == 0, (offset..end).contains(&(at as u64)), "{at} of {offset}..{end}");
            }
        }
    }

    #[test]
    fn holes_and_data_are_found() {
        let mut bytes = Bytes::default();
        bytes.write(3 * PAGE, &[1; 10]);
        bytes.set_size(8 * PAGE);
        assert_eq!(bytes.next_data(0), Some(3 * PAGE));
        assert_eq!(bytes.next_data(3 * PAGE + 5), Some(3 * PAGE + 5));
        assert_eq!(bytes.next_data(4 * PAGE), None);
        assert_eq!(bytes.next_hole(0), 0);
        assert_eq!(bytes.next_hole(3 * PAGE), 4 * PAGE);
        bytes.set_size(3 * PAGE + 5);
        assert_eq!(bytes.next_hole(3 * PAGE), 3 * PAGE + 5);
        assert_eq!(bytes.pages_missing(0, 4 * PAGE), 3);
    }
}
