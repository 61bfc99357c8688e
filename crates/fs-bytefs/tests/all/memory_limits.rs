//! The page cache keeps to its limits under load: frames, duplicates included, and dirty pages; what is used
//! often stays; the background writes back before writers must wait. The inode cache keeps to its limit,
//! however many inodes the kernel refers to.

use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, CacheUse, DataMode, FormatOptions, MountOptions, Variant};
use amphi_rt::{Sim, task, time};
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, Error, FileSystem, FileType, Ino, Name, OpenFlags, RenameMode, WriteMode};

const PAGE: usize = 4096;
/// Pages that one operation below is about.
const OPERATION: usize = 16;

fn options() -> MountOptions {
    MountOptions {
        page_cache_pages: 256,
        dirty_pages: Some(64),
        write_back_interval_ns: 0,
        ..MountOptions::default()
    }
}

fn mounted(options: MountOptions, profile: &str) -> Arc<ByteFs<Ssd>> {
    let profile = Profile::named(profile).expect("the profile is built in");
    let device = Arc::new(Ssd::in_memory(&profile, 128 << 20));
    ByteFs::format(&*device, &FormatOptions::default()).expect("it can be formatted");
    Arc::new(ByteFs::mount(device, options).expect("it can be mounted"))
}

fn create(fs: &ByteFs<Ssd>, number: usize) -> Ino {
    let name = format!("f{number}");
    let name = Name::new(name.as_bytes()).expect("a plain name");
    let entry = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
    entry.expect("there is room for a file").attr.ino
}

fn write(fs: &ByteFs<Ssd>, ino: Ino, page: usize, data: &[u8]) {
    let written = fs.write(ino, (page * PAGE) as u64, data, WriteMode::default(), &Cred::ROOT);
    assert_eq!(written, Ok(data.len()));
}

fn read(fs: &ByteFs<Ssd>, ino: Ino, page: usize, into: &mut [u8]) {
    assert_eq!(fs.read(ino, (page * PAGE) as u64, into, false), Ok(into.len()));
}

/// Each operation may be beyond the limits by what it is about, its duplicates included, when it ends.
#[track_caller]
fn assert_within(usage: CacheUse, tasks: usize) {
    assert!(usage.frames <= usage.frames_max + 2 * OPERATION * tasks, "{usage:?}");
    assert!(usage.dirty <= usage.dirty_max + OPERATION * tasks, "{usage:?}");
}

#[test]
fn writing_and_overwriting_many_files_stays_within_the_limits() {
    for options in [
        options(),
        MountOptions { data: DataMode::Journal, ..options() },
        MountOptions { variant: Variant::Log, ..options() },
    ] {
        let fs = mounted(options, "free");
        let files: Vec<Ino> = (0..20).map(|number| create(&fs, number)).collect();
        for round in 0..3_u8 {
            for page in (0..128).step_by(OPERATION) {
                for ino in &files {
                    write(&fs, *ino, page, &[round + 1; OPERATION * PAGE - 100]);
                    assert_within(fs.cache_use(), 1);
                }
            }
        }
        let mut bytes = vec![0; 60];
        for ino in &files {
            for page in 0..128 {
                read(&fs, *ino, page, &mut bytes);
                assert_eq!(bytes, [3; 60]);
                assert_within(fs.cache_use(), 1);
            }
        }
        fs.sync().expect("it can be synced");
        assert_eq!(fs.cache_use().dirty, 0);
        for (number, ino) in files.iter().enumerate() {
            let name = format!("f{number}");
            fs.forget(*ino, 1);
            fs.unlink(Ino::ROOT, Name::new(name.as_bytes()).expect("a plain name"))
                .expect("it can be removed");
        }
        assert_eq!((fs.cache_use().frames, fs.cache_use().dirty), (0, 0), "nothing is counted that is gone");
    }
}

