//! Tasks beside each other on a device that takes its time, and power cuts.

use std::sync::Arc;

use amphi_fs_f2fslike::F2fsLike;
use amphi_rt::random::Generator;
use amphi_rt::{Sim, task};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};
use amphi_volume::{FormatOptions, Volume};

use crate::small::{check, mount};

fn timed() -> Arc<Ssd> {
    let mut profile = Profile::named("mssd-pcie3").expect("the profile exists");
    profile.firmware.kind = Firmware::PageCache;
    (profile.flash.channels, profile.flash.ways, profile.flash.pages_per_block) = (1, 1, 16);
    profile.firmware.memory_bytes = 1 << 20;
    Arc::new(Ssd::try_in_memory(&profile, 32 << 20, &OpenOptions::default()).expect("an SSD in memory"))
}

/// Appends some pages at a time to one file until the power fails.
fn append(fs: &F2fsLike<Ssd>) -> Option<()> {
    let name = Name::new(b"file").expect("a valid name");
    let made = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT).ok()?;
    loop {
        for times in 0..40 {
            fs.write(made.attr.ino, times * 12_288, &[7; 12_288], WriteMode::default(), &Cred::ROOT).ok()?;
            fs.fsync(made.attr.ino, false).ok()?;
        }
        let cut = amphi_vfs::SetAttr { size: Some(0), ..amphi_vfs::SetAttr::default() };
        fs.setattr(made.attr.ino, &cut, &Cred::ROOT).ok()?;
    }
}

/// Makes one checkpoint after the other until the power fails.
fn checkpoint(fs: &F2fsLike<Ssd>) -> Option<()> {
    let name = Name::new(b"directory").expect("a valid name");
    loop {
        fs.mkdir(Ino::ROOT, name, 0o755, &Cred::ROOT).ok()?;
        fs.fsync(Ino::ROOT, false).ok()?;
        fs.rmdir(Ino::ROOT, name).ok()?;
        fs.fsync(Ino::ROOT, false).ok()?;
    }
}

/// A checkpoint that came between a file's pages and its size knew pages behind the end.
#[test]
fn no_checkpoint_comes_between_a_files_pages_and_its_size() {
    for seed in 0..30 {
        Sim::new(seed).run(|| {
            let ssd = timed();
            <F2fsLike<Ssd> as Volume<Ssd>>::format(&ssd, &FormatOptions::default())
                .expect("it is large enough");
            let fs = Arc::new(mount(&ssd, 1000, false));
            ssd.cut_after_steps(Generator::new(seed).below(3000), seed);
            let other = Arc::clone(&fs);
            let beside = task::spawn("checkpoints", move || checkpoint(&other));
            assert_eq!(append(&fs), None, "it ends with the power");
            assert_eq!(beside.join(), None);
            drop(fs);
            ssd.power_cut(seed);
            let ssd = Arc::into_inner(ssd).expect("nobody else has it").restart().expect("it powers up");
            let ssd = Arc::new(ssd);
            mount(&ssd, 1000, false).unmount().expect("the device works");
            check(&ssd);
        });
    }
}
