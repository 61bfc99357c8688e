//! The process behind a mount or an export: device, file system and FUSE session together, signals, and the
//! control socket.

use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use amphi_front_fuse::{MountError, MountOptions};
use amphi_front_shared::Protection;
use amphi_rt::sync::Mutex;
use amphi_rt::{task, time};
use amphi_ssd::Ssd;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use signal_hook::consts::TERM_SIGNALS;
use signal_hook::iterator::Signals;

use crate::control::{self, Answer, Request};
use crate::device::{self, Speed};
use crate::doors::Doors;
use crate::filesystem::{Served, Use};
use crate::metrics_server;
use crate::privileges;
use crate::runtime_dir::{self, RuntimeFiles};
use crate::shared::{self, SharedDevice};
use crate::stats::metrics;

/// Opens what is to be mounted.
pub type Open = fn(Arc<Ssd>, &Use) -> Result<Box<dyn Served>>;

/// What to serve.
pub struct Service {
    /// The image's absolute path.
    pub image: PathBuf,
    /// The directory to mount on.
    pub directory: PathBuf,
    /// The device's speed.
    pub speed: Speed,
    /// How to mount.
    pub mount: MountOptions,
    /// What may be done with what is mounted.
    pub using: Use,
    /// Opens what is to be mounted.
    pub open: Open,
    /// Where to answer Prometheus, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// Put the file system into a range that programs share, protected so.
    pub shared: Option<Protection>,
}

/// The device, in this process or in a range.
enum Device {
    Own(Arc<Ssd>),
    InRange(SharedDevice),
}

impl Device {
    fn stats(&self) -> Result<Value> {
        match self {
            Self::Own(device) => Ok(json!(device.stats())),
            Self::InRange(device) => device.stats(),
        }
    }

    fn info(&self) -> Result<Value> {
        match self {
            Self::Own(device) => Ok(json!(device.info())),
            Self::InRange(device) => device.info(),
        }
    }

    /// The device, for what reads it in this process.
    fn own(&self) -> Result<Arc<Ssd>> {
        let Self::Own(device) = self else {
            bail!("--metrics reads the device in this process, and with -o shared it is not there");
        };
        Ok(Arc::clone(device))
    }

    fn has_power(&self) -> bool {
        match self {
            Self::Own(device) => device.has_power(),
            Self::InRange(device) => device.has_power(),
        }
    }

    /// Cuts its power, and returns when nothing is under way any more.
    fn cut_power(&self, seed: u64) {
        match self {
            Self::Own(device) => device.power_cut_and_settle(seed),
            Self::InRange(device) => device.cut_power(seed),
        }
    }
}

/// The parts that the daemon's tasks share.
struct Daemon {
    device: Device,
    /// How programs reach the file system, as JSON.
    doors: Value,
    /// Gone once it is closed.
    volume: Mutex<Option<Box<dyn Served>>>,
    directory: PathBuf,
    files: RuntimeFiles,
    metrics: Option<SocketAddr>,
    /// Connections that want to know when everything is flushed.
    awaiting_exit: Mutex<Vec<UnixStream>>,
}

/// Mounts and serves until unmounted. `ready` is called once, when the mount can be used.
///
/// # Errors
/// If the image cannot be mounted, or the last flush failed.
pub fn serve(service: &Service, ready: impl FnOnce(&RuntimeFiles) -> Result<()>) -> Result<()> {
    crash_on_panic();
    // Before the first thread is started: capabilities are each thread's own.
    privileges::drop_unneeded(&service.image, &service.directory)?;
    let files = runtime_dir::for_daemon(&service.image)?;
    let (device, volume, range) = open(service)?;
    let metrics = match service.metrics {
        Some(at) => Some((device.own()?, metrics_server::listen(at)?)),
        None => None,
    };
    // Before there is a mount: whoever sees it can ask at once. What is asked so early waits for its answer.
    let listener = control::listen(&files.socket)?;
    let attached = volume.attach(&service.directory, &service.mount);
    let Doors { session, queue } = attached.inspect_err(|_| remove(&files.socket))?;
    let doors = json!({
        "kernel": if session.has_rings() { "ring" } else { "device" },
        "queue": queue.is_some(),
        "range": range.map(Protection::name),
    });
    let daemon = Arc::new(Daemon {
        device,
        doors,
        volume: Mutex::new(Some(volume)),
        directory: session.mountpoint().to_owned(),
        files,
        metrics: metrics.as_ref().and_then(|(_, listener)| listener.local_addr().ok()),
        awaiting_exit: Mutex::new(Vec::new()),
    });
    let signals = Signals::new(TERM_SIGNALS).context("signals cannot be caught")?;
    let of_control = Arc::clone(&daemon);
    task::spawn("control", move || of_control.answer_requests(&listener));
    let of_signals = Arc::clone(&daemon);
    task::spawn("signals", move || of_signals.obey_signals(signals));
    if let Some((device, listener)) = metrics {
        task::spawn("metrics", move || metrics_server::serve(&listener, || metrics::text(&device.stats())));
    }
    ready(&daemon.files)?;

    let served = session.wait().context("the FUSE connection broke");
    if !daemon.device.has_power() {
        // The control task is ending this process; nothing may be flushed any more.
        loop {
            time::sleep_ns(1_000_000_000);
        }
    }
    if let Some(queue) = queue {
        queue.close();
    }
    let volume = daemon.volume.lock().take();
    let flushed = volume.map_or(Ok(()), |volume| volume.finish());
    daemon.say_goodbye(&flushed);
    served?;
    flushed
}

