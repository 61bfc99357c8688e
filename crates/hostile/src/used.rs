//! What is done with a file system whose contents were damaged, whichever it is: something of everything is
//! made before; afterwards it is checked, mounted, walked, changed and mended.

use std::sync::Arc;

use amphi_device::PAGE_BYTES;
use amphi_ssd::Ssd;
use amphi_vfs::{Allocate, Cred, FileSystem, FileType, Ino, Name, RenameMode, WriteMode, XattrMode};
use amphi_volume::{Repair, Report, Result, Volume};

const PAGE: usize = PAGE_BYTES;
/// Names and directories that a walk looks at: a damaged tree may lead round in circles.
const WALK: usize = 600;
/// Places at which a loss of power may cut a repair off.
const PARTS: u64 = 7;
/// Steps to which a cut is armed that is never to come, so that steps are counted.
const NEVER: u64 = 1 << 40;

/// A file system that may be damaged, and how it is used.
pub struct Damaged<V> {
    /// Mounts it.
    pub mount: fn(&Arc<Ssd>) -> Result<V>,
    /// Whether a check that says so has found nothing that keeps anything from being read.
    pub is_sound: fn(&Report) -> bool,
    /// Changes what is there. Errors are fine; panics and endless loops are not.
    pub change: fn(&V),
}

impl<V: Volume<Ssd>> Damaged<V> {
    /// Does with a damaged device what people do with file systems. What the check calls sound can be read
    /// without errors; so can what a repair leaves sound, and no repair makes anything worse.
    pub fn on(&self, device: &Arc<Ssd>) {
        let copy = || Arc::new(device.fork().expect("memory"));
        let is_sound = V::check(&copy(), &mut |_| ()).is_ok_and(|report| (self.is_sound)(&report));
        match (self.mount)(&copy()) {
            Ok(fs) => self.use_it(fs, is_sound),
            Err(error) => assert!(!is_sound, "the check found nothing, and yet: {error}"),
        }
        let interrupted = copy();
        device.cut_after_steps(NEVER, 0);
        let Ok(repair) = V::repair(device, &mut |_| ()) else { return };
        let steps = NEVER - device.steps_before_cut().unwrap_or(NEVER);
        device.cut_after_steps(u64::MAX, 0);
        assert!(repair.after.errors <= repair.before.errors, "a repair makes nothing worse: {repair:?}");
        // Somewhere in it, as the damage has it.
        let part = repair.before.wrong() % PARTS + 1;
        Self::interrupt(interrupted, steps * part / (PARTS + 1), &repair);
        if (self.is_sound)(&repair.after) {
            let fs = (self.mount)(device).expect("what was mended mounts");
            self.use_it(fs, true);
        }
    }

    /// A repair that a loss of power cuts off is brought to its end by the next one.
    fn interrupt(device: Arc<Ssd>, step: u64, whole: &Repair) {
        device.cut_after_steps(step, step);
        // The power goes; or this repair takes fewer steps.
        let _any = V::repair(&device, &mut |_| ());
        let device = Arc::into_inner(device).expect("a repair keeps no device");
        device.power_cut(0);
        let device = Arc::new(device.restart().expect("the device powers up"));
        let again = V::repair(&device, &mut |_| ()).expect("what could be mended can be mended");
        assert!(
            again.after.errors <= whole.after.errors,
            "cut at step {step}: {again:?}, and else {whole:?}"
        );
    }

    fn use_it(&self, fs: V, is_sound: bool) {
        let walked = walk(&fs);
        assert!(walked.is_ok() || !is_sound, "nothing wrong was found, and yet: {walked:?}");
        (self.change)(&fs);
        let _any = fs.unmount();
    }
}

