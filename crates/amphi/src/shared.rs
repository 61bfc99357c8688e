//! A mount whose file system lies in a range of addresses that programs share: the daemon keeps the range,
//! and serves the kernel and the queue as a client of it.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use amphi_front_fuse::{KernelCaches, MountError, MountOptions};
use amphi_front_shared::hello::range_of;
use amphi_front_shared::layout::PLACES;
use amphi_front_shared::{Client, Manager, ManagerOptions, Protection, core_beside, keys_are_here};
use amphi_queue::{Marks, Watcher};
use amphi_rt::sync::{Mutex, OnceCell};
use amphi_rt::task;
use amphi_vfs::{AccessTimes, FileSystem};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::device::Speed;
use crate::doors::{self, Doors};
use crate::filesystem::{Served, Use};

/// The protection that is meant by `-o shared` and by its values.
///
/// # Errors
/// A sentence.
pub fn protection(word: &str) -> Result<Protection> {
    Protection::named(word)
        .with_context(|| format!("`shared={word}`: what protects the range is keys, pages or unprotected"))
}

/// Whether programs can be let in where a range is wanted with this protection; if not, says so. Both the
/// command and the daemon say it: what a daemon says goes to its log.
pub fn is_possible(protection: Protection) -> bool {
    let is_possible = protection != Protection::Keys || keys_are_here();
    if !is_possible {
        eprintln!(
            "amphi: this processor has no protection keys, so programs use the queue; -o shared=pages or \
             -o shared=unprotected share the file system without keys"
        );
    }
    is_possible
}

/// Where this process began: the words that it was given may be paths from there.
static BEGAN_IN: OnceCell<PathBuf> = OnceCell::new();

/// Keeps where this process is, before it goes elsewhere.
pub fn remember_directory() {
    if let Ok(directory) = std::env::current_dir() {
        BEGAN_IN.get_or_init(|| directory);
    }
}

/// What this processor allows, for people and as JSON.
pub fn about_processor() -> Value {
    json!({
        "gate": amphi_front_shared::gate_is_here(),
        "protection": if keys_are_here() { "keys" } else { "pages" },
    })
}

/// A range, and this process's way into it.
pub struct Shared {
    client: Arc<Client>,
    marks: &'static Marks,
    parts: Arc<Mutex<Parts>>,
}

#[derive(Default)]
struct Parts {
    manager: Option<Manager>,
    errands: Option<task::JoinHandle<()>>,
    /// The range ends because it shall.
    ending: bool,
}

/// Makes the range and mounts the file system of the image in it.
///
/// # Errors
/// No range can be made, or what is on the image cannot be mounted so.
pub fn open(image: &Path, speed: Speed, using: &Use, protection: Protection) -> Result<Shared> {
    if using.trace.is_some() {
        bail!("trace=FILE records calls of this process, and with -o shared programs make their own");
    }
    let mut words = using.words.clone();
    words.extend(using.read_only.then(|| "ro".to_owned()));
    words.extend(match using.access_times {
        AccessTimes::Relative => None,
        AccessTimes::Never => Some("noatime".to_owned()),
        AccessTimes::Strict => Some("strictatime".to_owned()),
    });
    let process = std::process::id();
    let options = ManagerOptions {
        core: core_beside().context("the program of a shared range is not built; docs/shared.md says how")?,
        image: image.to_owned(),
        name: range_of(process),
        // Programs that use two such mounts have room for both, most likely.
        place: u64::from(process) % PLACES,
        protection,
        dilation: match speed {
            Speed::Dilated(factor) => Some(factor),
            Speed::Free => None,
        },
        words,
        // The mount begins anew as a whole.
        again: false,
    };
    let manager = Manager::start(options.clone())?;
    let (client, marks) = Client::connect_server(&options.name)?;
    let parts = Parts { manager: Some(manager), ..Parts::default() };
    Ok(Shared { client, marks, parts: Arc::new(Mutex::new(parts)) })
}

