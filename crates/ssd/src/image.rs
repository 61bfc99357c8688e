//! The image as memory: one mapping of a sparse file, or of anonymous memory with the same layout.
//!
//! The mapping *is* the device: a killed process leaves every store it made. With `image/past_caches.rs` and
//! `image/words.rs` this is the only file of the crate with `unsafe`; it offers bounds-checked copies and
//! atomic words. Who may
//! touch which bytes when is the business of the layers above: bytes are written by one task before they are
//! published (by an atomic word or a lock) and read only after.

mod files;
mod lineage;
mod past_caches;
mod words;

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::mm::{Advice as GiveUp, madvise};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::ImageError;
use crate::format::PAGE;
use files::system;
pub(crate) use files::{open_file, open_to_read};
use lineage::Lineage;
use past_caches::{copy_past_caches, order_copies};

/// A mapped image.
#[derive(Debug)]
pub(crate) struct Image {
    /// `None` only while the image is dropped.
    map: Option<MmapRaw>,
    /// What the mapping shows and changes; none for memory.
    file: Option<File>,
    /// Of a copy in memory, the file that it shows until it is changed: kept for its lock.
    original: Option<File>,
    path: String,
    /// Of an image that is forked again and again: which of its pages may differ from the origin of all its
    /// forks.
    lineage: Option<Lineage>,
    /// Of memory: where pages were programmed already.
    reached: Reached,
    /// Other processes use the mapping, in which the file's descriptor means nothing or another file.
    by_addresses: bool,
}

/// Bytes of memory that are asked of the system at once when the first page in them is programmed: flash is
/// filled in order, and each page that is touched for the first time by itself costs an exception.
const STRETCH: u64 = 128 << 10;

/// Which stretches were asked for, one bit each. Empty if none are.
#[derive(Debug, Default)]
struct Reached(Box<[AtomicU64]>);

