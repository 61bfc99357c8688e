//! The manager: mounts the file system in the range, lets clients in, and looks after those that go.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_front_shared::Protection;
use amphi_front_shared::hello::{self, Welcome};
use amphi_front_shared::layout::{CLOSING, CONTEXTS, DEAD, Header, MAGIC, client_of};
use amphi_fs_augefs::AugeFs;
use amphi_fs_bytefs::ByteFs;
use amphi_rt::{task, time};
use amphi_ssd::{ImageError, OpenOptions, Ssd};
use amphi_vfs::AccessTimes;
use amphi_volume::{MountOptions, Volume};
use amphi_volumes::Kind;
use anyhow::{Context as _, Result, bail};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::planted::{self, Bug};
use crate::serve::Instance;
use crate::visitors::CLIENTS_MAX;
use crate::{contexts, errands, range, tell};

/// How long the clients of a dead range may take to let its image go, ns, in steps of so many.
const LETTING_GO_NS: u64 = 30_000_000_000;
const STEP_NS: u64 = 5_000_000;
/// How long a client that has left and is alive may have somebody inside, ns.
const SETTLING_NS: u64 = 100_000_000;
/// How long calls may take to end when the range is closed, ns.
const ENDING_NS: u64 = 10_000_000_000;
/// The status with which the process of a range that has died ends.
pub const DIED: i32 = 3;

/// Serves a range until it is ended or has died. `listener` is where clients connect, `control` leads to who
/// keeps the range.
///
/// # Errors
/// The image holds nothing that can be mounted, or the last flush failed.
pub fn serve_range(arguments: &[String], listener: UnixListener, control: UnixStream) -> Result<()> {
    let [image, _place, protection, speed, words @ ..] = arguments else {
        bail!("an image, a place, a protection and a speed are needed");
    };
    let protection = Protection::named(protection).context("no such protection")?;
    let options =
        OpenOptions { dilation: speed.parse().unwrap_or(1.0), free: speed == "free", image_is_shared: true };
    let device = Arc::new(open(Path::new(image), &options)?);
    let kind = Kind::on(&*device).context("the image holds no file system that can be mounted")?;
    contexts::start();
    let serve = Serve { device, listener, control, protection, words };
    // Each one more is a copy of all its code in the program, and in the time that takes to compile.
    match kind {
        Kind::Bytefs => serve.run::<ByteFs<Ssd>>(),
        Kind::Augefs => serve.run::<AugeFs<Ssd>>(),
        other => bail!("{} cannot be shared by processes; bytefs and augefs can", other.name()),
    }
}

/// What the words of a mount ask for: the three that all file systems know, and the file system's own.
fn mount_options(words: &[String]) -> MountOptions {
    let mut options = MountOptions::default();
    let mut own = Vec::new();
    for word in words {
        match word.as_str() {
            "ro" => options.read_only = true,
            "noatime" => options.access_times = AccessTimes::Never,
            "strictatime" => options.access_times = AccessTimes::Strict,
            other => own.push(other),
        }
    }
    options.words = own.join(",");
    options
}

fn open(image: &Path, options: &OpenOptions) -> Result<Ssd> {
    let deadline_ns = time::now_ns() + LETTING_GO_NS;
    loop {
        match Ssd::open(image, options) {
            Ok(device) => return Ok(device),
            // Clients of a range that has died keep the lock until the last has let go.
            Err(ImageError::InUse { .. }) if time::now_ns() < deadline_ns => time::sleep_ns(STEP_NS),
            Err(error) => return Err(error.into()),
        }
    }
}

struct Serve<'a> {
    device: Arc<Ssd>,
    listener: UnixListener,
    control: UnixStream,
    protection: Protection,
    words: &'a [String],
}

struct Client {
    socket: UnixStream,
    /// None if it was gone before it could be had.
    process: Option<OwnedFd>,
}