#[test]
fn one_operation_larger_than_the_cache_does_not_fill_it() {
    let fs = mounted(options(), "free");
    let ino = create(&fs, 0);
    let large: Vec<u8> = (0..2000 * PAGE).map(|i| (i / 1000) as u8).collect();
    write(&fs, ino, 0, &large);
    assert_within(fs.cache_use(), 4);
    let mut found = vec![0; large.len()];
    read(&fs, ino, 0, &mut found);
    assert_within(fs.cache_use(), 4);
    assert!(found == large, "what was written is read");
}

#[test]
fn pages_in_use_outlast_a_scan() {
    let fs = mounted(options(), "free");
    let (hot, cold) = (create(&fs, 0), create(&fs, 1));
    write(&fs, hot, 0, &[1; 8 * PAGE]);
    for page in (0..4096).step_by(OPERATION) {
        write(&fs, cold, page, &[2; OPERATION * PAGE]);
    }
    fs.sync().expect("it can be synced");
    let pages_read = || fs.device().stats().block_read.bytes() / PAGE as u64;
    let mut bytes = vec![0; 8 * PAGE];
    read(&fs, hot, 0, &mut bytes);
    let mut reread = 0;
    for page in 0..4096 {
        read(&fs, cold, page, &mut bytes[..PAGE]);
        let before = pages_read();
        read(&fs, hot, page % 8, &mut bytes[..PAGE]);
        reread += pages_read() - before;
    }
    assert!(reread < 40, "of 4096 reads of 8 hot pages {reread} went to the device");
}

