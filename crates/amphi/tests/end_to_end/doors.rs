//! Mounts that programs call by a queue or in a range beside the kernel, and programs that do so or not.

use std::process::{Child, Command};

use crate::accelerated::library;
use crate::rig::{self, Rig, amphi_ok, can_mount};
use crate::shared;

/// Has a test use a file system's mount that offers a queue. It is whole afterwards.
pub fn by_queue(file_system: &str, test: impl FnOnce(&Rig, &str)) {
    if can_mount() {
        on(&Rig::of(file_system, "1G"), Rig::mount, |rig| test(rig, file_system));
    }
}

/// Has a test use a mount of ByteFS in an unprotected range. It is whole afterwards.
pub fn in_a_range(test: impl FnOnce(&Rig, &str)) {
    if can_mount() {
        let mount = |rig: &Rig| shared::mount(rig, amphi_front_shared::Protection::Nothing);
        on(&Rig::new("1G"), mount, |rig| test(rig, "bytefs in a range"));
    }
}

fn on(rig: &Rig, mount: impl FnOnce(&Rig), test: impl FnOnce(&Rig)) {
    library();
    mount(rig);
    test(rig);
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}

/// A program and its arguments, by `amphi run` with these options, or without.
pub fn program(accelerated: Option<&[&str]>, arguments: &[&str]) -> Command {
    match accelerated {
        Some(options) => {
            let mut command = rig::command(&["run"]);
            command.args(options).arg("--").args(arguments);
            command
        }
        None => {
            let mut command = Command::new(arguments[0]);
            command.args(&arguments[1..]);
            command
        }
    }
}

/// Waits for a program, which has to succeed. `tests` are those that `seed` replays.
pub fn succeeds(child: Child, what: &str, tests: &str, seed: u64) {
    let output = child.wait_with_output().expect("ends");
    let said = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned());
    assert!(
        output.status.success(),
        "{what}, {}: {said:?}\nreplay with: AMPHI_SEED={seed} cargo test -p amphi --test end_to_end {tests} \
         (which program is faster is chance)",
        output.status
    );
}
