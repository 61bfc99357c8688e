//! Any bytes of a device that reads and writes pages only.
//!
//! Whole pages go to the device straight from the caller's buffer, in one command; a page that is written in
//! part is read first, changed, and written in the same command as its neighbours.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::{BlockPort, Completion, Lpa, PAGE_BYTES, Result, Structure};

use crate::pages::{PAGES_MAX, PageLocks};

/// A page in bytes, as an offset.
const PAGE: u64 = PAGE_BYTES as u64;

/// What the kernel's file systems do on the device is not ours to tell apart.
const TAG: Structure = Structure::Other;

/// What a discarded part of a page reads as.
const ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

/// A device as an array of bytes.
#[derive(Debug)]
pub(crate) struct Disk<P> {
    port: Arc<P>,
    locks: PageLocks,
    size: u64,
}

impl<P: BlockPort> Disk<P> {
    pub(crate) fn new(port: Arc<P>) -> Self {
        let size = port.capacity_pages() * PAGE;
        Self { port, locks: PageLocks::new(), size }
    }

    /// Size in bytes, a multiple of the page.
    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// How many of `len` bytes from `at` exist.
    pub(crate) fn clip(&self, at: u64, len: u64) -> u64 {
        len.min(self.size.saturating_sub(at))
    }

    /// Reads what exists of `len` bytes from `at`, with the rest of their pages, into `buffer`, which grows
    /// as needed. Answers where in `buffer` the bytes are.
    pub(crate) fn read(&self, at: u64, len: usize, buffer: &mut Vec<u8>) -> Result<Range<usize>> {
        let len = self.clip(at, len as u64);
        if len == 0 {
            return Ok(0..0);
        }
        let first = at / PAGE;
        let covering = ((at + len).next_multiple_of(PAGE) - first * PAGE) as usize;
        if buffer.len() < covering {
            buffer.resize(covering, 0);
        }
        self.port.read(Lpa(first), &mut buffer[..covering], TAG)?;
        let start = (at % PAGE) as usize;
        Ok(start..start + len as usize)
    }