/// The device and what is on it, and how the range is protected if it lies in one.
fn open(service: &Service) -> Result<(Device, Box<dyn Served>, Option<Protection>)> {
    if let Some(protection) = service.shared.filter(|protection| shared::is_possible(*protection)) {
        let shared = shared::open(&service.image, service.speed, &service.using, protection)?;
        return Ok((Device::InRange(shared.device()), Box::new(shared), Some(protection)));
    }
    let device = match service.using.read_only && !device::is_writable(&service.image) {
        true => device::open_copy(&service.image, service.speed)?,
        false => device::open(&service.image, service.speed)?,
    };
    let device = Arc::new(device);
    let volume = (service.open)(Arc::clone(&device), &service.using)?;
    Ok((Device::Own(device), volume, None))
}

/// A request that a panicked task never answers would hang its caller for ever. The end of the daemon is a
/// host crash, from which the next mount recovers.
fn crash_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        eprintln!("amphi: the daemon ends because of an error in its program; mount the image again");
        std::process::abort();
    }));
}

impl Daemon {
    fn answer_requests(&self, listener: &UnixListener) {
        /// A client that says nothing must not keep the others waiting.
        const PATIENCE: Duration = Duration::from_secs(2);
        for stream in listener.incoming().flatten() {
            let heard = stream
                .set_read_timeout(Some(PATIENCE))
                .map_err(Into::into)
                .and_then(|()| control::read_request(&stream));
            match heard {
                Ok(request) => self.answer(stream, &request),
                Err(error) => eprintln!("amphi: a control request was not understood: {error:#}"),
            }
        }
    }

    fn answer(&self, stream: UnixStream, request: &Request) {
        let answer = match request {
            Request::Stats => self.stats(),
            Request::Info => self.info(),
            Request::Pins => self.pins(),
            Request::Trim { shortest } => self.trim(*shortest),
            Request::PowerCut { seed } => self.cut_power(&stream, *seed),
            Request::AwaitExit => {
                send(&stream, &Answer::Done(Value::Null));
                self.awaiting_exit.lock().push(stream);
                return;
            }
        };
        send(&stream, &answer.map_or_else(|error| Answer::Failed(format!("{error:#}")), Answer::Done));
    }

    fn stats(&self) -> Result<Value> {
        let filesystem = self.volume.lock().as_ref().map_or(Value::Null, |volume| volume.stats());
        Ok(json!({ "device": self.device.stats()?, "filesystem": filesystem }))
    }

    fn info(&self) -> Result<Value> {
        let filesystem = self.volume.lock().as_ref().map(|volume| volume.describe());
        Ok(json!({
            "pid": std::process::id(),
            "metrics": self.metrics.map(|at| format!("http://{at}/metrics")),
            "doors": self.doors,
            "device": self.device.info()?,
            "filesystem": filesystem,
        }))
    }

    fn pins(&self) -> Result<Value> {
        let volume = self.volume.lock();
        volume.as_ref().context("the file system is being closed; try again")?.pins()
    }

    fn trim(&self, shortest: u64) -> Result<Value> {
        let volume = self.volume.lock();
        let volume = volume.as_ref().context("the file system is being closed; try again")?;
        Ok(json!(volume.trim_free(shortest)?))
    }

    /// Dies as a machine does that loses power: nothing is flushed, nobody is told but the one who asked.
    fn cut_power(&self, stream: &UnixStream, seed: u64) -> ! {
        self.device.cut_power(seed);
        if let Err(error) = amphi_front_fuse::detach(&self.directory) {
            eprintln!("amphi: {error}");
        }
        self.remove_files();
        send(stream, &Answer::Done(Value::Null));
        std::process::exit(0)
    }

    /// Unmounts when asked to end. Files in use do not stop it: they are flushed, and gone for whoever uses
    /// them.
    fn obey_signals(&self, mut signals: Signals) {
        for _ in signals.forever() {
            match amphi_front_fuse::unmount(&self.directory) {
                Ok(()) => return,
                Err(MountError::Busy(directory)) => {
                    eprintln!("amphi: {} is in use; it goes away all the same", directory.display());
                    self.end_at_once();
                }
                Err(error) => eprintln!("amphi: {error}"),
            }
        }
    }

    fn end_at_once(&self) -> ! {
        let detached = amphi_front_fuse::detach(&self.directory).context("the mount cannot be taken away");
        let flushed = self.volume.lock().as_ref().map_or(Ok(()), |volume| volume.flush());
        self.say_goodbye(&flushed);
        for error in [detached, flushed].into_iter().filter_map(Result::err) {
            eprintln!("amphi: {error:#}");
        }
        std::process::exit(0)
    }

    fn say_goodbye(&self, flushed: &Result<()>) {
        self.remove_files();
        let answer = match flushed {
            Ok(()) => Answer::Done(Value::Null),
            Err(error) => Answer::Failed(format!("{error:#}")),
        };
        for stream in self.awaiting_exit.lock().iter() {
            send(stream, &answer);
        }
    }

    /// The socket leads nowhere any more. The log stays for whoever wants to know.
    fn remove_files(&self) {
        remove(&self.files.socket);
    }
}

fn send(stream: &UnixStream, answer: &Answer) {
    // A client that went away needs no answer.
    let _ = control::write_answer(stream, answer);
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        eprintln!("amphi: {} cannot be removed: {error}", path.display());
    }
}
