//! A file system with very many files is checked quickly and in modest memory.
//!
//! `AMPHI_FILES=1000000 cargo test --release -p amphi-fs-bytefs --test fsck_many_files -- --nocapture` gives
//! the figure for a million.

mod fsck_image;

use amphi_fs_bytefs::format::*;
use amphi_fs_bytefs::fsck;
use amphi_rt::time::now_ns;
use fsck_image::Image;
use zerocopy::FromZeros;

/// Files per directory.
const PER_DIRECTORY: u32 = 1000;

/// Most memory since the last [`forget_peak`], in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).map_or(0, |kib| kib / 1024)
}

/// Starts measuring the peak from what is resident now.
fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux resets the peak");
}

/// A root with `directories` directories of [`PER_DIRECTORY`] one-page files each.
fn build(files: u32, directories: u32) -> Image {
    // Data pages are never written or read, so their memory is never touched.
    let pages = u64::from(files) + u64::from(files) / 16 + 20_000;
    let mut image = Image::empty_of(pages, files + directories + 64);
    image.put_dir(ROOT_INO, ROOT_INO, 2 + directories);
    for dir in 0..directories {
        let ino = 2 + dir;
        image.put_dir(ino, ROOT_INO, 2);
        image.name(ROOT_INO, &format!("directory-{dir}"), ino, mode::DIRECTORY);
        for file in 0..PER_DIRECTORY {
            let ino = 2 + directories + dir * PER_DIRECTORY + file;
            let mut extent = Extent::new_zeroed();
            extent.lba = image.take(1).into();
            extent.pages = 1.into();
            image.put_file(ino, 1, 100, 0, &[extent], 1);
            image.name(2 + dir, &format!("file-{file}-of-{dir}"), ino, mode::REGULAR);
        }
    }
    image.write_dirs();
    image
}

#[test]
fn many_files_are_checked_quickly() {
    let files: u32 = std::env::var("AMPHI_FILES").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let directories = files / PER_DIRECTORY;
    // Built by another thread, so that the check does not find memory that the building left behind.
    let image = amphi_rt::task::spawn("build", move || build(files, directories)).join();
    let device = amphi_memory_device::Memory::new(image.bytes);
    forget_peak();
    let before = peak_mib();
    let start = now_ns();
    let report = fsck::check(&device, &mut |_| ()).expect("the device does not fail");
    let ms = (now_ns() - start) / 1_000_000;
    assert!(report.is_clean(), "{:?}", report.findings.first());
    assert_eq!(report.files, u64::from(directories * PER_DIRECTORY));
    let added = peak_mib() - before;
    println!("{files} files checked in {ms} ms with {added} MiB beside the image");
    // 20 µs and 128 B a file: the bound is 20 s for a million. A machine that does other things too gets more
    // time, unless a figure was asked for.
    let patience = if std::env::var_os("AMPHI_FILES").is_some() { 1 } else { 20 };
    assert!(ms < patience * (500 + u64::from(files) / 50), "{files} files took {ms} ms");
    assert!(added < 64 + u64::from(files) / 8192, "{files} files took {added} MiB");
}
