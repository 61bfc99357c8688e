//! The operations that are timed, what they mean on every kind of file system, and where they take place.

use amphi_rt::random::Generator;
use anyhow::Result;

/// One timed operation. *Durable* means that it survives a power failure when it returns: through system
/// calls an `fsync` of the directory follows, unless the file system promises durability on return to a
/// caller of its library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creates and closes an empty file.
    Create,
    /// The same, durable.
    CreateDurable,
    /// Creates a directory.
    Mkdir,
    /// The same, durable.
    MkdirDurable,
    /// Renames a file within its directory.
    Rename,
    /// The same, durable.
    RenameDurable,
    /// Removes a file's only name.
    Unlink,
    /// The same, durable.
    UnlinkDurable,
    /// Attributes by a path of two names.
    Stat,
    /// Opens a file by a path of two names, and closes it.
    Open,
    /// Creates a file, writes 4 KiB, `fsync`.
    CreateWriteSync,
    /// Writes 4 KiB at the end of a file, `fsync`.
    AppendSync,
    /// Writes so many bytes into an existing page, `fsync`. Pages are visited in no simple order.
    OverwriteSync(usize),
    /// Writes so many bytes into an existing page, and leaves it at that.
    Write(usize),
    /// Reads so many bytes that are cached.
    CachedRead(usize),
    /// Reads so many bytes past the page cache.
    DirectRead(usize),
    /// Writes 1 MiB over existing data, `fsync`.
    LargeWriteSync,
}

/// Every operation, in the order of the report.
pub const ALL: [Operation; 22] = [
    Operation::Create,
    Operation::CreateDurable,
    Operation::Mkdir,
    Operation::MkdirDurable,
    Operation::Rename,
    Operation::RenameDurable,
    Operation::Unlink,
    Operation::UnlinkDurable,
    Operation::Stat,
    Operation::Open,
    Operation::CreateWriteSync,
    Operation::AppendSync,
    Operation::OverwriteSync(64),
    Operation::OverwriteSync(1024),
    Operation::OverwriteSync(4096),
    Operation::Write(4096),
    Operation::CachedRead(64),
    Operation::CachedRead(4096),
    Operation::CachedRead(LARGE),
    Operation::DirectRead(4096),
    Operation::DirectRead(LARGE),
    Operation::LargeWriteSync,
];

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Bytes of the file that is overwritten and read.
pub const DATA_BYTES: usize = 8 << 20;
/// Bytes of a large write.
pub const LARGE: usize = 1 << 20;
/// Files that [`Operation::Stat`] and [`Operation::Open`] look for.
pub const FILES: usize = 1000;

/// What a large write of a round writes: see [`fill`].
pub(crate) fn contents(round: u8) -> Vec<u8> {
    let mut contents = vec![0; LARGE];
    fill(&mut contents, round);
    contents
}

/// Fills `buffer` with what a round writes. Half of each 64 B line is noise, the other half one byte, so that
/// compression halves it at best: of a page of one byte's repetition zram keeps a word, which no copy can
/// compete with. Every line differs from round to round: equal bytes would be nothing to write.
pub(crate) fn fill(buffer: &mut [u8], round: u8) {
    let mut noise = Generator::new(u64::from(round));
    for line in buffer.chunks_exact_mut(64) {
        let (random, rest) = line.split_at_mut(32);
        for word in random.chunks_exact_mut(8) {
            word.copy_from_slice(&noise.next().to_le_bytes());
        }
        rest.fill(round);
    }
}

