//! All threads that use a file system at once.

use std::sync::Arc;

use amphi_crashlab::subject::Fsync;
use amphi_rt::random::Generator;
use amphi_rt::task::{self, JoinHandle};
use amphi_vfs::{Cred, Error, FileSystem, FileType, Ino, Result};

use crate::appender::Appender;
use crate::lister::Lister;
use crate::publisher::Publisher;
use crate::writer::{SHARED, Stop, WRITERS, Writer, name, with};

/// Of each thread, until the power goes.
const OPERATIONS: u64 = 120;

/// Threads, and what each of them has.
pub struct Crew {
    writers: Vec<Writer>,
    appenders: Vec<Appender>,
    publishers: Vec<Publisher>,
    listers: Vec<Lister>,
}

/// A thread at work: it returns with why it did not go on.
type Work<T> = JoinHandle<(T, std::result::Result<(), Stop>)>;

/// Has a thread each do its operations.
fn begin<T: Send + 'static>(
    all: Vec<T>,
    fs: &Arc<dyn FileSystem>,
    dice: &mut Generator,
    step: impl Fn(&mut T, &dyn FileSystem, &mut Generator) -> std::result::Result<(), Stop>
    + Copy
    + Send
    + 'static,
) -> Vec<Work<T>> {
    let begin = |mut of: T| {
        let (fs, mut dice) = (Arc::clone(fs), Generator::new(dice.next()));
        task::spawn("writer", move || {
            let outcome = (0..OPERATIONS).try_for_each(|_| step(&mut of, &*fs, &mut dice));
            (of, outcome)
        })
    };
    all.into_iter().map(begin).collect()
}

/// Waits for threads. That the device failed is no news.
fn end<T>(work: Vec<Work<T>>) -> std::result::Result<Vec<T>, String> {
    let done: Vec<_> = work.into_iter().map(JoinHandle::join).collect();
    let all = (0..).zip(done).map(|(number, (of, outcome))| match outcome {
        Ok(()) | Err(Stop::Failed(Error::Io(_) | Error::ReadOnly)) => Ok(of),
        Err(Stop::Failed(error)) => Err(format!("thread {number}: {error}")),
        Err(Stop::Wrong(what)) => Err(what),
    });
    all.collect()
}

impl Crew {
    /// As many writers as there always are; so many that keep logs; and so many that replace files, and that
    /// list a directory.
    pub fn new(appenders: u64, others: u64) -> Self {
        Self {
            writers: (0..WRITERS).map(Writer::new).collect(),
            appenders: (0..appenders).map(Appender::new).collect(),
            publishers: (0..others).map(Publisher::new).collect(),
            listers: (0..others).map(Lister::new).collect(),
        }
    }

    /// Makes what each begins with.
    pub fn make(&self, fs: &dyn FileSystem) -> Result<()> {
        for writer in &self.writers {
            let made = fs.mkdir(Ino::ROOT, name(&writer.dir_name()), 0o755, &Cred::ROOT)?;
            with(fs, made, |_| fs.sync())?;
        }
        let shared = fs.create(Ino::ROOT, name(SHARED), FileType::Regular, 0o644, 0, &Cred::ROOT)?;
        with(fs, shared, |_| fs.sync())?;
        self.appenders.iter().try_for_each(|appender| appender.make(fs))?;
        if self.listers.is_empty() { Ok(()) } else { Lister::make(fs) }
    }

    /// Looks for what each has after a mount.
    pub fn find(&mut self, fs: &dyn FileSystem) -> Result<()> {
        self.writers.iter_mut().try_for_each(|writer| writer.find(fs))?;
        self.appenders.iter_mut().try_for_each(|appender| appender.find(fs))?;
        self.listers.iter_mut().try_for_each(|lister| lister.find(fs))
    }

    /// Has all of them work until they are through or something has failed. Answers what one found that it
    /// should not.
    pub fn work(
        self,
        fs: &Arc<dyn FileSystem>,
        dice: &mut Generator,
        fsync: Fsync,
    ) -> std::result::Result<Self, String> {
        let write = begin(self.writers, fs, dice, move |writer, fs, dice| writer.step(fs, dice, fsync));
        let append = begin(self.appenders, fs, dice, |appender, fs, dice| appender.step(fs, dice));
        let all = self.publishers.len() as u64;
        let publish = begin(self.publishers, fs, dice, move |one, fs, dice| one.step(fs, dice, all));
        let list = begin(self.listers, fs, dice, |lister, fs, dice| lister.step(fs, dice));
        // All of them, whatever one says: they hold the file system.
        let (writers, appenders, publishers, listers) = (end(write), end(append), end(publish), end(list));
        Ok(Self { writers: writers?, appenders: appenders?, publishers: publishers?, listers: listers? })
    }

    /// Has each read all that it has, while nobody does anything.
    pub fn judge_reader(&self, fs: &dyn FileSystem) -> std::result::Result<(), String> {
        let half_written = self.writers.iter().any(Writer::has_begun_slice);
        self.writers.iter().try_for_each(|writer| writer.judge_reader(fs, half_written))?;
        self.appenders.iter().try_for_each(|appender| appender.judge_reader(fs))?;
        self.publishers.iter().try_for_each(|publisher| publisher.judge_reader(fs))?;
        let half_changed = self.listers.iter().any(|lister| lister.is_busy);
        self.listers.iter().try_for_each(|lister| lister.judge(fs, half_changed))
    }

    /// Compares what a crash has left.
    pub fn judge(&mut self, fs: &dyn FileSystem) -> std::result::Result<(), String> {
        self.writers.iter_mut().try_for_each(|writer| writer.judge(fs))?;
        self.appenders.iter_mut().try_for_each(|appender| appender.judge(fs))?;
        self.publishers.iter_mut().try_for_each(|publisher| publisher.judge(fs))?;
        self.listers.iter().try_for_each(|lister| lister.judge(fs, false))
    }
}