#[test]
fn writers_of_many_tasks_stay_within_the_limits_in_virtual_time() {
    Sim::new(3).run(|| {
        let fs = mounted(MountOptions { write_back_interval_ns: 5_000_000_000, ..options() }, "mssd-pcie3");
        let tasks: Vec<_> = (0..8)
            .map(|number| {
                let fs = Arc::clone(&fs);
                task::spawn("writer", move || {
                    let ino = create(&fs, number);
                    for page in 0..200 {
                        write(&fs, ino, page * 7 % 130, &[number as u8; OPERATION * PAGE]);
                        assert_within(fs.cache_use(), 8);
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(task::JoinHandle::join);
    });
}

#[test]
fn the_background_starts_long_before_its_interval_when_much_is_dirty() {
    Sim::new(4).run(|| {
        let hour = 3_600_000_000_000;
        let fs = mounted(MountOptions { write_back_interval_ns: hour, ..options() }, "mssd-pcie3");
        let ino = create(&fs, 0);
        write(&fs, ino, 0, &[1; 20 * PAGE]);
        time::sleep_ns(1_000_000_000);
        assert_eq!(fs.cache_use().dirty, 20, "a little that is dirty waits for the interval");
        write(&fs, ino, 20, &[1; 20 * PAGE]);
        time::sleep_ns(1_000_000_000);
        assert_eq!(fs.cache_use().dirty, 0, "half of the limit does not");
    });
}

/// What is deleted before it is old never travels, and a new file that gets its number is as young as it is.
#[test]
fn young_files_wait_until_they_are_old() {
    Sim::new(5).run(|| {
        let second = 1_000_000_000;
        let fs = mounted(
            MountOptions { write_back_interval_ns: second, dirty_expire_ns: 10 * second, ..options() },
            "mssd-pcie3",
        );
        write(&fs, create(&fs, 0), 0, &[1; PAGE]);
        time::sleep_ns(5 * second);
        assert_eq!(fs.cache_use().dirty, 1, "it is young");
        let gone = create(&fs, 1);
        write(&fs, gone, 0, &[2; PAGE]);
        time::sleep_ns(second);
        fs.forget(gone, 1);
        fs.unlink(Ino::ROOT, Name::new(b"f1").unwrap()).unwrap();
        time::sleep_ns(5 * second + second / 2);
        assert_eq!(fs.cache_use().dirty, 0, "the first one is old");
        let next = (2..100_000)
            .find_map(|number| {
                let ino = create(&fs, number);
                let name = format!("f{number}");
                if ino != gone {
                    fs.forget(ino, 1);
                    fs.unlink(Ino::ROOT, Name::new(name.as_bytes()).unwrap()).unwrap();
                }
                (ino == gone).then_some(ino)
            })
            .expect("the number of the one that is gone is given again");
        write(&fs, next, 0, &[3; PAGE]);
        time::sleep_ns(6 * second);
        assert_eq!(fs.cache_use().dirty, 1, "its number was old, it is not");
        time::sleep_ns(6 * second);
        assert_eq!(fs.cache_use().dirty, 0);
        fs.sync().unwrap();
    });
}

/// Each file with writes to come holds some blocks beyond its data, for extent nodes. Many small files held
/// far more than the device has, and a write failed on a device that was nearly empty.
#[test]
fn what_dirty_files_hold_beyond_their_data_does_not_fill_the_device() {
    Sim::new(1).run(|| {
        let fs = mounted(
            MountOptions { page_cache_pages: 65_536, dirty_pages: Some(32_768), ..options() },
            "free",
        );
        // 6,000 pages of 32,768, and as many times five held beyond them.
        for file in 0..6000 {
            write(&fs, create(&fs, file), 0, &[1; PAGE]);
        }
    });
}

#[test]
fn inodes_leave_memory_while_the_kernel_refers_to_them() {
    const FILES: usize = 60_000;
    const LIMIT: usize = 1000;
    let device = Arc::new(Ssd::in_memory(&Profile::named("free").expect("it is built in"), 512 << 20));
    let format = FormatOptions { inodes: Some(80_000), ..FormatOptions::default() };
    ByteFs::format(&*device, &format).expect("it can be formatted");
    let fs = ByteFs::mount(device, MountOptions { inode_cache: LIMIT, ..options() }).expect("it mounts");
    let within = |fs: &ByteFs<Ssd>| assert!(fs.cached_inodes() <= 2 * LIMIT, "{}", fs.cached_inodes());
    let named =
        |bytes: &str, body: &dyn Fn(Name<'_>)| body(Name::new(bytes.as_bytes()).expect("it is plain"));
    let unlink = |name: &str| {
        named(name, &|name| {
            fs.unlink(Ino::ROOT, name).expect("it goes");
        });
    };
    let mut files = Vec::new();
    for number in 0..FILES {
        files.push(create(&fs, number));
        within(&fs);
    }
    for (number, ino) in files.iter().enumerate() {
        named(&format!("f{number}"), &|name| {
            assert_eq!(fs.lookup(Ino::ROOT, name).expect("it is there").attr.ino, *ino);
        });
        within(&fs);
    }
    // Files that have been away for long are what they were, by number.
    let attr = fs.getattr(files[0]).expect("the number is good");
    assert_eq!((attr.ino, attr.nlink), (files[0], 1));
    fs.open(files[1], OpenFlags { write: true, ..OpenFlags::default() }).expect("it opens");
    write(&fs, files[1], 0, b"written after it was away");
    named("f2", &|name| {
        named("moved", &|to| {
            fs.rename(Ino::ROOT, name, Ino::ROOT, to, RenameMode::Replace).expect("it moves");
            assert_eq!(fs.lookup(Ino::ROOT, to).expect("it is there").attr.ino, files[2]);
        });
    });
    // Without a name a file lives as long as somebody refers to it, by the count from before it was away too.
    unlink("f3");
    for ino in files.iter().take(2 * LIMIT).skip(4) {
        fs.getattr(*ino).expect("the number is good");
    }
    assert_eq!(fs.getattr(files[3]).expect("two lookups refer to it").nlink, 0);
    fs.forget(files[3], 1);
    assert_eq!(fs.getattr(files[3]).expect("one lookup refers to it").nlink, 0);
    fs.forget(files[3], 1);
    assert_eq!(fs.getattr(files[3]), Err(Error::Stale(files[3])));
    // One that the kernel has forgotten while it was away goes with its name.
    fs.forget(files[4], 1);
    fs.forget(files[4], 1);
    unlink("f4");
    assert_eq!(fs.getattr(files[4]), Err(Error::Stale(files[4])));
    within(&fs);
}