impl Serve<'_> {
    fn run<V: Volume<Ssd>>(mut self) -> Result<()> {
        let fs = V::mount(&self.device, &mount_options(self.words))?;
        let device = Arc::clone(&self.device);
        let (instance, entry) =
            Instance::install(fs, move |fs, what, number| tell::tell(&device, fs, what, number));
        let header = range::header().context("the program is not in its range")?;
        range::marks().context("the program is not in its range")?.begin();
        header.entry.store(entry, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        self.control.write_all(b"serves\n")?;
        let mut clients = BTreeMap::new();
        self.receive(instance, &mut clients, header)?;

        errands::end();
        // From here on no call begins; those that are under way may end.
        if header.dead.compare_exchange(0, CLOSING, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            self.go_on_unless_dead(header)?;
        }
        let deadline_ns = time::now_ns() + ENDING_NS;
        while (0..CONTEXTS).any(|number| range::owner(number).load(Ordering::SeqCst) != 0) {
            if time::now_ns() > deadline_ns {
                die("a call does not end");
            }
            for client in gone(&clients) {
                see_off(instance, &mut clients, client);
            }
            time::sleep_ns(STEP_NS);
        }
        self.go_on_unless_dead(header)?;
        for visitor in &instance.visitors {
            visitor.see_off(&instance.fs);
        }
        // SAFETY: no context is owned and none can be: `dead` is looked at after a context is taken.
        let fs = unsafe { Instance::<V>::remove() }.context("somebody keeps the file system")?;
        fs.unmount()?;
        header.dead.store(DEAD, Ordering::SeqCst);
        Ok(())
    }

    /// Ends the process if the range has died of what a call did: an error in the program, whose work may be
    /// half done, or the end of the device's power.
    ///
    /// # Errors
    /// The device has no power.
    fn go_on_unless_dead(&self, header: &Header) -> Result<()> {
        if header.dead.load(Ordering::SeqCst) != DEAD {
            return Ok(());
        }
        if self.device.has_power() {
            die("an error in its program");
        }
        bail!("the device has no power");
    }

    /// Lets clients in and sees them off until it is told to end.
    fn receive<V: Volume<Ssd>>(
        &mut self,
        instance: &Instance<V>,
        clients: &mut BTreeMap<u32, Client>,
        header: &Header,
    ) -> Result<()> {
        self.listener.set_nonblocking(true)?;
        loop {
            let (come, told) = {
                let watched = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
                let mut fds = vec![watched(self.listener.as_fd()), watched(self.control.as_fd())];
                for client in clients.values() {
                    fds.push(watched(client.socket.as_fd()));
                    fds.extend(client.process.as_ref().map(|process| watched(process.as_fd())));
                }
                match poll(&mut fds, None) {
                    Ok(_) => (!fds[0].revents().is_empty(), !fds[1].revents().is_empty()),
                    Err(rustix::io::Errno::INTR) => (false, false),
                    Err(error) => return Err(error.into()),
                }
            };
            self.go_on_unless_dead(header)?;
            for client in gone(clients) {
                see_off(instance, clients, client);
            }
            if told {
                // A word or the other's end: both mean the same.
                let _ = self.control.read(&mut [0; 1]);
                return Ok(());
            }
            if come && let Ok((socket, _)) = self.listener.accept() {
                // A client that went away while it came in is not missed.
                let _ = self.let_in(instance, clients, socket);
            }
        }
    }

    fn let_in<V: Volume<Ssd>>(
        &self,
        instance: &Instance<V>,
        clients: &mut BTreeMap<u32, Client>,
        socket: UnixStream,
    ) -> Result<()> {
        let peer = rustix::net::sockopt::socket_peercred(&socket)?;
        // Who is inside can do everything in the range: only the owner's processes are trusted with that.
        if peer.uid != rustix::process::geteuid() {
            return Ok(());
        }
        let free = (0..CLIENTS_MAX as u32).find(|number| !clients.contains_key(number));
        let Some(client) = free else { return Ok(()) };
        let process = Pid::from_raw(peer.pid.as_raw_pid());
        let process = process.and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
        let header = range::header().context("the program is in its range")?;
        let told = Welcome {
            base: range::BASE.load(Ordering::Relaxed),
            image_bytes: header.image_bytes.load(Ordering::Relaxed),
            client,
            protection: self.protection,
        };
        if let Some(visitor) = instance.visitors.get(client as usize) {
            visitor.come(&instance.fs, amphi_front_queue::credentials(&socket)?);
        }
        // A client that goes away now is seen off like any other.
        let welcomed = hello::welcome(&socket, &told, own(&range::MEMORY), own(&range::IMAGE));
        clients.insert(client, Client { socket, process });
        Ok(welcomed?)
    }
}

/// A descriptor that the program has for as long as it runs.
fn own(number: &std::sync::atomic::AtomicI32) -> BorrowedFd<'static> {
    let number = number.load(Ordering::Relaxed);
    assert!(number >= 0, "the memory and the image are mapped before anybody comes in");
    // SAFETY: the loader, or the mapping of the image, made it and gave it to nobody who closes it.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Whether a socket's other side, or a process, has ended.
fn has_ended(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    matches!(poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1))
}

/// The clients that have gone.
fn gone(clients: &BTreeMap<u32, Client>) -> Vec<u32> {
    let is_gone = |client: &Client| {
        // A client says nothing after it has come in: whatever is heard is its end. A child of its may keep
        // the socket.
        has_ended(client.socket.as_fd())
            || client.process.as_ref().is_some_and(|process| has_ended(process.as_fd()))
    };
    clients.iter().filter(|(_, client)| is_gone(client)).map(|(number, _)| *number).collect()
}

fn see_off<V: Volume<Ssd>>(instance: &Instance<V>, clients: &mut BTreeMap<u32, Client>, number: u32) {
    let was_inside = |context| client_of(range::owner(context).load(Ordering::SeqCst)) == Some(number);
    let is_dead = |client: &Client| client.process.as_ref().is_none_or(|process| has_ended(process.as_fd()));
    let deadline_ns = time::now_ns() + SETTLING_NS;
    // A client that leaves may have a thread that has come in and is about to see that it must not.
    while (0..CONTEXTS).any(was_inside)
        && !clients.get(&number).is_none_or(is_dead)
        && time::now_ns() < deadline_ns
    {
        task::yield_now();
    }
    if (0..CONTEXTS).any(was_inside) && !planted::has(Bug::DeathInsideOverlooked) {
        die("a client has died inside of the range");
    }
    clients.remove(&number);
    if let Some(visitor) = instance.visitors.get(number as usize) {
        visitor.see_off(&instance.fs);
    }
}

/// Ends the range as a crash of the host would: what was at work may be half done, so nothing of it is used
/// any more.
pub fn die(why: &str) -> ! {
    if let Some(header) = range::header() {
        header.dead.store(DEAD, Ordering::SeqCst);
    }
    // Whoever reads it may be gone.
    let _ =
        writeln!(std::io::stderr(), "amphi: the shared range ends: {why}; it is made anew from the device");
    // SAFETY: it ends the process, with nothing of the program run any more, which is what is wanted.
    unsafe { libc::_exit(DIED) }
}

/// The number of a descriptor that is the program's from now on.
pub fn keep(fd: OwnedFd) -> i32 {
    let number = fd.as_raw_fd();
    std::mem::forget(fd);
    number
}
