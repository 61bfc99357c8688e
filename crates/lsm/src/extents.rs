//! The extent layer: which pages of the tables' area are taken. In memory alone; the manifest says at every
//! opening what is taken.

use std::collections::BTreeMap;

use amphi_rt::sync::Mutex;

use crate::{Error, Result};

/// A run of pages of the tables' area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First page, from the area's start.
    pub page: u64,
    /// Pages.
    pub pages: u64,
}

/// The free pages: runs by their first page, none beside another.
#[derive(Debug)]
pub struct Extents(Mutex<BTreeMap<u64, u64>>);

impl Extents {
    /// An area of `pages` pages, all free.
    pub fn new(pages: u64) -> Self {
        Self(Mutex::new(BTreeMap::from([(0, pages)])))
    }

    /// Takes a given run: a table that is there.
    ///
    /// # Errors
    /// [`Error::Damaged`] if some of it is taken or outside.
    pub fn take(&self, extent: Extent) -> Result<()> {
        let mut free = self.0.lock();
        let overlap = Error::Damaged { what: "the extent of a table", at: extent.page };
        let Some((&page, &pages)) = free.range(..=extent.page).next_back() else { return Err(overlap) };
        let before = extent.page - page;
        if extent.pages == 0 || before >= pages || extent.pages > pages - before {
            return Err(overlap);
        }
        free.remove(&page);
        if before > 0 {
            free.insert(page, before);
        }
        let behind = pages - before - extent.pages;
        if behind > 0 {
            free.insert(extent.page + extent.pages, behind);
        }
        Ok(())
    }

    /// Takes the first run that is long enough.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is none.
    pub fn allocate(&self, pages: u64) -> Result<Extent> {
        let mut free = self.0.lock();
        let found = free.iter().find(|(_, run)| **run >= pages).map(|(&page, &run)| (page, run));
        let Some((page, run)) = found else { return Err(Error::NoSpace(pages)) };
        free.remove(&page);
        if run > pages {
            free.insert(page + pages, run - pages);
        }
        Ok(Extent { page, pages })
    }

    /// Pages that are free.
    pub fn free_pages(&self) -> u64 {
        self.0.lock().values().sum()
    }

    /// Gives a run back.
    pub fn free(&self, extent: Extent) {
        let mut free = self.0.lock();
        let Extent { mut page, mut pages } = extent;
        if let Some((&before, &run)) = free.range(..page).next_back()
            && before + run == page
        {
            free.remove(&before);
            (page, pages) = (before, pages + run);
        }
        if let Some(run) = free.remove(&(page + pages)) {
            pages += run;
        }
        free.insert(page, pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_split_and_joined() {
        let extents = Extents::new(10);
        let [a, b, c] = [3, 3, 4].map(|pages| extents.allocate(pages).expect("free"));
        assert_eq!(extents.allocate(1), Err(Error::NoSpace(1)));
        extents.free(a);
        extents.free(c);
        assert_eq!(extents.allocate(5), Err(Error::NoSpace(5)));
        extents.free(b);
        assert_eq!(extents.allocate(10), Ok(Extent { page: 0, pages: 10 }));
    }

    #[test]
    fn what_is_taken_or_outside_is_not_taken_again() {
        let extents = Extents::new(10);
        extents.take(Extent { page: 2, pages: 3 }).expect("free");
        for (page, pages) in [(2, 3), (0, 3), (4, 1), (9, 2), (10, 1), (u64::MAX, 1), (5, u64::MAX), (0, 0)] {
            assert!(extents.take(Extent { page, pages }).is_err(), "{page} {pages}");
        }
        extents.take(Extent { page: 5, pages: 5 }).expect("free");
        extents.take(Extent { page: 0, pages: 2 }).expect("free");
        assert_eq!(extents.allocate(1), Err(Error::NoSpace(1)));
    }
}
