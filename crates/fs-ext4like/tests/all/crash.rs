//! After a crash of the host, what was committed is there and nothing is torn: the journal is replayed,
//! orphans are deleted, and the file system can be used.

use std::sync::Arc;

use amphi_fs_ext4like::{DataMode, Ext4Like, FormatOptions, MountOptions};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::{Cred, Error, FileSystem, FileType, Ino, Name, SetAttr, WriteMode};

fn quiet(data: DataMode) -> MountOptions {
    MountOptions { commit_interval_ns: 0, data, ..MountOptions::default() }
}

fn device() -> Arc<Ssd> {
    let mut profile = Profile::named("mssd-pcie3").expect("a built-in profile");
    profile.firmware.kind = Firmware::PageCache;
    let options = OpenOptions { free: true, ..OpenOptions::default() };
    let device = Arc::new(Ssd::try_in_memory(&profile, 16 << 20, &options).expect("16 MB in memory"));
    Ext4Like::format(&*device, &FormatOptions::default()).expect("it can be formatted");
    device
}

fn mount(device: &Arc<Ssd>, data: DataMode) -> Ext4Like<Ssd> {
    let report = amphi_fs_ext4like::fsck::check(device).expect("the image can be checked");
    assert!(report.is_clean(), "fsck before mounting: {:#?}", report.findings);
    Ext4Like::mount(Arc::clone(device), quiet(data)).expect("it can be mounted")
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a valid name")
}

fn make(fs: &Ext4Like<Ssd>, text: &str) -> Ino {
    fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT)
        .expect("it can be made")
        .attr
        .ino
}

fn put(fs: &Ext4Like<Ssd>, ino: Ino, offset: u64, data: &[u8]) {
    assert_eq!(fs.write(ino, offset, data, WriteMode::default(), &Cred::ROOT), Ok(data.len()));
}

fn contents(fs: &Ext4Like<Ssd>, text: &str) -> Vec<u8> {
    let attr = fs.lookup(Ino::ROOT, name(text)).expect("the name is there").attr;
    let mut bytes = vec![0xEE; attr.size as usize];
    assert_eq!(fs.read(attr.ino, 0, &mut bytes, false), Ok(bytes.len()));
    bytes
}

#[test]
fn what_was_synced_survives_and_what_was_not_is_gone_as_a_whole() {
    for data in [DataMode::Ordered, DataMode::Journal] {
        let device = device();
        let fs = mount(&device, data);
        let kept = make(&fs, "kept");
        put(&fs, kept, 0, &[7; 10_000]);
        fs.fsync(kept, false).unwrap();
        let commits = fs.commits();
        make(&fs, "lost");
        fs.rename(Ino::ROOT, name("kept"), Ino::ROOT, name("moved"), amphi_vfs::RenameMode::Replace).unwrap();
        assert_eq!(fs.commits(), commits, "nothing asked for a commit");
        drop(fs);
        let fs = mount(&device, data);
        assert!(fs.replayed() > 0, "the crash left a journal");
        assert_eq!(contents(&fs, "kept"), [7; 10_000]);
        for gone in ["lost", "moved"] {
            assert_eq!(fs.lookup(Ino::ROOT, name(gone)), Err(Error::NotFound), "{gone}");
        }
        make(&fs, "lost");
        fs.unmount().unwrap();
        assert_eq!(mount(&device, data).replayed(), 0);
    }
}

#[test]
fn an_inode_that_has_left_memory_is_durable_after_its_fsync() {
    let device = device();
    let options = MountOptions { inode_cache: 1, ..quiet(DataMode::Ordered) };
    let fs = Ext4Like::mount(Arc::clone(&device), options).expect("it can be mounted");
    let kept = make(&fs, "kept");
    for number in 0..600 {
        make(&fs, &number.to_string());
    }
    assert!(fs.cached_inodes() < 300, "{} inodes are in memory", fs.cached_inodes());
    fs.fsync(kept, false).expect("it can be made durable");
    drop(fs);
    let fs = mount(&device, DataMode::Ordered);
    fs.lookup(Ino::ROOT, name("kept")).expect("it was durable");
}

