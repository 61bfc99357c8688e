//! An image that this process has to itself: whichever file system is on it is mounted here, and a thread
//! carries its commands out itself.

use std::io;
use std::path::Path;
use std::sync::Arc;

use amphi_queue::format::{Completion, Submission};
use amphi_queue::{Caller, Geometry, Memory, Payload, Session, protected};
use amphi_rt::sync::{Mutex, MutexGuard, Semaphore};
use amphi_ssd::{OpenOptions, Ssd};
use amphi_vfs::{Capabilities, Cred};
use amphi_volume::{MountOptions, Volume};
use amphi_volumes::{Act, Kind};

use crate::errno::{OpenError, error};
use crate::request::{PAYLOAD_BYTES, Request};

/// Threads that have a command under way at once; others wait.
const LANES: u32 = 32;
/// Most files open at a time, as through a daemon.
const FILES_MAX: usize = 1 << 16;

/// How an image is opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageOptions {
    /// No device times: as fast as the software goes.
    pub free: bool,
    /// The device's times are multiplied by this.
    pub dilation: f64,
}

impl Default for ImageOptions {
    fn default() -> Self {
        Self { free: false, dilation: 1.0 }
    }
}

/// A mounted file system, whichever it is. One call by a table of functions for each command is little beside
/// what the command does; all below is compiled for its file system.
trait Instance: Send + Sync {
    fn execute(&self, caller: &mut Caller, command: &Submission, payload: Payload<'_>) -> Completion;

    fn finish(self: Box<Self>) -> Result<(), OpenError>;
}

struct Opened<V: Volume<Ssd>> {
    session: Session<V>,
    fs: Arc<V>,
}

impl<V: Volume<Ssd>> Instance for Opened<V> {
    fn execute(&self, caller: &mut Caller, command: &Submission, payload: Payload<'_>) -> Completion {
        self.session.execute(caller, command, payload)
    }

    fn finish(self: Box<Self>) -> Result<(), OpenError> {
        let Self { session, fs } = *self;
        session.close_all();
        drop(session);
        let fs = Arc::into_inner(fs).ok_or(OpenError::Argument("the file system is in use"))?;
        Ok(fs.unmount()?)
    }
}

struct Open(Arc<Ssd>);

impl Act<Ssd> for Open {
    type Out = Result<Box<dyn Instance>, OpenError>;

    fn on<V: Volume<Ssd>>(self) -> Self::Out {
        let fs = Arc::new(V::mount(&self.0, &MountOptions::default())?);
        let session = Session::new(Arc::clone(&fs), (), FILES_MAX).protecting(protected());
        Ok(Box::new(Opened { session, fs }))
    }
}

/// An image's file system.
pub struct Image {
    instance: Box<dyn Instance>,
    memory: Memory,
    callers: Vec<Mutex<Caller>>,
    free: Semaphore,
}

impl Image {
    /// Opens the image and mounts what is on it, for this process's user. A crash before is recovered from.
    ///
    /// # Errors
    /// [`OpenError`]: another process has the image, or there is nothing on it.
    pub fn open(image: &Path, options: &ImageOptions) -> Result<Self, OpenError> {
        if !(0.001..=1_000_000.0).contains(&options.dilation) {
            return Err(OpenError::Argument("device times are multiplied by 0.001 to 1000000"));
        }
        let how = OpenOptions { free: options.free, dilation: options.dilation, ..OpenOptions::default() };
        let device = Arc::new(Ssd::open(image, &how)?);
        let kind = Kind::on(&*device).ok_or(OpenError::NoFileSystem)?;
        let instance = kind.with_on(&*Arc::clone(&device), Open(device))?;
        let geometry = Geometry::new(LANES, PAYLOAD_BYTES).expect("constants in range");
        let memory = Memory::private(geometry).map_err(OpenError::Memory)?;
        let user = user();
        let callers = (0..LANES).map(|_| Mutex::new(Caller::new(user.clone()))).collect();
        Ok(Self { instance, memory, callers, free: Semaphore::new(LANES as usize) })
    }

    /// Carries out one command on the calling thread.
    ///
    /// # Errors
    /// What it says.
    pub fn run(&self, request: Request<'_>) -> io::Result<Completion> {
        let _permit = self.free.acquire(1);
        let (number, mut caller) = self.caller();
        let payload = self.memory.payload(number);
        request.carry_out(payload, |command| Ok(self.instance.execute(&mut caller, &command, payload)))
    }

    /// Somebody with a permit finds one that nobody has.
    fn caller(&self) -> (u32, MutexGuard<'_, Caller>) {
        loop {
            let mut numbered = (0..).zip(&self.callers);
            if let Some(found) = numbered.find_map(|(number, caller)| Some((number, caller.try_lock()?))) {
                return found;
            }
            amphi_rt::task::yield_now();
        }
    }

    /// Makes everything durable, unmounts, and gives the image back.
    ///
    /// # Errors
    /// The device fails; the next opening then recovers.
    pub fn finish(self) -> io::Result<()> {
        self.instance.finish().map_err(|why| error(why.errno()))
    }
}

/// This process's user, as the kernel sees it for files.
fn user() -> Cred {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let groups = rustix::process::getgroups().unwrap_or_default();
    let capabilities = if uid == 0 { Capabilities::ALL } else { Capabilities::NONE };
    Cred { uid, gid, groups: groups.iter().map(|group| group.as_raw()).collect(), capabilities, umask: 0 }
}
