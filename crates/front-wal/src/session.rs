//! [`Session`]: an image opened, its file system mounted with pins, and one file of it as a log: read to its
//! end, then written.

use std::path::Path;
use std::sync::Arc;

use amphi_device::{EntryId, Lpa, PAGE_BYTES};
use amphi_fs_ext4like::{Ext4Like, MountOptions};
use amphi_pins::{Pinned, PinnedFile};
use amphi_rt::sync::RwLock;
use amphi_ssd::{ImageError, OpenOptions, Ssd};
use amphi_vfs::{Cred, Error, FileSystem, FileType, Ino, Name};
use amphi_wal::{Log, Options, Place, Record, Recovery};

pub use amphi_wal::Mode;

type Fs = Pinned<Ext4Like<Ssd>, Ssd>;
type File = PinnedFile<Ext4Like<Ssd>, Ssd>;

/// Part of the window that a log takes at most: two halves of this, of so many.
const SHARE_OF_WINDOW: u64 = 4;

/// Why something could not be done with a log.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An argument cannot be meant.
    #[error("{0}")]
    Argument(&'static str),
    /// The image cannot be opened.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Its file system cannot be mounted with pins.
    #[error("the image's file system cannot be used for pins: {0}")]
    Mount(String),
    /// The file system refused or failed.
    #[error(transparent)]
    File(#[from] Error),
    /// The log refused or failed.
    #[error(transparent)]
    Log(#[from] amphi_wal::Error),
    /// Records are read before the first is appended, and not after.
    #[error("the log is being written; what it holds is read before the first append")]
    NotAtEnd,
}

/// How a log is opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// When a commit returns.
    pub mode: Mode,
    /// Bytes of the file, its header page among them, if the log has to be made. Rounded up to pages.
    pub bytes: u64,
    /// No device times: as fast as the software goes.
    pub free: bool,
}

enum Stage {
    Reading(Box<Recovery<File>>),
    Writing(Log<File>),
    Closed,
}

/// An open log. Threads may share it.
pub struct Session {
    stage: RwLock<Stage>,
    /// Last, so that it outlives the log.
    fs: Option<Arc<Fs>>,
}

impl Session {
    /// Opens the log in the file `path` of the file system on `image`, for the calling process's user. Where
    /// there is no such file, an empty log is made.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn open(image: &Path, path: &str, opening: &Opening) -> Result<Self, Failure> {
        let device =
            Arc::new(Ssd::open(image, &OpenOptions { free: opening.free, ..OpenOptions::default() })?);
        let below = || Ext4Like::mount(Arc::clone(&device), MountOptions::default());
        let fs = Pinned::mount(&device, below).map_err(|error| Failure::Mount(format!("{error:?}")))?;
        let fs = Arc::new(fs);
        match open_log(&fs, path, opening) {
            Ok(recovery) => Ok(Self { stage: RwLock::new(Stage::Reading(Box::new(recovery))), fs: Some(fs) }),
            Err(failure) => {
                unmount(fs)?;
                Err(failure)
            }
        }
    }

    /// The next record that the log held when it was opened; `None` after the last one.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn next(&self) -> Result<Option<Record>, Failure> {
        match &mut *self.stage.write() {
            Stage::Reading(recovery) => Ok(recovery.next().transpose()?),
            Stage::Writing(_) | Stage::Closed => Err(Failure::NotAtEnd),
        }
    }

    /// Does something with the log. Records that were not read are skipped.
    fn with<T>(&self, act: impl Fn(&Log<File>) -> amphi_wal::Result<T>) -> Result<T, Failure> {
        if let Stage::Writing(log) = &*self.stage.read() {
            return Ok(act(log)?);
        }
        let mut stage = self.stage.write();
        if let Stage::Reading(_) = &*stage
            && let Stage::Reading(recovery) = std::mem::replace(&mut *stage, Stage::Closed)
        {
            *stage = Stage::Writing(recovery.open()?);
        }
        match &*stage {
            Stage::Writing(log) => Ok(act(log)?),
            Stage::Reading(_) | Stage::Closed => Err(amphi_wal::Error::OpenAgain.into()),
        }
    }

    /// See [`Log::append`].
    ///
    /// # Errors
    /// As there.
    pub fn append(&self, content: &[u8]) -> Result<u64, Failure> {
        self.with(|log| log.append(content))
    }

    /// See [`Log::commit`].
    ///
    /// # Errors
    /// As there.
    pub fn commit(&self) -> Result<(), Failure> {
        self.with(Log::commit)
    }

    /// See [`Log::truncate`].
    ///
    /// # Errors
    /// As there.
    pub fn truncate(&self) -> Result<(), Failure> {
        self.with(Log::truncate)
    }

    /// See [`Log::durable`].
    ///
    /// # Errors
    /// The log cannot be opened for writing.
    pub fn durable(&self) -> Result<u64, Failure> {
        self.with(|log| Ok(log.durable()))
    }

    /// Commits, brings everything to flash, and unmounts.
    ///
    /// # Errors
    /// [`Failure`]. What was committed is found by the next opening all the same.
    pub fn close(mut self) -> Result<(), Failure> {
        let closed = match std::mem::replace(&mut *self.stage.write(), Stage::Closed) {
            Stage::Writing(log) => log.close(),
            Stage::Reading(_) | Stage::Closed => Ok(()),
        };
        let unmounted = self.fs.take().map_or(Ok(()), unmount);
        closed?;
        unmounted
    }
}

