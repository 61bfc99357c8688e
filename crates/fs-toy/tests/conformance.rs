//! The toy keeps the promises of `vfs::FileSystem` as the others do, answers random operations as the model
//! does, and its tasks get in each other's way without waiting for ever.

use std::sync::Arc;

use amphi_conformance::{check_all, check_read_only};
use amphi_fs_toy::Toy;
use amphi_memory_device::Memory;
use amphi_rt::Sim;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, Result, WriteMode};
use amphi_volume::{FormatOptions, MountOptions, Volume};

fn make(pages: usize, cached_inodes: usize) -> Toy<Memory> {
    let device = Arc::new(Memory::new(vec![0; pages * 4096]));
    <Toy<Memory> as Volume<Memory>>::format(&device, &FormatOptions::default()).expect("it is large enough");
    mount(&device, cached_inodes, false)
}

fn mount(device: &Arc<Memory>, cached_inodes: usize, read_only: bool) -> Toy<Memory> {
    let options = MountOptions { inode_cache: Some(cached_inodes), read_only, ..MountOptions::default() };
    Volume::mount(device, &options).expect("what was made can be mounted")
}

fn roomy() -> Toy<Memory> {
    make(64 << 10, 10_000)
}

/// So few inodes in memory that they come and go all the time, and a log that begins anew often.
fn cramped() -> Toy<Memory> {
    make(8 << 10, 3)
}

fn remount(toy: Toy<Memory>, read_only: bool) -> Toy<Memory> {
    let device = Arc::clone(toy.device());
    Volume::unmount(toy).expect("memory does not fail");
    mount(&device, 3, read_only)
}

fn crash(toy: Toy<Memory>) -> Toy<Memory> {
    let device = Arc::clone(toy.device());
    drop(toy);
    mount(&device, 3, false)
}

#[test]
fn keeps_the_promises() {
    check_all(roomy);
    check_all(cramped);
    check_read_only(roomy, |toy| remount(toy, true));
    Sim::new(1).run(|| check_all(roomy));
}

amphi_conformance::random_tests!(seeds: 160, roomy, cramped, |toy| remount(toy, false), crash);

amphi_conformance::one_tree_tests!("amphi-fs-toy", 0..100, |_| cramped());

/// The nth file, which has 5000 bytes of n.
fn name(number: u8) -> Vec<u8> {
    format!("file {number}").into_bytes()
}

fn make_file(toy: &Toy<Memory>, number: u8) -> Result<()> {
    let made = toy.create(Ino::ROOT, Name::new(&name(number))?, FileType::Regular, 0o644, 0, &Cred::ROOT)?;
    toy.write(made.attr.ino, 0, &[number; 5000], WriteMode::default(), &Cred::ROOT)?;
    // So the log of a small device begins anew, and has room.
    match number.checked_sub(10) {
        Some(old) => toy.unlink(Ino::ROOT, Name::new(&name(old))?).map(drop),
        None => Ok(()),
    }
}

/// Power goes at every change of the device in turn.
#[test]
fn what_was_acknowledged_is_there_after_a_loss_of_power() {
    for changes in 0..160 {
        let device = Arc::new(Memory::new(vec![0; 256 * 4096]));
        <Toy<Memory> as Volume<Memory>>::format(&device, &FormatOptions::default())
            .expect("it is large enough");
        let toy = mount(&device, 10, false);
        device.lose_power_after(changes);
        let made = (0..40).take_while(|number| make_file(&toy, *number).is_ok()).count() as u8;
        drop(toy);
        device.power_on();
        let report = <Toy<Memory> as Volume<Memory>>::check(&device, &mut |_| {}).expect("it can be checked");
        assert!(report.is_clean(), "after {changes} changes: {:?}", report.findings);
        let toy = mount(&device, 10, false);
        for number in made.saturating_sub(9)..made {
            let name = name(number);
            let found = toy.lookup(Ino::ROOT, Name::new(&name).expect("valid")).expect("it was acknowledged");
            let mut bytes = [0; 5001];
            let read = toy.read(found.attr.ino, 0, &mut bytes, false).expect("it can be read");
            assert_eq!((read, bytes[0], bytes[4999]), (5000, number, number), "after {changes} changes");
        }
    }
}
