//! Transactions that are grouped (`metadata=grouped`): what a loss of power leaves of operations that nobody
//! synced is what some number of them did, and the interval, a full group and an unmount make them durable.

use std::sync::Arc;
use std::time::Duration;

use amphi_fs_bytefs::{ByteFs, DataMode, FormatOptions, MetadataMode, MountError, MountOptions, fsck};
use amphi_rt::{Sim, time};
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};

fn options(interval: Duration) -> MountOptions {
    MountOptions {
        metadata: MetadataMode::Grouped,
        write_back_interval_ns: interval.as_nanos() as u64,
        ..MountOptions::default()
    }
}

fn mounted(options: MountOptions) -> ByteFs<Ssd> {
    let device = Arc::new(Ssd::in_memory(&Profile::named("free").expect("built in"), 64 << 20));
    ByteFs::format(&*device, &FormatOptions::default()).expect("it can be formatted");
    ByteFs::mount(device, options).expect("it can be mounted")
}

fn create(fs: &ByteFs<Ssd>, text: &str) -> Ino {
    let name = Name::new(text.as_bytes()).expect("a valid name");
    fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT).expect("created").attr.ino
}

fn is_there(fs: &ByteFs<Ssd>, text: &str) -> bool {
    fs.lookup(Ino::ROOT, Name::new(text.as_bytes()).expect("a valid name")).is_ok()
}

/// The file system after the power failed; the check finds nothing.
fn after_power_cut(fs: ByteFs<Ssd>) -> ByteFs<Ssd> {
    let device = Arc::clone(fs.device());
    device.power_cut(0);
    drop(fs);
    let device = Arc::into_inner(device).expect("nobody else has the device");
    let device = Arc::new(device.restart().expect("it powers up"));
    let fs = ByteFs::mount(Arc::clone(&device), options(Duration::ZERO)).expect("it can be mounted");
    let report = fsck::check(&*device, &mut |_| {}).expect("it can be checked");
    let wrong = report.findings.iter().find(|finding| finding.severity != fsck::Severity::Info);
    assert!(wrong.is_none(), "{wrong:?}");
    fs
}

#[test]
fn the_interval_makes_operations_durable() {
    Sim::new(1).run(|| {
        let fs = mounted(options(Duration::from_secs(1)));
        create(&fs, "early");
        time::sleep_ns(1_500_000_000);
        create(&fs, "late");
        let fs = after_power_cut(fs);
        assert!(is_there(&fs, "early"), "the interval went by");
        assert!(!is_there(&fs, "late"), "nobody synced it");
    });
}

#[test]
fn a_power_loss_leaves_a_prefix_of_what_was_done() {
    const FILES: usize = 700;
    let fs = mounted(options(Duration::ZERO));
    let name = |number: usize| format!("file-{number}");
    for number in 0..FILES {
        create(&fs, &name(number));
    }
    let commits = fs.device().stats().commits;
    assert!((2..FILES as u64 / 20).contains(&commits), "{commits} commits of {FILES} files");
    let fs = after_power_cut(fs);
    let left = (0..FILES).take_while(|number| is_there(&fs, &name(*number))).count();
    assert!((FILES / 2..FILES).contains(&left), "full groups are committed, the running one is not: {left}");
    assert!((left..FILES).all(|number| !is_there(&fs, &name(number))), "nothing beyond the first {left}");
}

#[test]
fn an_fsync_brings_what_was_done_before_it() {
    let fs = mounted(options(Duration::ZERO));
    create(&fs, "before");
    let ino = create(&fs, "synced");
    fs.write(ino, 0, b"some bytes", WriteMode::default(), &Cred::ROOT).expect("written");
    fs.fsync(ino, false).expect("synced");
    create(&fs, "after");
    let commits = fs.device().stats().commits;
    fs.fsync(ino, false).expect("synced");
    assert_eq!(fs.device().stats().commits, commits, "nothing of it is left to commit");
    let fs = after_power_cut(fs);
    assert!(is_there(&fs, "before") && is_there(&fs, "synced") && !is_there(&fs, "after"));
}

#[test]
fn synchronous_writes_and_unmounts_leave_nothing_behind() {
    let fs = mounted(options(Duration::ZERO));
    let ino = create(&fs, "synchronous");
    let mode = WriteMode { sync_data: true, ..WriteMode::default() };
    fs.write(ino, 0, b"some bytes", mode, &Cred::ROOT).expect("written");
    let fs = after_power_cut(fs);
    assert!(is_there(&fs, "synchronous"));
    create(&fs, "unmounted");
    let device = Arc::clone(fs.device());
    fs.unmount().expect("unmounted");
    let fs = ByteFs::mount(device, options(Duration::ZERO)).expect("it can be mounted");
    assert!(is_there(&after_power_cut(fs), "unmounted"));
}

#[test]
fn a_group_is_refused_with_what_it_does_not_go_with() {
    let device = Arc::new(Ssd::in_memory(&Profile::named("free").expect("built in"), 64 << 20));
    ByteFs::format(&*device, &FormatOptions::default()).expect("it can be formatted");
    let both = MountOptions { data: DataMode::Journal, ..options(Duration::ZERO) };
    assert!(matches!(ByteFs::mount(device, both), Err(MountError::Unsuitable(_))));
}
