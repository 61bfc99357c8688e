//! `golden/ext4like-v1.pages` was written by the first program that wrote version 1 of the format. It is read
//! for ever: everything in it is still there. The file holds each block that is not all zeros: its number in
//! four little-endian bytes, then its 4096 bytes. `AMPHI_WRITE_GOLDEN=1 cargo test -p amphi-fs-ext4like
//! golden::` writes it anew.

use std::path::PathBuf;
use std::sync::Arc;

use amphi_device::PAGE_BYTES;
use amphi_fs_ext4like::{Ext4Like, MountOptions, format::VERSION, fsck, probe};

use crate::image::{Blocks, contents, device, furnished, quiet, walk};

fn path(ending: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../golden/ext4like-v{VERSION}.{ending}"))
}

#[test]
fn the_golden_image_reads_as_it_did_when_it_was_written() {
    if std::env::var_os("AMPHI_WRITE_GOLDEN").is_some() {
        let device = furnished();
        let blocks = contents(&device);
        let bytes: Vec<u8> = blocks
            .iter()
            .flat_map(|(number, block)| [&(*number as u32).to_le_bytes()[..], block].concat())
            .collect();
        std::fs::write(path("pages"), bytes).expect("written");
        let fs = Ext4Like::mount(device, quiet()).expect("it can be mounted");
        std::fs::write(path("txt"), walk(&fs).expect("it can be read")).expect("written");
    }
    let file = std::fs::read(path("pages")).expect("the golden image exists");
    let (pages, rest) = file.as_chunks::<{ 4 + PAGE_BYTES }>();
    assert!(rest.is_empty() && pages.len() > 20);
    let blocks: Blocks = pages
        .iter()
        .map(|page| {
            let (number, block) = page.split_first_chunk::<4>().expect("four bytes of number");
            (u64::from(u32::from_le_bytes(*number)), *block.first_chunk().expect("a block"))
        })
        .collect();
    let device = device(&blocks);
    let report = fsck::check(&device).expect("it can be checked");
    assert_eq!(report.findings, []);
    assert_eq!(probe(&*device).expect("it has a superblock").label, "golden");
    let read_only = MountOptions { read_only: true, ..quiet() };
    let fs = Ext4Like::mount(Arc::clone(&device), read_only).expect("it can be mounted");
    let text = std::fs::read_to_string(path("txt")).expect("the golden text exists");
    assert_eq!(walk(&fs).expect("it can be read"), text);
    drop(fs);
    assert!(contents(&device) == blocks, "a mount that is read-only has changed the device");
}
