//! What the inodes of many files cost in host memory: makes files in directories of a thousand, keeps the
//! kernel's reference to each as a mount does, and prints what the process has grown by.
//!
//! ```sh
//! cargo run --release -p amphi-fs-bytefs --example many_files -- 1000000 262144
//! ```
//!
//! The arguments are the number of files and that of inodes to keep in memory (`-o inodes=`).

use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_ssd::{OpenOptions, Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name};

const FILES_PER_DIRECTORY: usize = 1000;

/// A size of this process that `/proc` tells, KB.
fn status_kb(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs is mounted");
    let line = status.lines().find(|line| line.starts_with(field)).expect("the kernel tells it");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).expect("it is a number")
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|number| number.parse().expect("a number"));
    let files: usize = arguments.next().unwrap_or(1_000_000);
    let inode_cache = arguments.next().unwrap_or(262_144);
    let image = std::env::temp_dir().join(format!("amphi-many-files-{}", std::process::id()));
    let profile = Profile::named("free").expect("it is built in");
    Ssd::create(&image, &profile, 4 << 30).expect("the image can be made");
    let device = Arc::new(Ssd::open(&image, &OpenOptions::default()).expect("the image can be opened"));
    let inodes = (files + files / FILES_PER_DIRECTORY + 1000) as u32;
    let format = FormatOptions { inodes: Some(inodes), ..FormatOptions::default() };
    ByteFs::format(&*device, &format).expect("it can be formatted");
    let options = MountOptions { inode_cache, write_back_interval_ns: 0, ..MountOptions::default() };
    let fs = ByteFs::mount(device, options).expect("it can be mounted");
    let before = status_kb("RssAnon:");
    let mut dir = Ino::ROOT;
    for number in 0..files {
        let name = number.to_string();
        let name = Name::new(name.as_bytes()).expect("it is plain");
        if number % FILES_PER_DIRECTORY == 0 {
            dir = fs.mkdir(Ino::ROOT, name, 0o755, &Cred::ROOT).expect("there is room").attr.ino;
        }
        fs.create(dir, name, FileType::Regular, 0o644, 0, &Cred::ROOT).expect("there is room");
    }
    let grown = status_kb("RssAnon:") - before;
    println!("{files} files, {} inodes in memory: {} MB", fs.cached_inodes(), grown / 1024);
    drop(fs);
    std::fs::remove_file(&image).expect("the image can be removed");
}
