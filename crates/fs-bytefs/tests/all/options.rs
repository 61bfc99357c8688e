//! Mount options as people write them.

use amphi_fs_bytefs::{DataMode, MetadataMode, MountOptions, Variant};

#[test]
fn options_are_read_as_people_write_them() {
    let mut options = MountOptions::default();
    options
        .set_all(
            "data=journal,metadata=grouped,group=64K,variant=log,threshold=16,cache=64M,dirty=1M,\
             inodes=100,commit=0,writes=sync",
        )
        .unwrap();
    let due = MountOptions {
        read_only: false,
        data: DataMode::Journal,
        metadata: MetadataMode::Grouped,
        group_bytes: 64 << 10,
        variant: Variant::Log,
        byte_threshold: 16,
        page_cache_pages: 16_384,
        dirty_pages: Some(256),
        inode_cache: 100,
        write_back_interval_ns: 0,
        sync_writes: true,
        ..MountOptions::default()
    };
    assert_eq!(options, due);
}

#[test]
fn impossible_options_are_refused_with_what_would_do() {
    for bad in [
        "data=writeback",
        "metadata=lazy",
        "group=1K",
        "variant=",
        "threshold=0",
        "threshold=65",
        "cache=1",
        "cache=99999999999G",
        "dirty=x",
        "commit=-1",
        "writes=",
    ] {
        let error = MountOptions::default().set_all(bad).unwrap_err();
        assert!(error.contains(bad), "{error}");
    }
    assert!(MountOptions::default().set_all("fast").unwrap_err().contains("`fast`"));
}