impl Operation {
    /// The name in reports and on the command line.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Create => "create".to_owned(),
            Self::CreateDurable => "create, durable".to_owned(),
            Self::Mkdir => "mkdir".to_owned(),
            Self::MkdirDurable => "mkdir, durable".to_owned(),
            Self::Rename => "rename".to_owned(),
            Self::RenameDurable => "rename, durable".to_owned(),
            Self::Unlink => "unlink".to_owned(),
            Self::UnlinkDurable => "unlink, durable".to_owned(),
            Self::Stat => "stat by path".to_owned(),
            Self::Open => "open by path".to_owned(),
            Self::CreateWriteSync => "create, write 4 KiB, fsync".to_owned(),
            Self::AppendSync => "append 4 KiB, fsync".to_owned(),
            Self::OverwriteSync(bytes) => format!("overwrite {}, fsync", size(bytes)),
            Self::CachedRead(bytes) => format!("cached read {}", size(bytes)),
            Self::Write(bytes) => format!("write {}", size(bytes)),
            Self::DirectRead(bytes) => format!("direct read {}", size(bytes)),
            Self::LargeWriteSync => "write 1 MiB, fsync".to_owned(),
        }
    }

    /// Calls in one batch: enough that a batch is long beside what surrounds it, few enough that peers
    /// alternate often.
    #[must_use]
    pub const fn calls(self) -> usize {
        match self {
            Self::LargeWriteSync => 64,
            Self::CachedRead(LARGE) | Self::DirectRead(LARGE) => 256,
            Self::Stat | Self::Open | Self::CachedRead(_) => 4096,
            Self::DirectRead(_) => 512,
            _ => 256,
        }
    }

    /// Calls timed together: reading the clock costs as much as the shortest operations.
    #[must_use]
    pub const fn calls_per_sample(self) -> usize {
        match self {
            Self::CachedRead(LARGE) => 1,
            Self::Stat | Self::Open | Self::CachedRead(_) => 16,
            _ => 1,
        }
    }

    /// Whether the kernel answers it alone on any mount that lets it remember, so that what differs from one
    /// mount to another is chance.
    #[must_use]
    pub const fn is_the_kernels(self) -> bool {
        matches!(self, Self::Stat | Self::CachedRead(_))
    }

    /// Whether the operation ends with everything on stable storage.
    #[must_use]
    pub const fn is_durable(self) -> bool {
        !matches!(
            self,
            Self::Create
                | Self::Mkdir
                | Self::Rename
                | Self::Unlink
                | Self::Stat
                | Self::Open
                | Self::Write(_)
                | Self::CachedRead(_)
                | Self::DirectRead(_)
        )
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        0x10_0000.. => format!("{} MiB", bytes >> 20),
        0x400..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// Where in the data file call `number` takes place: a stride coprime to the number of pages visits all of
/// them in no simple order.
#[must_use]
pub const fn place(number: usize) -> u64 {
    (number * 797 % (DATA_BYTES / PAGE) * PAGE) as u64
}

/// Where in the data file call `number` takes place if it is about so many bytes.
#[must_use]
pub(crate) const fn place_of(bytes: usize, number: usize) -> u64 {
    if bytes <= PAGE { place(number) } else { large_place(number) }
}

/// Where large write `number` goes.
#[must_use]
pub const fn large_place(number: usize) -> u64 {
    (number % (DATA_BYTES / LARGE) * LARGE) as u64
}

/// A file system under measurement.
pub trait Place: Send + Sync {
    /// A directory of its own for one thread.
    ///
    /// # Errors
    /// What the file system answers.
    fn desk(&self, thread: usize) -> Result<Box<dyn Desk>>;
}

/// One thread's directory, in which it carries out operations.
pub trait Desk: Send {
    /// Makes what `calls` calls of the operation need. Not timed.
    ///
    /// # Errors
    /// What the file system answers.
    fn prepare(&mut self, operation: Operation, calls: usize) -> Result<()>;

    /// Call `number`, below what was prepared for.
    ///
    /// # Errors
    /// What the file system answers.
    fn call(&mut self, operation: Operation, number: usize) -> Result<()>;

    /// Removes what the calls have made. Not timed.
    ///
    /// # Errors
    /// What the file system answers.
    fn clear(&mut self, operation: Operation, calls: usize) -> Result<()>;
}

/// The names that a batch uses, made beforehand.
#[derive(Clone, Debug)]
pub struct Names {
    /// Names that are created, renamed from, removed.
    pub old: Vec<String>,
    /// Names that are renamed to.
    pub new: Vec<String>,
}

impl Default for Names {
    fn default() -> Self {
        let list = |prefix: &str| (0..4096).map(|number| format!("{prefix}-{number:06}")).collect();
        Self { old: list("file"), new: list("renamed") }
    }
}