impl Shared {
    /// The way to what is told of the device.
    pub fn device(&self) -> SharedDevice {
        SharedDevice { client: Arc::clone(&self.client), parts: Arc::clone(&self.parts) }
    }

    fn told(&self, text: amphi_vfs::Result<String>) -> Value {
        let told = text.ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        told.map_or(Value::Null, |mut told| told["filesystem"].take())
    }
}

/// The device of a range.
pub struct SharedDevice {
    client: Arc<Client>,
    parts: Arc<Mutex<Parts>>,
}

impl SharedDevice {
    /// What it counts.
    ///
    /// # Errors
    /// The range has died.
    pub fn stats(&self) -> Result<Value> {
        Ok(serde_json::from_str::<Value>(&self.client.stats()?)?["device"].take())
    }

    /// What it is.
    ///
    /// # Errors
    /// The range has died.
    pub fn info(&self) -> Result<Value> {
        Ok(serde_json::from_str::<Value>(&self.client.info()?)?["device"].take())
    }

    /// Whether nobody has cut its power.
    pub fn has_power(&self) -> bool {
        !self.parts.lock().ending
    }

    /// Cuts its power; the range dies of it.
    pub fn cut_power(&self, seed: u64) {
        self.parts.lock().ending = true;
        self.client.cut_power(seed);
    }
}

/// Runs the errands of those who change something in the range, until it ends. If it has died, the mount
/// begins anew: what is open on it fails as after a crash of the daemon, and what was durable is there.
fn run_errands(client: &Client, caches: &KernelCaches, parts: &Mutex<Parts>, directory: &Path) {
    // Programs come into the range and go without a word to this process.
    caches.begins();
    client.run_errands(caches);
    if parts.lock().ending {
        return;
    }
    eprintln!("amphi: the shared range has died; the image is mounted again, as after a crash");
    // Its process has ended, or is ending: nobody else waits for it, this one becoming another program.
    let manager = parts.lock().manager.take();
    drop(manager);
    if let Err(error) = amphi_front_fuse::detach(directory) {
        eprintln!("amphi: {error}");
    }
    let words = std::env::args_os().skip(1);
    let cause = match std::env::current_exe() {
        Ok(program) => {
            let mut command = Command::new(program);
            command.arg0("amphi").args(words);
            if let Some(directory) = BEGAN_IN.get() {
                command.current_dir(directory);
            }
            command.exec()
        }
        Err(error) => error,
    };
    eprintln!("amphi: the image cannot be mounted again: {cause}; run amphi mount");
    std::process::exit(1);
}

impl Served for Shared {
    fn attach(&self, directory: &Path, options: &MountOptions) -> Result<Doors, MountError> {
        let doors = doors::open_shared(&self.client, directory, options, self.marks)?;
        if let Some(caches) = doors.session.caches().cloned() {
            let (client, parts) = (Arc::clone(&self.client), Arc::clone(&self.parts));
            let directory: PathBuf = doors.session.mountpoint().to_owned();
            let errands =
                task::spawn("shared-errands", move || run_errands(&client, &caches, &parts, &directory));
            self.parts.lock().errands = Some(errands);
        }
        Ok(doors)
    }

    fn describe(&self) -> Value {
        self.told(self.client.info())
    }

    fn stats(&self) -> Value {
        self.told(self.client.stats())
    }

    fn flush(&self) -> Result<()> {
        Ok(self.client.sync()?)
    }

    fn trim_free(&self, shortest: u64) -> Result<u64> {
        Ok(self.client.discard_free(0..u64::MAX, shortest)?)
    }

    fn pins(&self) -> Result<Value> {
        bail!("what lies in a shared range is not pinned to the device's window")
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let (manager, errands) = {
            let mut parts = self.parts.lock();
            parts.ending = true;
            (parts.manager.take(), parts.errands.take())
        };
        let ended = manager.map_or(Ok(()), Manager::stop).map_err(anyhow::Error::msg);
        if let Some(errands) = errands {
            errands.join();
        }
        ended.context("the last flush failed")
    }
}
