//! Keeps a range: starts the process that makes it, and another one when it has died.
//!
//! The socket is this process's and outlives the ranges, so that a program that connects while one is being
//! made waits for it.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use amphi_rt::sync::{Condvar, Mutex};
use amphi_rt::task;
use rustix::process::{Pid, Signal, kill_process};

use crate::hello;
use crate::protection::Protection;

/// The program that makes a range: it lies beside the command.
pub const CORE: &str = "amphi-shared-core";

/// How long a range's process may take to flush everything and end.
const PATIENCE: Duration = Duration::from_secs(120);

/// How a range is made.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// The program [`CORE`].
    pub core: PathBuf,
    /// The image of the emulated SSD.
    pub image: PathBuf,
    /// Where clients connect: the name of an abstract socket.
    pub name: String,
    /// Which of the places for ranges, below [`PLACES`](crate::layout::PLACES).
    pub place: u64,
    /// How clients protect it.
    pub protection: Protection,
    /// The device's times are multiplied by this; none: it takes no time.
    pub dilation: Option<f64>,
    /// Mount options of the file system; `ro`, `noatime` and `strictatime` too.
    pub words: Vec<String>,
    /// Make another range when one has died. If not, whoever keeps it sees to that.
    pub again: bool,
}

#[derive(Debug, Default)]
struct State {
    /// The running range's process, and the socket that ends it.
    running: Option<(u32, UnixStream)>,
    /// Ranges that have served.
    served: u64,
    ending: bool,
    /// Why there will be no other.
    over: Option<Result<(), String>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A kept range.
#[derive(Debug)]
pub struct Manager {
    shared: Arc<Shared>,
    keeper: Option<task::JoinHandle<()>>,
}

/// Where the program lies that makes ranges: beside the running one.
///
/// # Errors
/// It is not there.
pub fn core_beside() -> io::Result<PathBuf> {
    let here = std::env::current_exe()?;
    let core = here.parent().unwrap_or(Path::new(".")).join(CORE);
    if core.is_file() {
        return Ok(core);
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("{} is not there", core.display())))
}

impl Manager {
    /// Makes a range and waits until it serves.
    ///
    /// # Errors
    /// Somebody has the name, or the file system cannot be mounted.
    pub fn start(options: ManagerOptions) -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&hello::address(&options.name)?)?;
        let shared = Arc::new(Shared::default());
        let of_keeper = Arc::clone(&shared);
        let keeper = task::spawn("shared-manager", move || of_keeper.keep(&options, &listener));
        let manager = Self { shared, keeper: Some(keeper) };
        manager.await_range(1).map_err(io::Error::other)?;
        Ok(manager)
    }

    /// Waits until the range of a number serves, from 1, or one after it.
    ///
    /// # Errors
    /// There will be none: why.
    pub fn await_range(&self, number: u64) -> Result<(), String> {
        let mut state = self.shared.state.lock();
        self.shared.changed.wait_while(&mut state, |state| state.served < number && state.over.is_none());
        match &state.over {
            Some(Err(why)) if state.served < number => Err(why.clone()),
            Some(Ok(())) if state.served < number => Err("the range has been closed".to_owned()),
            _ => Ok(()),
        }
    }

    /// How many ranges have served, this one included.
    #[must_use]
    pub fn ranges(&self) -> u64 {
        self.shared.state.lock().served
    }

    /// The process that made the range; none while there is none.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.shared.state.lock().running.as_ref().map(|(process, _)| *process)
    }

    /// Lets calls end, unmounts the file system and ends the range.
    ///
    /// # Errors
    /// The last flush failed.
    pub fn stop(mut self) -> Result<(), String> {
        self.end();
        self.shared.state.lock().over.clone().unwrap_or(Ok(()))
    }

    fn end(&mut self) {
        let mut state = self.shared.state.lock();
        state.ending = true;
        if let Some((_, control)) = &mut state.running {
            // A process that is gone needs no word.
            let _ = control.write_all(b"e");
        }
        let is_up = |state: &mut State| state.over.is_none();
        if self.shared.changed.wait_while_for(&mut state, is_up, PATIENCE).timed_out()
            && let Some(process) =
                state.running.as_ref().and_then(|(process, _)| Pid::from_raw(*process as i32))
        {
            // What it does not finish is recovered from when the image is mounted.
            let _already_gone = kill_process(process, Signal::KILL);
        }
        drop(state);
        if let Some(keeper) = self.keeper.take() {
            keeper.join();
        }
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn keep(&self, options: &ManagerOptions, listener: &UnixListener) {
        loop {
            let ended = self.run(options, listener);
            let mut state = self.state.lock();
            let served = state.running.take().is_some();
            let over = match ended {
                Ok((status, _)) if state.ending && status.success() => Some(Ok(())),
                Ok(_) if served && !state.ending && options.again => None,
                Ok((_, Some(why))) => Some(Err(why)),
                Ok((status, None)) if state.ending => {
                    Some(Err(format!("the range's process ended with {status}")))
                }
                Ok(_) if served => Some(Err("the range has died".to_owned())),
                Ok((status, None)) => Some(Err(format!("no range could be made: {status}"))),
                Err(error) => Some(Err(format!("no range could be made: {error}"))),
            };
            state.over = over;
            self.changed.notify_all();
            if state.over.is_some() {
                return;
            }
        }
    }

    /// One range's life: how its process ended, and why, if it said so.
    fn run(
        &self,
        options: &ManagerOptions,
        listener: &UnixListener,
    ) -> io::Result<(ExitStatus, Option<String>)> {
        let (control, of_core) = UnixStream::pair()?;
        let mut command = Command::new(&options.core);
        command.arg(&options.image).arg(options.place.to_string()).arg(options.protection.name());
        command.arg(options.dilation.map_or_else(|| "free".to_owned(), |factor| factor.to_string()));
        command.args(&options.words);
        command.stdin(OwnedFd::from(listener.try_clone()?)).stdout(Stdio::from(OwnedFd::from(of_core)));
        let mut child = command.spawn()?;
        drop(command);
        let why = self.follow(&mut child, control)?;
        Ok((child.wait()?, why))
    }

    fn follow(&self, child: &mut Child, control: UnixStream) -> io::Result<Option<String>> {
        let mut lines = BufReader::new(control.try_clone()?);
        let mut line = String::new();
        let mut why = None;
        while lines.read_line(&mut line).unwrap_or(0) > 0 {
            if line.trim() == "serves" {
                let mut state = self.state.lock();
                let mut control = control.try_clone()?;
                if state.ending {
                    control.write_all(b"e")?;
                }
                state.running = Some((child.id(), control));
                state.served += 1;
                self.changed.notify_all();
            }
            if let Some(said) = line.trim().strip_prefix("why: ") {
                why = Some(said.to_owned());
            }
            line.clear();
        }
        Ok(why)
    }
}
