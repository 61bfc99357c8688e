//! AugeFS on damaged records of its metadata store, which only who knows the format could write, and on
//! damaged bytes of both sides of the device: checked, mounted, walked, changed.

use std::sync::Arc;

use amphi_device::{BlockPort, BytePortExt, Lpa, PAGE_BYTES, Structure};
use amphi_fs_augefs::{AugeFs, FormatOptions, MountOptions};
use amphi_lsm::Store;
use amphi_rt::sync::OnceCell;
use amphi_ssd::{Firmware, Ssd};

use crate::input::Input;
use crate::used::{Damaged, change, furnish};

const MEMORY: u64 = 128 << 10;
const PAGES: u64 = 1024;
const META_PAGES: u32 = 256;

/// A device with a file system that has a little of everything, some of it behind the last checkpoint.
/// Forked, never used.
fn origin() -> &'static Ssd {
    static ORIGIN: OnceCell<Ssd> = OnceCell::new();
    ORIGIN.get_or_init(|| {
        let device = crate::with_memory(Firmware::Memory, MEMORY, PAGES);
        let format = FormatOptions {
            domains: 2,
            segment_blocks: 8,
            meta_pages: Some(META_PAGES),
            ..FormatOptions::default()
        };
        AugeFs::format(&device, &format).expect("the device is large enough");
        let mount = || AugeFs::mount(&device, mount_options()).expect("what was just formatted mounts");
        let fs = mount();
        furnish(&fs).expect("an empty file system has room");
        fs.unmount().expect("an idle file system unmounts");
        // A crash: this stays in the logs.
        let fs = mount();
        change(&fs).expect("there is room");
        drop(fs);
        Arc::into_inner(device).expect("nobody else has it").forkable().expect("memory")
    })
}

fn mount_options() -> MountOptions {
    MountOptions {
        checkpoint_interval_ns: 0,
        page_cache_pages: 64,
        inode_cache: 3,
        name_cache: 64,
        ..MountOptions::default()
    }
}

/// Damages records or bytes as the input says, then does with the file system what people do with one.
pub fn augefs_image(input: &[u8]) {
    let device = Arc::new(origin().fork().expect("memory"));
    let input = &mut Input::new(input);
    if input.one_in(3) {
        damage_bytes(&device, input);
    } else {
        damage_records(&device, input);
    }
    let damaged = Damaged {
        mount: |device| AugeFs::mount(device, mount_options()),
        is_sound: |report| report.errors == 0,
        change: |fs| drop(change(fs)),
    };
    damaged.on(&device);
}

/// Changes records of the store: all checksums are right.
fn damage_records(device: &Arc<Ssd>, input: &mut Input<'_>) {
    let store = Store::open(Arc::clone(device), Lpa(1), amphi_lsm::Options::default());
    let store = store.expect("the origin is sound");
    let all = store.range(&[], None).expect("the origin is sound").collect::<Result<Vec<_>, _>>();
    let all = all.expect("the origin is sound");
    for _ in 0..16 {
        if input.is_empty() {
            return;
        }
        let (mut key, mut value) = all[input.below(all.len() as u64) as usize].clone();
        match input.u8() % 8 {
            0 => {
                store.delete(&key).expect("the device works");
                continue;
            }
            // A value of another key, often of another kind.
            1 => value.clone_from(&all[input.below(all.len() as u64) as usize].1),
            2 => {
                let at = input.below(key.len() as u64) as usize;
                key[at] = input.u8();
            }
            3 => value.truncate(input.below(value.len() as u64 + 1) as usize),
            4 => value.extend_from_slice(input.take(20)),
            _ if value.is_empty() => {}
            kind => {
                let at = input.below(value.len() as u64) as usize;
                let width = if kind == 5 { 1 } else { 8.min(value.len() - at) };
                value[at..at + width].copy_from_slice(&input.telling(PAGES).to_le_bytes()[..width]);
            }
        }
        store.put(&key, &value).expect("the device works");
    }
}

/// Changes eight bytes of a page or of the memory area, several times.
fn damage_bytes(device: &Ssd, input: &mut Input<'_>) {
    for _ in 0..16 {
        if input.is_empty() {
            return;
        }
        let kind = input.u8();
        let word = input.telling(PAGES).to_le_bytes();
        if kind.is_multiple_of(4) {
            let at = input.below(MEMORY / 8) * 8;
            device.persist(at, &word, None, Structure::Other).expect("it is inside");
            continue;
        }
        let page = match kind % 4 {
            1 => 0,
            2 => input.below(META_PAGES.into()),
            _ => u64::from(META_PAGES) + input.below(100),
        };
        let mut bytes = [0; PAGE_BYTES];
        device.read(Lpa(page), &mut bytes, Structure::Other).expect("it is inside");
        let at = input.below(PAGE_BYTES as u64 - 8) as usize;
        bytes[at..at + 8].copy_from_slice(&word);
        device.write(Lpa(page), &bytes, Structure::Other).expect("it is inside");
    }
}

#[cfg(test)]
mod tests {
    use amphi_volume::Volume;

    use super::*;

    /// Errors that a check finds. `None`: it found no file system at all.
    fn errors(device: &Ssd) -> Option<u64> {
        let copy = Arc::new(device.fork().expect("memory"));
        <AugeFs<Ssd> as Volume<Ssd>>::check(&copy, &mut |_| ()).ok().map(|report| report.errors)
    }

    #[test]
    fn the_origin_is_sound_and_has_records_to_damage() {
        assert_eq!(errors(&origin().fork().expect("memory")), Some(0));
        augefs_image(&[]);
    }

    #[test]
    fn a_record_that_is_gone_is_found() {
        let device = Arc::new(origin().fork().expect("memory"));
        // Not one in three: records. The first record, deleted.
        damage_records(&device, &mut Input::new(&[0, 0, 0, 0]));
        assert_ne!(errors(&device), Some(0));
    }
}
