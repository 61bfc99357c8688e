//! Long random runs: a small tree with names that come and go, files that grow over many pages and shrink, so
//! much that on a small device the log is cleaned and flash is collected all the time.

use amphi_rt::random::Generator;
use amphi_trace::{How, Operation, Place};
use amphi_vfs::Allocate;

const DIRS: [&str; 4] = ["", "a/", "b/", "a/c/"];
const NAMES: [&str; 5] =
    ["x", "y", "d", "a", "a-name-that-takes-more-than-one-line-of-sixty-four-bytes-in-its-directory"];
const DIR_PATHS: [&str; 5] = ["a", "b", "a/c", "d", "a/a"];

fn path(dice: &mut Generator) -> String {
    format!("{}{}", DIRS[dice.below(4) as usize], NAMES[dice.below(5) as usize])
}

fn dir(dice: &mut Generator) -> String {
    DIR_PATHS[dice.below(5) as usize].to_owned()
}

fn offset(dice: &mut Generator) -> u64 {
    match dice.below(4) {
        0 => 0,
        1 => dice.below(200),
        2 => dice.below(20_000),
        _ => dice.below(100_000),
    }
}

/// One random operation.
pub fn operation(dice: &mut Generator) -> Operation {
    match dice.below(36) {
        0..4 => Operation::Create(path(dice)),
        4..7 => Operation::Mkdir(dir(dice)),
        7 => Operation::Symlink("t".repeat(1 + dice.below(120) as usize), path(dice)),
        8 => Operation::Link(path(dice), path(dice)),
        9 => Operation::Unlink(path(dice)),
        10 => Operation::UnlinkOpen(path(dice)),
        11 => Operation::Rmdir(dir(dice)),
        12 => Operation::Rename(dir(dice), dir(dice)),
        13..15 => Operation::Rename(path(dice), path(dice)),
        15 => Operation::Exchange(path(dice), path(dice)),
        16 => Operation::Chmod(path(dice), dice.below(0o7777) as u16),
        17 => Operation::Truncate(path(dice), offset(dice)),
        18..24 => {
            let how = [How::Buffered, How::Buffered, How::Direct, How::Mapped][dice.below(4) as usize];
            let len = if dice.below(2) == 0 { 1 + dice.below(300) } else { 1 + dice.below(9000) };
            let place = if dice.below(3) == 0 { Place::End } else { Place::At(offset(dice)) };
            Operation::Write(path(dice), how, place, len as u32)
        }
        24..28 => Operation::Fsync(path(dice), dice.below(2) == 0),
        28 if dice.below(3) == 0 => Operation::Discard,
        28 => Operation::Sync,
        29..31 => Operation::SetXattr(path(dice), dice.below(900) as u32),
        31 => Operation::RemoveXattr(path(dice)),
        32 => Operation::Chown(path(dice), dice.below(3) as u32, dice.below(3) as u32),
        33 => Operation::Utimens(path(dice), dice.below(1 << 60) as i64),
        _ => {
            let keep_size = dice.below(2) == 0;
            let what = [Allocate::Reserve { keep_size }, Allocate::PunchHole, Allocate::Zero { keep_size }]
                [dice.below(3) as usize];
            Operation::Allocate(path(dice), what, Place::At(offset(dice)), 1 + dice.below(40_000) as u32)
        }
    }
}

/// The run that a seed draws: 200 to 600 operations.
#[must_use]
pub fn operations(seed: u64) -> Vec<Operation> {
    let mut dice = Generator::new(seed);
    let length = 200 + dice.below(400);
    (0..length).map(|_| operation(&mut dice)).collect()
}
