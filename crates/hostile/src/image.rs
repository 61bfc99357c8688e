//! The image loader and what comes after it: an image with some bytes overwritten, behind renewed checksums
//! if the input wants that, opened and used.

use amphi_device::{BlockPort, BytePort, Device, Lpa, Structure, TxId, WriteLog};
use amphi_rt::sync::OnceCell;
use amphi_ssd::{OpenOptions, Ssd};

use crate::input::Input;

const TAG: Structure = Structure::Other;
/// Where docs/format/ssd-image.md says that things are.
const PAGE: usize = 4096;
const HEADERS: [usize; 2] = [0, PAGE];
const HEADER_CRC: usize = 124;
const PROFILE_BYTES: usize = 56;
const PROFILE_CRC: usize = 60;
const CONTROL: usize = 2 * PAGE;
const PROFILE: usize = 4 * PAGE;

/// An image with a little of everything in it.
fn whole() -> &'static [u8] {
    static IMAGE: OnceCell<Vec<u8>> = OnceCell::new();
    IMAGE.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("ssd.img");
        Ssd::create(&path, &crate::tiny(), 256 << 10).expect("a valid profile and capacity");
        let ssd = Ssd::open(&path, &free()).expect("what was just made opens");
        let capacity = ssd.capacity_pages();
        for lpa in 0..capacity {
            ssd.write(Lpa(lpa), &[lpa as u8; PAGE], TAG).expect("writes");
        }
        for number in 1..60_u32 {
            let at = Lpa(u64::from(number) % capacity).byte(number as usize * 64 % PAGE);
            let tx = TxId::new(number / 4 + 1);
            ssd.store(at, &[number as u8; 50], tx.filter(|_| number % 3 > 0), TAG).expect("stores");
            ssd.flush_lines(at, 50);
            ssd.fence();
            ssd.verify_read().expect("arrives");
            if number % 8 == 7 {
                ssd.commit(tx.expect("not zero")).expect("commits");
            }
        }
        ssd.trim(Lpa(3), 2).expect("trims");
        drop(ssd);
        std::fs::read(&path).expect("the image is there")
    })
}

fn free() -> OpenOptions {
    OpenOptions { free: true, ..OpenOptions::default() }
}

/// Damages an image as the input says, opens it, and uses it if it opens.
pub fn image(input: &[u8]) {
    let mut bytes = whole().to_vec();
    damage(&mut bytes, &mut Input::new(input));
    let Ok(ssd) = Ssd::from_image(&bytes, &free()) else { return };
    exercise(&ssd);
    let before = ssd.stats();
    // What a damaged device has made of itself must be an image again, or be refused by name.
    if let Ok(again) = ssd.restart() {
        exercise(&again);
        assert!(again.stats().commits >= before.commits.min(1), "counters do not vanish");
    }
}

fn damage(bytes: &mut Vec<u8>, input: &mut Input<'_>) {
    for _ in 0..64 {
        if input.is_empty() {
            break;
        }
        let limit = bytes.len() as u64;
        match input.u8() % 8 {
            // A field of the header, in one copy or both.
            0 | 1 => {
                let at = 8 * input.below(16) as usize;
                let value = input.telling(limit).to_le_bytes();
                let copies = if input.one_in(4) { &HEADERS[..1] } else { &HEADERS[..] };
                for copy in copies {
                    put(bytes, copy + at, &value);
                }
            }
            2 => put(bytes, CONTROL + 8 * input.below(12) as usize, &input.telling(60).to_le_bytes()),
            // The profile's text: a digit, a letter, a line end in place of another.
            3 => {
                let at = PROFILE + input.below(4096) as usize;
                put(bytes, at, input.take(2));
            }
            // A word of some structure: mapping, block words, transaction log, counters.
            4 | 5 => {
                let at = 8 * input.below(limit / 8) as usize;
                put(bytes, at, &input.telling(136).to_le_bytes());
            }
            6 => {
                let at = input.below(limit) as usize;
                let length = usize::from(input.u8() % 16);
                put(bytes, at, input.take(length));
            }
            _ => match input.u8() {
                0 => bytes.truncate(input.below(limit + 1) as usize),
                more => bytes.resize(bytes.len() + usize::from(more) * 64, more),
            },
        }
    }
    if input.u8() % 8 != 7 {
        renew_checksums(bytes);
    }
}

/// Overwrites as many bytes as there are.
fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    if let Some(there) = bytes.get_mut(at..) {
        let length = new.len().min(there.len());
        there[..length].copy_from_slice(&new[..length]);
    }
}

fn number(bytes: &[u8], at: usize) -> usize {
    bytes[at..at + 4].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Makes the checksums of the header's copies and of the profile those of what is there now.
fn renew_checksums(bytes: &mut [u8]) {
    for header in HEADERS {
        if bytes.len() < header + 128 {
            return;
        }
        let length = number(bytes, header + PROFILE_BYTES);
        if let Some(text) = bytes.get(PROFILE..PROFILE + length) {
            let crc = crc32c::crc32c(text).to_le_bytes();
            put(bytes, header + PROFILE_CRC, &crc);
        }
        let crc = crc32c::crc32c(&bytes[header..header + HEADER_CRC]).to_le_bytes();
        put(bytes, header + HEADER_CRC, &crc);
    }
}

/// Errors are fine; panics and endless loops are not.
fn exercise(ssd: &Ssd) {
    let pages = ssd.capacity_pages().min(128);
    let mut page = [0; PAGE];
    let _ = ssd.recover();
    for lpa in 0..pages {
        let _ = ssd.read(Lpa(lpa), &mut page, TAG);
        let _ = ssd.load(Lpa(lpa).byte(60), &mut page[..8], TAG);
        if lpa % 3 == 0 {
            let _ = ssd.write(Lpa(lpa), &page, TAG);
        } else {
            let _ = ssd.store(Lpa(lpa).byte(100), &page[..40], TxId::new(lpa as u32), TAG);
            ssd.flush_lines(Lpa(lpa).byte(100), 40);
            ssd.fence();
            let _ = ssd.verify_read();
        }
    }
    let _ = TxId::new(1).map(|tx| ssd.commit(tx));
    let _ = ssd.clean_log();
    let _ = ssd.trim(Lpa(1), pages / 2);
    let _ = ssd.flush();
    let _ = (ssd.stats(), ssd.info());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the format moves, this says so, instead of the damage missing its aim for ever.
    #[test]
    fn the_damage_hits_what_it_aims_at() {
        assert!(whole().len() < 4 << 20, "{} bytes to copy each time", whole().len());
        let refusal = |change: fn(&mut Vec<u8>)| {
            let mut bytes = whole().to_vec();
            change(&mut bytes);
            renew_checksums(&mut bytes);
            Ssd::from_image(&bytes, &free()).expect_err("refused").to_string()
        };
        Ssd::from_image(whole(), &free()).expect("the image itself opens");
        let capacity = refusal(|bytes| HEADERS.iter().for_each(|at| put(bytes, at + 32, &[0; 8])));
        assert!(capacity.contains("capacity of 0 pages"), "{capacity}");
        let profile = refusal(|bytes| put(bytes, PROFILE, b"nama"));
        assert!(profile.contains("nama"), "{profile}");
        let control = refusal(|bytes| put(bytes, CONTROL + 80, &[99]));
        assert!(control.contains("shutdown mark is 99"), "{control}");
        assert!(refusal(|bytes| bytes.truncate(bytes.len() - 1)).contains("truncated"));
        assert!(refusal(|bytes| bytes.truncate(3)).contains("not an Amphi image"));
    }
}
