//! How a DevFS is made and mounted.

use amphi_names::Options;
use amphi_vfs::AccessTimes;
use amphi_volume::read_words;

/// How a change outlives a loss of power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Crash {
    /// Capacitors save journals and queues in device memory, and nothing is written twice (§4.3).
    #[default]
    Capacitors,
    /// Each journal and each queue has a copy on flash, written before the change counts: DevFS-naive (§5.2).
    Journal,
}

impl Crash {
    /// As the superblock has it.
    pub const fn number(self) -> u32 {
        match self {
            Self::Capacitors => 0,
            Self::Journal => 1,
        }
    }

    /// The one of a number.
    pub const fn of_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Capacitors),
            1 => Some(Self::Journal),
            _ => None,
        }
    }
}

/// What leaves device memory as soon as nobody has a file open (§4.4), each step with those before it. What
/// stays goes when memory is short, or when there are more unused inodes than a mount keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OnClose {
    /// Nothing.
    #[default]
    Nothing,
    /// The file's map.
    Maps,
    /// The entries of the directory in which it was made, once no file of that directory is open: to host
    /// memory.
    Entries,
    /// The inode: to host memory, but for the device's part.
    Inodes,
}

/// How one is made.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    /// At most 32 bytes.
    pub label: String,
    /// Bytes of flash; all of them if it is left open.
    pub bytes: Option<u64>,
    /// One for four pages if it is left open.
    pub inodes: Option<u32>,
}

/// How one is mounted.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Nothing changes, but what a loss of power left is brought in place.
    pub read_only: bool,
    /// When reading a file is noted.
    pub access_times: AccessTimes,
    /// Granularity of time stamps of files, in ns.
    pub tick_ns: i64,
    /// How a change outlives a loss of power.
    pub crash: Crash,
    /// Bytes of device memory; what the device has if it is left open.
    pub memory: Option<u64>,
    /// Bytes of host memory for what is not in use (§4.4).
    pub host_memory: u64,
    /// Inodes that stay in device memory although nobody uses them.
    pub inode_cache: usize,
    /// What leaves device memory when a file is closed.
    pub on_close: OnClose,
}

/// Host memory unless a mount says otherwise, in bytes.
const HOST_MEMORY: u64 = 1 << 30;
/// Inodes that stay unless a mount says otherwise.
const INODE_CACHE: usize = 4096;

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            access_times: AccessTimes::default(),
            tick_ns: 1,
            crash: Crash::Capacitors,
            memory: None,
            host_memory: HOST_MEMORY,
            inode_cache: INODE_CACHE,
            on_close: OnClose::Nothing,
        }
    }
}

impl MountOptions {
    /// What [`set_all`](Self::set_all) understands, for people.
    pub const WORDS: &'static str = "crash=capacitors|journal, memory=SIZE, host-memory=SIZE, inodes=N, \
                                     on-close=nothing|maps|entries|inodes";

    /// Sets what words say, which commas part.
    ///
    /// # Errors
    /// A sentence about the first word that is unknown or impossible.
    pub fn set_all(&mut self, words: &str) -> Result<(), String> {
        let closes = [
            ("nothing", OnClose::Nothing),
            ("maps", OnClose::Maps),
            ("entries", OnClose::Entries),
            ("inodes", OnClose::Inodes),
        ];
        read_words(words, ("DevFS", Self::WORDS), |word| {
            match word.key {
                "crash" => {
                    let crashes = [("capacitors", Crash::Capacitors), ("journal", Crash::Journal)];
                    self.crash = word.one_of(&crashes)?;
                }
                "on-close" => self.on_close = word.one_of(&closes)?,
                "memory" => self.memory = Some(word.bytes(0, u64::MAX)?),
                "host-memory" => self.host_memory = word.bytes(0, u64::MAX)?,
                "inodes" => self.inode_cache = word.number(0, u64::MAX)? as usize,
                _ => return Ok(false),
            }
            Ok(true)
        })
    }

    pub(crate) const fn names(&self) -> Options {
        Options {
            read_only: self.read_only,
            access_times: self.access_times,
            cached_inodes: self.inode_cache,
            tick_ns: self.tick_ns,
        }
    }
}