#[test]
fn a_freed_directory_block_does_not_come_back_over_the_data_that_has_it_now() {
    const FIRST: usize = 500;
    let device = device();
    let fs = mount(&device, DataMode::Ordered);
    let fill = |text: &str, blocks: usize| {
        let file = make(&fs, text);
        put(&fs, file, 0, &vec![9; blocks * 4096]);
        fs.fsync(file, false).unwrap();
        fs.forget(file, 1);
    };
    // The directory's block, whose copy is in the journal, lies before a file's; the rest of the device is
    // full, so that what is freed is used again.
    let dir = fs.mkdir(Ino::ROOT, name("d"), 0o755, &Cred::ROOT).unwrap().attr.ino;
    fs.fsync(dir, false).unwrap();
    fs.forget(dir, 1);
    fill("first", FIRST);
    fill("rest", fs.statfs().unwrap().blocks_available as usize);
    let held_back = fs.statfs().unwrap().blocks_free as usize;
    fs.unlink(Ino::ROOT, name("first")).unwrap();
    fs.fsync(Ino::ROOT, false).unwrap();
    fill("end", held_back);
    fs.rmdir(Ino::ROOT, name("d")).unwrap();
    fs.fsync(Ino::ROOT, false).unwrap();
    fill("again", FIRST - held_back);
    drop(fs);
    let fs = mount(&device, DataMode::Ordered);
    for text in ["rest", "end", "again"] {
        assert!(
            contents(&fs, text).iter().all(|&byte| byte == 9),
            "a revoked block was written back over {text}"
        );
    }
}

#[test]
fn files_without_names_are_deleted_and_a_long_cut_is_finished() {
    let device = device();
    let fs = mount(&device, DataMode::Ordered);
    let before = fs.statfs().unwrap();
    let open = make(&fs, "open");
    put(&fs, open, 0, &[1; 50_000]);
    fs.open(open, amphi_vfs::OpenFlags::default()).unwrap();
    fs.unlink(Ino::ROOT, name("open")).unwrap();
    let unnamed = fs.tmpfile(Ino::ROOT, 0o600, &Cred::ROOT).unwrap().attr.ino;
    put(&fs, unnamed, 0, &[2; 50_000]);
    fs.fsync(unnamed, false).unwrap();
    drop(fs);
    let fs = mount(&device, DataMode::Ordered);
    let after = fs.statfs().unwrap();
    assert_eq!((after.blocks_free, after.inodes_free), (before.blocks_free, before.inodes_free));
}

#[test]
fn a_file_cut_and_grown_again_shows_zeros_after_a_crash() {
    let device = device();
    let fs = mount(&device, DataMode::Ordered);
    let file = make(&fs, "f");
    put(&fs, file, 0, &[5; 4096]);
    fs.fsync(file, false).unwrap();
    let cut = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    fs.setattr(file, &cut(100), &Cred::ROOT).unwrap();
    // Commits the cut, and does not write the file's last page, which is zeros behind it in the cache only.
    fs.fsync(make(&fs, "other"), false).unwrap();
    drop(fs);
    let fs = mount(&device, DataMode::Ordered);
    assert_eq!(contents(&fs, "f"), [5; 100]);
    let file = fs.lookup(Ino::ROOT, name("f")).unwrap().attr.ino;
    fs.setattr(file, &cut(3000), &Cred::ROOT).unwrap();
    fs.fsync(file, false).unwrap();
    drop(fs);
    let bytes = contents(&mount(&device, DataMode::Ordered), "f");
    assert!(bytes[..100].iter().all(|&byte| byte == 5) && bytes[100..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_journal_that_wraps_many_times_keeps_everything() {
    for data in [DataMode::Ordered, DataMode::Journal] {
        let device = device();
        let fs = mount(&device, data);
        for round in 0..400 {
            let file = make(&fs, &format!("file-{round}"));
            put(&fs, file, 0, format!("contents of {round}").as_bytes());
            fs.fsync(file, false).unwrap();
            fs.forget(file, 1);
            if round % 3 == 2 {
                fs.unlink(Ino::ROOT, name(&format!("file-{}", round - 1))).unwrap();
            }
        }
        fs.fsync(Ino::ROOT, false).unwrap();
        drop(fs);
        let fs = mount(&device, data);
        for round in 0..400 {
            let text = format!("file-{round}");
            if round % 3 == 1 && round < 399 {
                assert_eq!(fs.lookup(Ino::ROOT, name(&text)), Err(Error::NotFound), "{text}");
            } else {
                assert_eq!(contents(&fs, &text), format!("contents of {round}").as_bytes(), "{text}");
            }
        }
    }
}