fn unmount(fs: Arc<Fs>) -> Result<(), Failure> {
    let fs = Arc::into_inner(fs).ok_or(Error::Busy("the log is in use"))?;
    Ok(fs.into_below()?.unmount()?)
}

/// Finds the log's file, or makes it with an empty log in it.
fn open_log(fs: &Arc<Fs>, path: &str, opening: &Opening) -> Result<Recovery<File>, Failure> {
    let user = Cred::user(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut names = path.split('/').filter(|name| !name.is_empty()).peekable();
    let mut at = Ino::ROOT;
    let mut found = None;
    while let Some(name) = names.next() {
        let name = Name::new(name.as_bytes())?;
        match fs.lookup(at, name) {
            Ok(entry) => {
                fs.forget(entry.attr.ino, 1);
                at = entry.attr.ino;
                found = Some(at);
            }
            Err(Error::NotFound) if names.peek().is_none() => {
                return make_log(fs, at, name, opening, &user);
            }
            Err(error) => return Err(error.into()),
        }
    }
    let ino = found.ok_or(Failure::Argument("a log's file has a name"))?;
    let file = File::open(fs, ino, &user)?;
    begin(fs, file, opening)
}

fn make_log(
    fs: &Arc<Fs>,
    dir: Ino,
    name: Name<'_>,
    opening: &Opening,
    user: &Cred,
) -> Result<Recovery<File>, Failure> {
    let pages = opening.bytes.div_ceil(PAGE_BYTES as u64);
    if pages < 2 {
        return Err(Failure::Argument("a log takes two pages of 4096 bytes or more"));
    }
    let ino = fs.create(dir, name, FileType::Regular, 0o600, 0, user)?.attr.ino;
    let made = PinnedFile::fill(fs, ino, pages, user).map_err(Failure::from).and_then(|()| {
        let file = File::open(fs, ino, user)?;
        amphi_wal::create(&file, &place(&file))?;
        begin(fs, file, opening)
    });
    if made.is_err() {
        // Half a log is nobody's wish; the first error is the one to tell.
        let _gone = fs.unlink(dir, name);
    }
    fs.forget(ino, 1);
    made
}

fn place(file: &File) -> Place {
    Place { at: Lpa(0), pages: amphi_device::Device::capacity_pages(file) }
}

fn begin(fs: &Fs, file: File, opening: &Opening) -> Result<Recovery<File>, Failure> {
    let window = amphi_device::BytePort::bytes(&**fs.device());
    let page = PAGE_BYTES as u64;
    let half_bytes = (window / SHARE_OF_WINDOW / page * page).max(page);
    let options = Options { mode: opening.mode, window: 0, half_bytes, entries: [EntryId(0), EntryId(1)] };
    let place = place(&file);
    Ok(Recovery::begin(Arc::new(file), place, options)?)
}
