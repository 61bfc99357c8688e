//! Mount options as people write them.

use amphi_fs_ext4like::{DataMode, MountOptions};

#[test]
fn options_are_read_as_people_write_them() {
    let mut options = MountOptions::default();
    options.set_all("data=journal,barrier=0,commit=0,cache=64M,dirty=1M,inodes=100").unwrap();
    let due = MountOptions {
        data: DataMode::Journal,
        barrier: false,
        commit_interval_ns: 0,
        page_cache_pages: 16_384,
        dirty_pages: Some(256),
        inode_cache: 100,
        ..MountOptions::default()
    };
    assert_eq!(options, due);
}

#[test]
fn impossible_options_are_refused_with_what_would_do() {
    for bad in ["data=writeback", "cache=1", "cache=99999999999G", "dirty=x", "commit=-1", "fast"] {
        let error = MountOptions::default().set_all(bad).unwrap_err();
        assert!(error.contains(bad) && error.contains("data=ordered"), "{error}");
    }
}
