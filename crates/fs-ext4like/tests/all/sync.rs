//! What `sync` and `fsync` send to the device is what the kernel's ext4 sends: how many commits, how many
//! flushes, which blocks.

use std::sync::Arc;

use amphi_device::{BlockPort, Device, Lpa, Structure};
use amphi_fs_ext4like::format::{JOURNAL_MAGIC, JournalHeader, REVOKE};
use amphi_fs_ext4like::{DataMode, Ext4Like, FormatOptions, MountOptions, fsck};
use amphi_rt::{Sim, task, time};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, Seek, WriteMode};
use zerocopy::FromBytes;

/// A device; with the times of `mssd-pcie3`, and then a count of flushes, if it `takes_time`.
fn device(takes_time: bool) -> Arc<Ssd> {
    let mut profile = Profile::named("mssd-pcie3").expect("a built-in profile");
    profile.firmware.kind = Firmware::PageCache;
    let options = OpenOptions { free: !takes_time, ..OpenOptions::default() };
    let device = Arc::new(Ssd::try_in_memory(&profile, 64 << 20, &options).expect("64 MB in memory"));
    Ext4Like::format(&*device, &FormatOptions::default()).expect("it can be formatted");
    device
}

fn mount(device: &Arc<Ssd>, data: DataMode) -> Ext4Like<Ssd> {
    let options = MountOptions { commit_interval_ns: 0, data, ..MountOptions::default() };
    Ext4Like::mount(Arc::clone(device), options).expect("it can be mounted")
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a valid name")
}

fn make(fs: &Ext4Like<Ssd>, text: &str) -> Ino {
    fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT).expect("a new name").attr.ino
}

fn put(fs: &Ext4Like<Ssd>, ino: Ino, offset: u64, data: &[u8]) {
    assert_eq!(fs.write(ino, offset, data, WriteMode::default(), &Cred::ROOT), Ok(data.len()));
}

/// What reached a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sent {
    flushes: u64,
    data_blocks: u64,
    journal_blocks: u64,
}

fn sent(device: &Ssd) -> Sent {
    let stats = device.stats();
    let blocks = |name: &str| {
        let of = stats.block_write.structures.iter().filter(|traffic| traffic.structure == name);
        of.map(|traffic| traffic.bytes / 4096).sum()
    };
    let flushes = stats.latencies.iter().filter(|latency| latency.command == "flush");
    Sent {
        flushes: flushes.map(|latency| latency.device.count).sum(),
        data_blocks: blocks("data"),
        journal_blocks: blocks("journal"),
    }
}

/// What `act` sends.
fn sending(fs: &Ext4Like<Ssd>, act: impl FnOnce()) -> Sent {
    let before = sent(fs.device());
    act();
    let after = sent(fs.device());
    Sent {
        flushes: after.flushes - before.flushes,
        data_blocks: after.data_blocks - before.data_blocks,
        journal_blocks: after.journal_blocks - before.journal_blocks,
    }
}

#[test]
fn a_sync_commits_twice_if_there_are_new_data_once_if_there_are_none_and_else_it_only_flushes() {
    Sim::new(1).run(|| {
        let fs = mount(&device(true), DataMode::Ordered);
        let file = make(&fs, "f");
        fs.sync().unwrap();
        let commits = fs.commits();
        make(&fs, "g");
        let names_only = sending(&fs, || fs.sync().unwrap());
        assert_eq!((fs.commits() - commits, names_only.flushes, names_only.data_blocks), (1, 2, 0));

        put(&fs, file, 0, &[1; 20_000]);
        let commits = fs.commits();
        let new_data = sending(&fs, || fs.sync().unwrap());
        assert_eq!((fs.commits() - commits, new_data.flushes, new_data.data_blocks), (2, 4, 5));

        let nothing = sending(&fs, || fs.sync().unwrap());
        assert_eq!(nothing, Sent { flushes: 1, data_blocks: 0, journal_blocks: 0 });
    });
}