    /// Writes what fits of `data` at `at` and answers how much that was.
    ///
    /// An error leaves some of the pages written and others not, as a device's does.
    pub(crate) fn write(&self, at: u64, data: &[u8]) -> Result<usize> {
        let data = &data[..self.clip(at, data.len() as u64) as usize];
        let mut at = at;
        let mut rest = data;
        while !rest.is_empty() {
            let end = (at / PAGE + PAGES_MAX as u64) * PAGE;
            let (now, later) = rest.split_at(rest.len().min((end - at) as usize));
            self.write_command(at, now)?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(data.len())
    }

    /// Writes `data`, not empty and on at most [`PAGES_MAX`] pages, in one command.
    fn write_command(&self, at: u64, data: &[u8]) -> Result<()> {
        let first = at / PAGE;
        let end = at + data.len() as u64;
        let pages = (end.div_ceil(PAGE) - first) as usize;
        let is_partial = |page: u64| page * PAGE < at || end < (page + 1) * PAGE;
        let _held = self.locks.hold(first, pages, is_partial);
        if !is_partial(first) && !is_partial(first + pages as u64 - 1) {
            return self.port.write(Lpa(first), data, TAG);
        }
        let (mut head, mut tail) = ([0; PAGE_BYTES], [0; PAGE_BYTES]);
        let skipped = (at % PAGE) as usize;
        let in_head = if is_partial(first) { data.len().min(PAGE_BYTES - skipped) } else { 0 };
        let (head_data, rest) = data.split_at(in_head);
        let (middle, tail_data) = rest.split_at(rest.len() / PAGE_BYTES * PAGE_BYTES);
        let mut parts: [&[u8]; 3] = [&[]; 3];
        let mut count = 0;
        if !head_data.is_empty() {
            self.port.read(Lpa(first), &mut head, TAG)?;
            head[skipped..skipped + in_head].copy_from_slice(head_data);
            parts[count] = &head;
            count += 1;
        }
        if !middle.is_empty() {
            parts[count] = middle;
            count += 1;
        }
        if !tail_data.is_empty() {
            self.port.read(Lpa(end / PAGE), &mut tail, TAG)?;
            tail[..tail_data.len()].copy_from_slice(tail_data);
            parts[count] = &tail;
            count += 1;
        }
        self.port.submit_write(Lpa(first), &parts[..count], TAG)?.wait()
    }

    /// Makes `len` bytes from `at` read as zeros: whole pages are trimmed, parts of pages written. What lies
    /// outside is left out.
    ///
    /// Trimming is not ordered with writes in flight to the same pages, as on the device itself.
    pub(crate) fn discard(&self, at: u64, len: u64) -> Result<()> {
        let len = self.clip(at, len);
        if len == 0 {
            return Ok(());
        }
        let end = at + len;
        let whole_start = at.next_multiple_of(PAGE).min(end);
        let whole_end = (end / PAGE * PAGE).max(whole_start);
        if whole_start < whole_end {
            self.port.trim(Lpa(whole_start / PAGE), (whole_end - whole_start) / PAGE)?;
        }
        for (from, to) in [(at, whole_start), (whole_end, end)] {
            // At most a page each; without a whole page between them they may lie on one.
            if from < to {
                self.write(from, &ZEROS[..(to - from) as usize])?;
            }
        }
        Ok(())
    }

    /// Makes every completed write durable.
    pub(crate) fn flush(&self) -> Result<()> {
        self.port.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amphi_rt::{random, task};
    use amphi_ssd::{Profile, Ssd};

    const SIZE: usize = 4 << 20;

    fn disk(profile: &str) -> Disk<Ssd> {
        let profile = Profile::named(profile).expect("a built-in profile");
        Disk::new(Arc::new(Ssd::in_memory(&profile, SIZE as u64)))
    }

    fn contents(disk: &Disk<Ssd>, at: u64, len: usize) -> Vec<u8> {
        let mut buffer = Vec::new();
        let range = disk.read(at, len, &mut buffer).expect("a read");
        buffer[range].to_vec()
    }

    /// Against an array of bytes: writes and discards of any place and length, short and beyond the largest
    /// command.
    #[test]
    fn it_is_an_array_of_bytes() {
        for seed in 1..=8_u64 {
            let mut number = seed;
            let mut below = |limit: usize| {
                number =
                    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (number >> 33) as usize % limit
            };
            let disk = disk("free");
            let mut model = vec![0_u8; SIZE];
            for step in 0..150_u64 {
                let unit = [1, 512, PAGE_BYTES][below(3)];
                let longest = [700, 3 * PAGE_BYTES, 1_300_000][below(3)];
                let at = below(SIZE) / unit * unit;
                let len = (below(longest) / unit * unit).min(SIZE - at);
                let fill = (step % 255 + 1) as u8;
                if below(4) == 0 {
                    disk.discard(at as u64, len as u64).unwrap();
                    model[at..at + len].fill(0);
                } else {
                    assert_eq!(disk.write(at as u64, &vec![fill; len]).unwrap(), len);
                    model[at..at + len].fill(fill);
                }
                let from = at.saturating_sub(5000);
                let seen = contents(&disk, from as u64, len + 10_000);
                assert!(
                    seen == model[from..(at + len + 5000).max(from + len + 10_000).min(SIZE)],
                    "seed {seed} step {step}"
                );
            }
            assert!(contents(&disk, 0, SIZE) == model, "seed {seed}");
        }
    }

    #[test]
    fn beyond_the_end_there_is_nothing() {
        let disk = disk("free");
        let end = SIZE as u64;
        assert_eq!(contents(&disk, end, 10), b"");
        assert_eq!(contents(&disk, u64::MAX, 10), b"");
        assert_eq!(disk.write(end, b"x").unwrap(), 0);
        assert_eq!(disk.write(end - 2, b"xyz").unwrap(), 2);
        assert_eq!(contents(&disk, end - 3, 10), b"\0xy");
        disk.discard(end - 1, u64::MAX).unwrap();
        disk.discard(u64::MAX, u64::MAX).unwrap();
        assert_eq!(contents(&disk, end - 3, 10), b"\0x\0");
    }

    /// Tasks that own the bytes of one page in turns of 512: none may undo another's.
    #[test]
    fn neighbours_in_one_page_do_not_undo_each_other() {
        const TASKS: usize = 8;
        amphi_rt::Sim::new(5).run(|| {
            // Its commands take time, in which others run.
            let disk = Arc::new(disk("mssd-pcie3"));
            let mut tasks = Vec::new();
            for owner in 0..TASKS {
                let disk = Arc::clone(&disk);
                tasks.push(task::spawn("owner", move || {
                    for round in 1..=40_u8 {
                        let at = (owner * 512) as u64;
                        disk.write(at, &[round; 512]).unwrap();
                        amphi_rt::time::sleep_ns(random::below(50));
                        assert_eq!(contents(&disk, at, 512), [round; 512], "owner {owner}");
                    }
                }));
            }
            for task in tasks {
                task.join();
            }
        });
    }
}