/// Makes something of everything.
pub fn furnish(fs: &dyn FileSystem) -> amphi_vfs::Result<()> {
    let (cred, how) = (&Cred::ROOT, WriteMode::default());
    let name = |bytes: &'static [u8]| Name::new(bytes);
    let docs = fs.mkdir(Ino::ROOT, name(b"docs")?, 0o755, cred)?.attr.ino;
    let file = fs.create(docs, name(b"file")?, FileType::Regular, 0o644, 0, cred)?.attr.ino;
    fs.write(file, 0, &[7; 10_000], how, cred)?;
    fs.setxattr(file, b"user.key", b"value", XattrMode::Set)?;
    fs.link(file, Ino::ROOT, name(b"second name")?)?;
    let sparse = fs.create(Ino::ROOT, name(b"sparse")?, FileType::Regular, 0o600, 0, cred)?.attr.ino;
    // Every other page: more extents than an inode holds, so that there are nodes.
    for page in 0..40 {
        fs.write(sparse, page * 2 * PAGE as u64, &[9; 100], how, cred)?;
    }
    fs.symlink(docs, name(b"short")?, b"file", cred)?;
    fs.symlink(docs, name(b"long")?, &[b'x'; 200], cred)?;
    fs.create(docs, name(b"pipe")?, FileType::Fifo, 0o600, 0, cred)?;
    for number in 0..40_u8 {
        let name = vec![b'a' + number % 26; 1 + usize::from(number) * 5];
        fs.create(docs, Name::new(&name)?, FileType::Regular, 0o644, 0, cred).ok();
    }
    fs.sync()
}

/// Looks at everything that the root leads to.
pub fn walk(fs: &dyn FileSystem) -> amphi_vfs::Result<()> {
    let mut left = vec![Ino::ROOT];
    let mut seen = 0;
    let mut outcome = Ok(());
    while let Some(dir) = left.pop() {
        let mut names = Vec::new();
        let mut count = 0;
        let listed = fs.readdir(dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            count += 1;
            count < WALK
        });
        outcome = outcome.and(listed);
        for name in names.into_iter().filter(|name| name != b"." && name != b"..") {
            seen += 1;
            if seen > WALK {
                return outcome;
            }
            outcome = outcome.and(visit(fs, dir, &name, &mut left));
        }
    }
    outcome
}

fn visit(fs: &dyn FileSystem, dir: Ino, name: &[u8], left: &mut Vec<Ino>) -> amphi_vfs::Result<()> {
    let attr = fs.lookup(dir, Name::new(name)?)?.attr;
    let mut into = [0; 2 * PAGE];
    let mut outcome = match attr.file_type {
        FileType::Directory => {
            left.push(attr.ino);
            Ok(())
        }
        FileType::Symlink => fs.readlink(attr.ino).map(drop),
        FileType::Regular => {
            let places = [0, attr.size / 2, attr.size.saturating_sub(PAGE as u64)];
            places.iter().try_for_each(|&at| fs.read(attr.ino, at, &mut into, false).map(drop))
        }
        _ => Ok(()),
    };
    match fs.listxattr(attr.ino) {
        Ok(keys) => {
            for key in keys {
                outcome = outcome.and(fs.getxattr(attr.ino, &key).map(drop));
            }
        }
        Err(error) => outcome = outcome.and(Err(error)),
    }
    fs.forget(attr.ino, 1);
    outcome
}

/// Changes something of everything.
pub fn change(fs: &dyn FileSystem) -> amphi_vfs::Result<()> {
    let (cred, how) = (&Cred::ROOT, WriteMode::default());
    let new = fs.create(Ino::ROOT, Name::new(b"new")?, FileType::Regular, 0o644, 0, cred)?.attr.ino;
    let outcomes = [
        fs.write(new, 3 * PAGE as u64, &[1; 3 * PAGE], how, cred).map(drop),
        fs.fsync(new, false),
        fs.allocate(new, 0, PAGE as u64, Allocate::PunchHole, cred),
        fs.rename(Ino::ROOT, Name::new(b"new")?, Ino::ROOT, Name::new(b"second name")?, RenameMode::Replace)
            .map(drop),
        fs.unlink(Ino::ROOT, Name::new(b"sparse")?).map(drop),
        fs.mkdir(Ino::ROOT, Name::new(b"directory")?, 0o755, cred).map(drop),
        fs.unlink(Ino::ROOT, Name::new(b"second name")?).map(drop),
        fs.sync(),
    ];
    fs.forget(new, 1);
    outcomes.into_iter().collect()
}