#[test]
fn data_that_a_sync_overwrites_are_flushed_after_they_are_written() {
    Sim::new(1).run(|| {
        let fs = mount(&device(true), DataMode::Ordered);
        let file = make(&fs, "f");
        put(&fs, file, 0, &[1; 8192]);
        fs.sync().unwrap();
        time::sleep_ns(10_000_000);
        put(&fs, file, 0, &[2; 8192]);
        // The commit of the new time flushes before the data are waited for.
        let over = sending(&fs, || fs.sync().unwrap());
        assert_eq!((over.flushes, over.data_blocks), (3, 2));
    });
}

#[test]
fn many_more_pages_than_one_round_takes_are_synced() {
    const BYTES: usize = 12 << 20;
    let device = device(false);
    let fs = mount(&device, DataMode::Ordered);
    for file in ["large", "other"] {
        put(&fs, make(&fs, file), 0, &vec![7; BYTES]);
    }
    put(&fs, make(&fs, "small"), 0, &[8; 100]);
    let all = sending(&fs, || fs.sync().unwrap());
    assert_eq!(all.data_blocks as usize, 2 * BYTES / 4096 + 1);
    let commits = fs.commits();
    assert_eq!(sending(&fs, || fs.sync().unwrap()).data_blocks, 0);
    assert_eq!(fs.commits(), commits);
    drop(fs);
    let report = fsck::check(&device).expect("it can be checked");
    assert!(report.is_clean(), "{:#?}", report.findings);
    let fs = mount(&device, DataMode::Ordered);
    for (file, byte, len) in [("large", 7, BYTES), ("other", 7, BYTES), ("small", 8, 100)] {
        let ino = fs.lookup(Ino::ROOT, name(file)).expect("it was synced").attr.ino;
        let mut found = vec![0; len + 1];
        assert_eq!(fs.read(ino, 0, &mut found, false), Ok(len), "{file}");
        assert!(found[..len].iter().all(|&other| other == byte), "{file}");
    }
}

/// While a `sync` has a file's pages on their way, its blocks are still unwritten ones, which by themselves
/// would read as zeros and be no data.
#[test]
fn a_file_can_be_read_written_and_cut_while_a_sync_writes_it() {
    const PAGES: usize = 1000;
    for seed in 0..20 {
        Sim::new(seed).run(move || {
            let device = device(true);
            let options = MountOptions {
                commit_interval_ns: 0,
                page_cache_pages: PAGES + 10,
                dirty_pages: Some(PAGES + 10),
                ..MountOptions::default()
            };
            let fs = Ext4Like::mount(Arc::clone(&device), options).expect("it can be mounted");
            let other = make(&fs, "other");
            put(&fs, other, 0, &vec![6; PAGES * 4096]);
            fs.sync().unwrap();
            let file = make(&fs, "f");
            put(&fs, file, 0, &vec![3; PAGES * 4096]);
            task::scope(|scope| {
                let syncs = scope.spawn("sync", || fs.sync().unwrap());
                for turn in 0..40 {
                    time::sleep_ns(2_000 * (seed + 1));
                    // It wants room in the cache, which the other pages must not make while they are on their
                    // way.
                    let mut found = [0; 40_960];
                    fs.read(other, turn * 40_960, &mut found, false).unwrap();
                    assert_eq!(fs.seek(file, 0, Seek::Data), Ok(0), "turn {turn}");
                    let mut found = [0; 4096];
                    fs.read(file, turn * 40_960, &mut found, false).unwrap();
                    assert_eq!(found, [3; 4096], "turn {turn}");
                }
                put(&fs, file, PAGES as u64 * 4096 - 1, &[4; 2]);
                let cut = amphi_vfs::SetAttr { size: Some(5000), ..amphi_vfs::SetAttr::default() };
                fs.setattr(file, &cut, &Cred::ROOT).unwrap();
                put(&fs, file, 9000, &[5; 100]);
                syncs.join();
            });
            fs.sync().unwrap();
            drop(fs);
            let report = fsck::check(&device).expect("it can be checked");
            assert!(report.is_clean(), "seed {seed}: {:#?}", report.findings);
            let fs = mount(&device, DataMode::Ordered);
            let mut found = vec![9; 10_000];
            assert_eq!(fs.read(file, 0, &mut found, false), Ok(9100));
            let expected = [vec![3; 5000], vec![0; 4000], vec![5; 100]].concat();
            assert!(found[..9100] == expected[..], "seed {seed}");
        });
    }
}

