//! What a file system's test of damaged devices does with each of them, whichever it is: whatever is there,
//! using it ends in answers or errors.

use std::panic::{RefUnwindSafe, catch_unwind};

use amphi_rt::random::Generator;
use amphi_vfs::{
    Allocate, Cred, DirEntry, FileSystem, FileType, Ino, Name, RenameMode, Seek, SetAttr, WriteMode,
    XattrMode,
};

/// Names of the root that are used: a damaged directory may lead round in circles.
const NAMES: usize = 1000;
/// Bytes that a read asks for: more than most files have.
const READ_BYTES: usize = 400_000;

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a valid name")
}

/// Makes one of everything in the root: a small file behind a hole, with an attribute, a large one, which
/// `write_large` writes by offset and bytes, a directory, a symbolic link of so many bytes. Returns the large
/// file.
///
/// # Panics
/// If there is no room.
pub fn one_of_everything(
    fs: &dyn FileSystem,
    target_bytes: usize,
    write_large: impl FnOnce(&dyn Fn(u64, &[u8])),
) -> Ino {
    let make = |text: &str| {
        let made = fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
        made.expect("there is room").attr.ino
    };
    let put = |ino, offset, bytes: &[u8]| {
        fs.write(ino, offset, bytes, WriteMode::default(), &Cred::ROOT).expect("there is room");
    };
    let (small, large) = (make("small"), make("large"));
    put(small, 10, &[1; 300]);
    write_large(&|offset, bytes| put(large, offset, bytes));
    fs.mkdir(Ino::ROOT, name("dir"), 0o755, &Cred::ROOT).expect("there is room");
    fs.symlink(Ino::ROOT, name("link"), &vec![b'x'; target_bytes], &Cred::ROOT).expect("there is room");
    fs.setxattr(small, b"user.a", b"value", XattrMode::Set).expect("there is room");
    large
}

/// A word to put in the place of another: nothing, everything, a number that may mean something here, or
/// chance.
pub fn word(dice: &mut Generator) -> u64 {
    match dice.below(5) {
        0 => 0,
        1 => u64::MAX,
        2 => dice.below(600),
        3 => dice.below(600) << 32,
        _ => dice.next(),
    }
}

/// Uses whatever is in the root; errors are as good as answers. A second read of each file begins at `far`,
/// where the one who made the files put something behind a hole.
pub fn use_all(fs: &dyn FileSystem, far: u64) {
    let mut names = Vec::new();
    let _listed = fs.readdir(Ino::ROOT, 0, &mut |entry: DirEntry<'_>| {
        names.push((entry.ino, entry.name.to_vec()));
        names.len() < NAMES
    });
    let mut bytes = vec![0; READ_BYTES];
    for (ino, text) in &names {
        let _any = fs.getattr(*ino);
        let _any = fs.read(*ino, 0, &mut bytes, false);
        let _any = fs.read(*ino, far, &mut bytes, true);
        let _any = fs.readlink(*ino);
        let _any = fs.getxattr(*ino, b"user.a");
        let _any = fs.readdir(*ino, 0, &mut |_| true);
        let _any = fs.seek(*ino, 0, Seek::Hole);
        let _any = fs.write(*ino, 50, &[9; 20_000], WriteMode::default(), &Cred::ROOT);
        let _any = fs.fsync(*ino, false);
        let _any = fs.allocate(*ino, 1000, 50_000, Allocate::PunchHole, &Cred::ROOT);
        let cut = SetAttr { size: Some(700), ..SetAttr::default() };
        let _any = fs.setattr(*ino, &cut, &Cred::ROOT);
        if let Ok(text) = Name::new(text) {
            let _any = fs.rename(Ino::ROOT, text, Ino::ROOT, name("moved"), RenameMode::Replace);
            let _any = fs.unlink(Ino::ROOT, text);
        }
    }
    let _any = fs.mkdir(Ino::ROOT, name("new"), 0o755, &Cred::ROOT);
    let _any = fs.statfs();
    let _any = fs.sync();
}

/// Runs `case` with each seed below `usual`, or below `long` where `AMPHI_TEST_LONG` is set, or with
/// `AMPHI_SEED` alone.
///
/// # Panics
/// At the first case that does, with the command that replays it: the test is `damaged…` in `package`'s
/// hostile tests.
pub fn each_seed(package: &str, usual: u64, long: u64, case: impl Fn(u64) + RefUnwindSafe) {
    if let Ok(seed) = std::env::var("AMPHI_SEED") {
        return case(seed.parse().expect("AMPHI_SEED is a number"));
    }
    let cases = if std::env::var_os("AMPHI_TEST_LONG").is_some() { long } else { usual };
    for seed in 0..cases {
        assert!(
            catch_unwind(|| case(seed)).is_ok(),
            "replay with: AMPHI_SEED={seed} cargo test -p {package} damaged"
        );
    }
}
