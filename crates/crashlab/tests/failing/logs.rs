//! Logs on pinned windows that give way to each other, while the device fails: what one has given up may be
//! another's.

use std::sync::Arc;

use amphi_crashlab::rig::{Fault, Rig};
use amphi_crashlab::subject::{self, Size};
use amphi_rt::Sim;
use amphi_rt::random::Generator;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, WriteMode};

use super::interrupted::{after_power_cut, each_fault};
use super::long;
use super::others::{name, read};

const FILES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// An append-only file: what was written to it, and how much of that was synced.
struct Log {
    ino: Ino,
    written: Vec<u8>,
    synced: usize,
}

impl Log {
    /// Writes anew what is there from `at` on, as it is. Behind the parts that are pinned it goes below.
    fn touch(&self, fs: &dyn FileSystem, at: usize) {
        let end = self.written.len().min(at + 5000);
        let _any = fs.write(self.ino, at as u64, &self.written[at..end], WriteMode::default(), &Cred::ROOT);
    }

    /// Appends and syncs. What fails is tried again with the next append.
    fn append(&mut self, fs: &dyn FileSystem, byte: u8, bytes: usize) {
        let end = self.written.len() as u64;
        if let Ok(done) = fs.write(self.ino, end, &vec![byte; bytes], WriteMode::default(), &Cred::ROOT) {
            self.written.extend(std::iter::repeat_n(byte, done));
            if fs.fsync(self.ino, true).is_ok() {
                self.synced = self.written.len();
            }
        }
    }
}

/// Has more logs than the window has room for grow in turn, one command failing. Answers whether it did.
fn run(seed: u64, fault: Fault) -> Result<bool, String> {
    let subject = subject::named("ext4like-pins").expect("the subject exists");
    let device = subject::device("free", subject.firmware, Size::Cramped)?;
    let rig = Arc::new(Rig::plain(device));
    subject.format(&rig)?;
    let fs = subject.mount_forgetful(&rig)?;
    let make = |file: &str| {
        let made = fs.create(Ino::ROOT, name(file), FileType::Regular, 0o644, 0, &Cred::ROOT);
        made.map(|made| Log { ino: made.attr.ino, written: Vec::new(), synced: 0 })
            .map_err(|error| error.to_string())
    };
    let mut logs = FILES.iter().map(|file| make(file)).collect::<Result<Vec<_>, _>>()?;
    fs.sync().map_err(|error| error.to_string())?;
    rig.fail(Some(fault));
    let mut dice = Generator::new(seed);
    for round in 0..60 {
        let log = &mut logs[dice.below(FILES.len() as u64) as usize];
        if dice.below(3) == 0 && !log.written.is_empty() {
            log.touch(&*fs, dice.below(log.written.len() as u64) as usize);
        }
        log.append(&*fs, round + 1, dice.below(5000) as usize + 1);
    }
    let has_failed = rig.failed().is_some();
    drop(fs);
    let rig = after_power_cut(rig, seed)?;
    let fs = subject.mount(&rig)?;
    for (file, log) in FILES.iter().zip(&logs) {
        let found = read(&*fs, file).map_err(|error| error.to_string())?;
        let wrong = log.written[..log.synced].iter().zip(&found).position(|(due, found)| due != found);
        if found.len() < log.synced || wrong.is_some() {
            let (bytes, synced) = (found.len(), log.synced);
            return Err(format!(
                "{file} has {bytes} bytes, of {synced} that were synced; the first wrong one is {wrong:?}"
            ));
        }
    }
    Ok(has_failed)
}

#[test]
fn what_a_log_has_synced_is_there_although_another_failed_to_give_way() {
    let mut wrong = Vec::new();
    // Seeds 8 and 9 show a part that is written after it was flushed.
    for seed in 8..8 + 2 * long() {
        let found = each_fault(seed % 3, 3, |fault| Sim::new(seed).run(|| run(seed, fault)));
        wrong.extend(found.into_iter().map(|what| format!("seed {seed}, {what}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