#[test]
fn with_data_journaling_fsync_writes_the_data_in_place_too_and_flushes_a_third_time() {
    Sim::new(1).run(|| {
        let fs = mount(&device(true), DataMode::Journal);
        let file = make(&fs, "f");
        fs.sync().unwrap();
        put(&fs, file, 0, &[1; 8192]);
        let written = sending(&fs, || fs.fsync(file, false).unwrap());
        assert_eq!((written.flushes, written.data_blocks), (3, 2));
        let again = sending(&fs, || fs.fsync(file, false).unwrap());
        assert_eq!(again, Sent { flushes: 1, data_blocks: 0, journal_blocks: 0 });

        // What a sync writes in place is followed by a commit of nothing but its record.
        put(&fs, file, 0, &[2; 4096]);
        let commits = fs.commits();
        let synced = sending(&fs, || fs.sync().unwrap());
        assert_eq!((fs.commits() - commits, synced.flushes, synced.data_blocks), (2, 4, 1));
    });
}

/// Blocks of the device that revoke others.
fn revocations(device: &Ssd) -> usize {
    let mut block = [0; 4096];
    let mut found = 0;
    for lba in 0..device.capacity_pages() {
        device.read(Lpa(lba), &mut block, Structure::Journal).unwrap();
        let header = JournalHeader::ref_from_prefix(&block).expect("a block is longer").0;
        found += usize::from(header.magic.get() == JOURNAL_MAGIC && header.kind.get() == REVOKE);
    }
    found
}

fn revocations_of_a_removed_directory(data: DataMode) -> usize {
    let device = device(false);
    let fs = mount(&device, data);
    let dir = fs.mkdir(Ino::ROOT, name("d"), 0o755, &Cred::ROOT).unwrap().attr.ino;
    fs.fsync(dir, false).unwrap();
    fs.forget(dir, 1);
    fs.rmdir(Ino::ROOT, name("d")).unwrap();
    fs.fsync(Ino::ROOT, false).unwrap();
    revocations(&device)
}

#[test]
fn with_data_journaling_nothing_is_revoked_and_a_block_used_again_has_its_new_contents_after_a_crash() {
    const BLOCKS: usize = 600;
    let device = device(false);
    let fs = mount(&device, DataMode::Journal);
    let old = make(&fs, "old");
    put(&fs, old, 0, &vec![1; BLOCKS * 4096]);
    fs.fsync(old, false).unwrap();
    let dir = fs.mkdir(Ino::ROOT, name("d"), 0o755, &Cred::ROOT).unwrap().attr.ino;
    fs.fsync(dir, false).unwrap();
    fs.forget(dir, 1);
    fs.forget(old, 1);
    fs.unlink(Ino::ROOT, name("old")).unwrap();
    fs.rmdir(Ino::ROOT, name("d")).unwrap();
    fs.fsync(Ino::ROOT, false).unwrap();
    assert_eq!(revocations(&device), 0);
    assert!(revocations_of_a_removed_directory(DataMode::Ordered) > 0, "they would be seen");
    assert_eq!(revocations_of_a_removed_directory(DataMode::Journal), 0);
    // Everything that is free is used again.
    let free = fs.statfs().unwrap().blocks_available as usize;
    let new = make(&fs, "new");
    for part in 0..free / 256 {
        put(&fs, new, part as u64 * 256 * 4096, &vec![2; 256 * 4096]);
        fs.fsync(new, false).unwrap();
    }
    drop(fs);
    let fs = mount(&device, DataMode::Journal);
    let mut found = vec![0; 256 * 4096];
    for part in 0..free / 256 {
        fs.read(new, part as u64 * 256 * 4096, &mut found, false).unwrap();
        assert!(found.iter().all(|&byte| byte == 2), "part {part}");
    }
}