impl Reached {
    fn of(bytes: u64) -> Self {
        Self((0..bytes.div_ceil(STRETCH * 64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Whether the stretch at `at` is reached for the first time.
    fn is_new(&self, at: u64) -> bool {
        let number = at / STRETCH;
        let Some(word) = self.0.get((number / 64) as usize) else { return false };
        let bit = 1 << (number % 64);
        word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

impl Image {
    /// Anonymous memory of `bytes` zero bytes; pages take room when they are first touched.
    ///
    /// # Errors
    /// The system has no address space left.
    pub(crate) fn in_memory(bytes: u64) -> Result<Self, ImageError> {
        let path = "memory".to_owned();
        let map = MmapOptions::new()
            .len(bytes as usize)
            .no_reserve_swap()
            .map_anon()
            .map_err(|cause| system("map", &path, &cause))?;
        Ok(Self {
            map: Some(map.into()),
            file: None,
            original: None,
            path,
            lineage: None,
            reached: Reached::of(bytes),
            by_addresses: false,
        })
    }

    /// Expects the bytes from `at` on to be filled one after the other: memory then comes in huge pages,
    /// where the system has them. Touching memory for the first time is most of what a write of pages costs
    /// otherwise.
    pub(crate) fn expect_filling(&self, at: u64) {
        let _without_it_all_works_as_well =
            self.mapping().advise_range(Advice::HugePage, at as usize, (self.bytes() - at) as usize);
    }

    /// Creates a sparse file of `bytes` zero bytes, readable and writable by its owner only, and locks it.
    ///
    /// # Errors
    /// It exists, or the system refuses.
    pub(crate) fn create(path: &Path, bytes: u64) -> Result<Self, ImageError> {
        let name = path.display().to_string();
        let file = files::create(path)?;
        file.set_len(bytes).map_err(|cause| system("extend", &name, &cause))?;
        Self::map(file, name, bytes)
    }

    /// Maps a file of at least `bytes` bytes.
    ///
    /// # Errors
    /// It is shorter (a mapping beyond its end would fault), or the system refuses.
    pub(crate) fn map(file: File, path: String, bytes: u64) -> Result<Self, ImageError> {
        let actual = file.metadata().map_err(|cause| system("examine", &path, &cause))?.len();
        if actual < bytes {
            return Err(ImageError::Truncated { expected: bytes, actual });
        }
        let map = MmapOptions::new()
            .len(bytes as usize)
            .map_raw(&file)
            .map_err(|cause| system("map", &path, &cause))?;
        Ok(Self {
            map: Some(map),
            file: Some(file),
            original: None,
            path,
            lineage: None,
            reached: Reached::default(),
            by_addresses: false,
        })
    }

    /// As [`map`](Self::map), but what is changed is changed in memory alone, page by page, and gone with the
    /// image.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    pub(crate) fn map_copy(file: File, path: String, bytes: u64) -> Result<Self, ImageError> {
        let actual = file.metadata().map_err(|cause| system("examine", &path, &cause))?.len();
        if actual < bytes {
            return Err(ImageError::Truncated { expected: bytes, actual });
        }
        // SAFETY: a private mapping, reached through raw pointers only; whoever would shorten the file has to
        // lock it for himself first.
        let map = unsafe { MmapOptions::new().len(bytes as usize).map_copy(&file) };
        let map = map.map_err(|cause| system("map", &path, &cause))?;
        Ok(Self {
            map: Some(map.into()),
            file: None,
            original: Some(file),
            path,
            lineage: None,
            reached: Reached::default(),
            by_addresses: false,
        })
    }

    /// Uses the file's descriptor no more.
    pub(crate) fn use_addresses_alone(&mut self) {
        self.by_addresses = true;
    }

    /// Whether the image is memory, not a file.
    pub(crate) const fn is_in_memory(&self) -> bool {
        self.file.is_none()
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.mapping().len() as u64
    }

    #[inline]
    fn mapping(&self) -> &MmapRaw {
        self.map.as_ref().expect("only a dropped image has no mapping")
    }

    /// Makes this image, which is memory, the origin of forks: from now on every image forked from it, or
    /// from its forks, knows which pages it has changed.
    pub(crate) fn found_lineage(&mut self) {
        self.lineage = Some(Lineage::found(self.bytes()));
        // There may be many forks, of which each fills little.
        self.reached = Reached::default();
    }

    /// A fork of an image that has a lineage: only pages that it or a former fork has changed are copied.
    ///
    /// # Errors
    /// The system has no address space left.
    pub(crate) fn fork(&self) -> Option<Result<Self, ImageError>> {
        let lineage = self.lineage.as_ref()?;
        let (map, lineage) = match lineage.take_idle() {
            Some((map, heir)) => (map, heir),
            None => match Self::in_memory(self.bytes()) {
                Ok(mut blank) => (blank.map.take().expect("a new image has a mapping"), lineage.stranger()),
                Err(cause) => return Some(Err(cause)),
            },
        };
        let mut fork = Self {
            map: Some(map),
            file: None,
            path: self.path.clone(),
            original: None,
            lineage: None,
            reached: Reached::default(),
            by_addresses: false,
        };
        for page in lineage.differing(self.lineage.as_ref()?) {
            let at = page * PAGE;
            if at < self.bytes() {
                fork.copy_from(self, at, PAGE.min(self.bytes() - at) as usize);
            }
        }
        lineage.follow(self.lineage.as_ref()?);
        fork.lineage = Some(lineage);
        Some(Ok(fork))
    }

    /// Where the pages begin in which this image and another of its lineage may differ, ascending; nothing if
    /// they are not of one lineage.
    pub(crate) fn differing<'a>(&'a self, other: &'a Self) -> Option<impl Iterator<Item = u64> + 'a> {
        let (mine, theirs) = (self.lineage.as_ref()?, other.lineage.as_ref()?);
        mine.is_kin(theirs)
            .then(|| mine.differing(theirs).map(|page| page * PAGE).take_while(|at| *at < self.bytes()))
    }

    /// The number that tells what the page at `at` holds, found out by `find` unless it is as in the origin,
    /// where somebody found out before.
    ///
    /// # Errors
    /// Those of `find`.
    pub(crate) fn told<E>(&self, at: u64, find: impl FnOnce() -> Result<u64, E>) -> Result<u64, E> {
        match &self.lineage {
            Some(lineage) => lineage.told(at / PAGE, find),
            None => find(),
        }
    }

    /// Notes that these bytes may change.
    #[inline]
    fn touch(&self, at: u64, len: usize) {
        if let Some(lineage) = &self.lineage {
            lineage.touch(at, len);
        }
    }

    /// The address of `len` bytes at `at`, after checking that they are inside.
    #[inline]
    fn window(&self, at: u64, len: usize) -> *mut u8 {
        let end = at.checked_add(len as u64).expect("an address inside the image");
        assert!(end <= self.bytes(), "bytes {at}..{end} are outside the image of {} bytes", self.bytes());
        self.mapping().as_mut_ptr().wrapping_add(at as usize)
    }

    /// Copies bytes out of the image.
    pub(crate) fn read(&self, at: u64, into: &mut [u8]) {
        let from = self.window(at, into.len());
        // SAFETY: `window` checked that the source lies inside the mapping, which lives as long as `self`;
        // `into` is ours alone, so the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes into the image.
    pub(crate) fn write(&self, at: u64, data: &[u8]) {
        self.touch(at, data.len());
        let to = self.window(at, data.len());
        // SAFETY: as in `read`, with the mapping as the destination.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) }
    }

    /// Copies whole pages into the image at `at`, a page's address, past the processor's caches: memory that
    /// flash is emulated in is cold, and what is programmed is seldom read soon. Others see it whole after
    /// [`settle_streams`](Self::settle_streams) only: waiting for the memory once for several pages takes
    /// half the time that waiting after each does.
    pub(crate) fn stream(&self, at: u64, pages: &[u8]) {
        assert!(at.is_multiple_of(PAGE), "{at} is no page's address");
        self.touch(at, pages.len());
        let to = self.window(at, pages.len());
        if self.reached.is_new(at) {
            let start = at / STRETCH * STRETCH;
            let len = STRETCH.min(self.bytes() - start);
            let _without_it_all_works_as_well =
                self.mapping().advise_range(Advice::PopulateWrite, start as usize, len as usize);
        }
        // SAFETY: `window` checked that the destination lies inside the mapping, and both it and `at` are
        // page-aligned.
        unsafe { copy_past_caches(pages, to) }
    }

    /// Makes what the calling thread has streamed visible to others before whatever it stores next.
    pub(crate) fn settle_streams(&self) {
        order_copies();
    }

    /// Copies bytes within the image.
    pub(crate) fn copy(&self, from: u64, to: u64, len: usize) {
        self.touch(to, len);
        let (from, to) = (self.window(from, len), self.window(to, len));
        // SAFETY: both ranges lie inside the mapping; `copy` allows them to overlap.
        unsafe { std::ptr::copy(from, to, len) }
    }

    /// Copies bytes from another image, at the same address.
    pub(crate) fn copy_from(&self, other: &Self, at: u64, len: usize) {
        self.touch(at, len);
        let (from, to) = (other.window(at, len), self.window(at, len));
        // SAFETY: each range lies inside its own mapping, and the two mappings are distinct.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) }
    }

    /// Fills bytes of the image with zeros.
    pub(crate) fn zero(&self, at: u64, len: usize) {
        self.touch(at, len);
        let to = self.window(at, len);
        // SAFETY: the range lies inside the mapping.
        unsafe { std::ptr::write_bytes(to, 0, len) }
    }

    /// Reads a structure.
    pub(crate) fn read_struct<T: FromBytes + IntoBytes>(&self, at: u64) -> T {
        let mut value = T::new_zeroed();
        self.read(at, value.as_mut_bytes());
        value
    }

    /// Writes a structure.
    pub(crate) fn write_struct<T: IntoBytes + Immutable>(&self, at: u64, value: &T) {
        self.write(at, value.as_bytes());
    }

    /// An atomic word of the image; `at` is a multiple of 8.
    #[inline]
    pub(crate) fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at.is_multiple_of(8), "word {at} is not aligned");
        self.touch(at, 8);
        let word = self.window(at, 8);
        // SAFETY: the eight bytes lie inside the mapping, which is page-aligned, so the word is aligned; the
        // mapping lives as long as the returned borrow of `self`; words reached by this method are never
        // accessed by plain copies at the same time.
        unsafe { AtomicU64::from_ptr(word.cast()) }
    }

    /// The value of an atomic word, which is only looked at.
    pub(crate) fn read_word(&self, at: u64) -> u64 {
        assert!(at.is_multiple_of(8), "word {at} is not aligned");
        let word = self.window(at, 8);
        // SAFETY: as in `word`.
        unsafe { AtomicU64::from_ptr(word.cast()) }.load(Ordering::Acquire)
    }

    /// Makes sure that the host's disk has room for these bytes, so that storing to them cannot fault.
    ///
    /// # Errors
    /// The disk is full.
    pub(crate) fn allocate(&self, at: u64, len: u64) -> amphi_device::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        loop {
            let allocated = match self.by_addresses {
                true => self.mapping().advise_range(Advice::PopulateWrite, at as usize, len as usize),
                false => fallocate(file, FallocateFlags::KEEP_SIZE, at, len).map_err(std::io::Error::from),
            };
            let Err(cause) = allocated else { return Ok(()) };
            match cause.kind() {
                ErrorKind::InvalidInput if self.by_addresses => return Ok(()),
                // A file system without fallocate cannot promise; the mapping then behaves as any mapped file
                // there.
                ErrorKind::Unsupported => return Ok(()),
                ErrorKind::Interrupted => {}
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                    return Err(amphi_device::Error::NoSpace(format!(
                        "the disk that holds {} is full; free some space on it",
                        self.path
                    )));
                }
                // The system says of memory that cannot be had only that its address is bad.
                _ if self.by_addresses => {
                    return Err(amphi_device::Error::NoSpace(format!(
                        "the disk that holds {} has no room: {cause}",
                        self.path
                    )));
                }
                _ => {
                    return Err(amphi_device::Error::Image(format!("cannot extend {}: {cause}", self.path)));
                }
            }
        }
    }

    /// Gives these bytes' room back to the host; they read as zeros.
    pub(crate) fn discard(&self, at: u64, len: u64) {
        if let Some(file) = &self.file {
            if self.by_addresses {
                let start = self.window(at, len as usize);
                // SAFETY: the bytes are the image's and nobody reads them as anything but bytes; they become
                // zeros.
                if unsafe { madvise(start.cast(), len as usize, GiveUp::LinuxRemove) }.is_ok() {
                    return;
                }
                self.zero(at, len as usize);
                return;
            }
            let punched = fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len);
            if punched.is_ok() {
                return;
            }
        }
        self.zero(at, len as usize);
    }

    /// Hands everything stored so far to the host's disk.
    ///
    /// # Errors
    /// The disk failed.
    pub(crate) fn sync(&self) -> amphi_device::Result<()> {
        if self.file.is_none() {
            return Ok(());
        }
        self.mapping()
            .flush()
            .map_err(|cause| amphi_device::Error::Image(format!("cannot write {} back: {cause}", self.path)))
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if let (Some(lineage), Some(map)) = (self.lineage.take(), self.map.take()) {
            lineage.retire(map);
        }
        if let Some(file) = self.file.as_ref().or(self.original.as_ref()) {
            // Closing would do, unless another thread is starting a process just now, which holds a copy of
            // the file for a moment.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_are_read_and_words_are_shared_with_them() {
        let image = Image::in_memory(8192).expect("memory");
        image.write(8, &7_u64.to_le_bytes());
        assert_eq!(image.word(8).fetch_add(1, Ordering::Relaxed), 7);
        assert_eq!(image.read_struct::<[u8; 8]>(8), 8_u64.to_le_bytes());
        image.stream(4096, &[5; 4096]);
        image.settle_streams();
        assert_eq!(image.read_struct::<[u8; 4096]>(4096), [5; 4096]);
        image.copy(8, 100, 8);
        image.zero(8, 8);
        assert_eq!(image.read_struct::<[u8; 8]>(100), 8_u64.to_le_bytes());
    }

    #[test]
    fn words_are_stored_and_loaded_at_any_offset() {
        let image = Image::in_memory(4096).expect("memory");
        image.write(0, &[1; 64]);
        image.store_words(5, &[7; 13]);
        let mut around = [0; 20];
        image.load_words(2, &mut around);
        assert_eq!(around, [1, 1, 1, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 1, 1, 1, 1]);
        image.store_words(4096 - 3, &[9; 3]);
        image.load_words(4096 - 4, &mut around[..4]);
        assert_eq!(around[..4], [0, 9, 9, 9]);
        image.store_words(11, &[]);
        image.load_words(11, &mut []);
    }

    #[test]
    fn memory_is_asked_for_once_a_stretch_and_not_for_forks() {
        let bytes = 3 * STRETCH + PAGE;
        let mut image = Image::in_memory(bytes).expect("memory");
        image.stream(STRETCH + PAGE, &[7; 4096]);
        assert!(image.reached.is_new(0) && !image.reached.is_new(2 * STRETCH - PAGE));
        image.stream(3 * STRETCH, &[8; 4096]);
        assert!(!image.reached.is_new(3 * STRETCH), "the last one is short");
        assert_eq!(
            image.read_struct::<[u8; 2]>(STRETCH + 2 * PAGE - 1),
            [7, 0],
            "what is beside a page stays as it was"
        );
        image.found_lineage();
        assert!(!image.reached.is_new(2 * STRETCH));
    }

    #[test]
    #[should_panic(expected = "outside the image")]
    fn nothing_outside_the_image_is_touched() {
        Image::in_memory(4096).expect("memory").write(4090, &[0; 8]);
    }
}
