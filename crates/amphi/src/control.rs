//! The control socket: how a command reaches the daemon that has an image mounted. One request and one
//! answer, each a line of JSON. The daemon keeps the connection open until it exits where the client has
//! reason to wait for that.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use amphi_rt::time::{now_ns, sleep_ns};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::{device, runtime_dir};

/// What a daemon can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum Request {
    /// The device's counters.
    Stats,
    /// What the device and the file system are.
    Info,
    /// What is pinned to the device's window.
    Pins,
    /// Discard what is free.
    Trim {
        /// Runs shorter than this, in bytes, are left alone.
        shortest: u64,
    },
    /// Cut the device's power and exit without flushing.
    PowerCut {
        /// Decides what happens to what was not yet durable.
        seed: u64,
    },
    /// Answer when everything is flushed after an unmount; the end of the connection is the end of the
    /// daemon.
    AwaitExit,
}

/// What a daemon answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// What was asked for.
    Done(serde_json::Value),
    /// Why not, in a sentence.
    Failed(String),
}

/// A request is one short line; nobody else should make the daemon remember more.
const REQUEST_BYTES_MAX: u64 = 4096;

/// How long a daemon may take that begins anew, as it does when its shared range has died, ns. Until it
/// listens, its old socket refuses.
const BEGINNING_NS_MAX: u64 = 5_000_000_000;
/// How long to wait before it is asked again, ns.
const STEP_NS: u64 = 10_000_000;

/// A connection on which a request has been sent.
pub struct Pending(BufReader<UnixStream>);

impl Pending {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The daemon's refusal, or its end before it answered.
    pub fn answer(&mut self) -> Result<serde_json::Value> {
        let mut line = String::new();
        self.0.read_line(&mut line).context("the mount's daemon could not be heard")?;
        if line.is_empty() {
            bail!("the mount's daemon ended without an answer; remount the image");
        }
        match serde_json::from_str(&line)
            .context("the mount's daemon answered in another version's words; remount the image")?
        {
            Answer::Done(value) => Ok(value),
            Answer::Failed(reason) => bail!("{reason}"),
        }
    }

    /// As [`answer`](Self::answer), for so long at the most; none if there is none yet.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub fn answer_within(&mut self, limit: Duration) -> Result<Option<serde_json::Value>> {
        self.0.get_ref().set_read_timeout(Some(limit))?;
        let answer = match self.0.fill_buf() {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
            _ => {
                self.0.get_ref().set_read_timeout(None)?;
                self.answer().map(Some)
            }
        };
        self.0.get_ref().set_read_timeout(None)?;
        answer
    }

    /// Waits until the daemon has exited.
    pub fn until_exit(mut self) {
        // An error means the same as the end: nobody is there any more.
        let _ = self.0.read_to_end(&mut Vec::new());
    }
}

/// Sends `request` to the daemon that has `image` mounted, or returns `None` if there is no such daemon.
///
/// # Errors
/// If the daemon is there but cannot be reached.
pub fn send(image: &Path, request: &Request) -> Result<Option<Pending>> {
    let Some(socket) = runtime_dir::find_socket(image)? else { return Ok(None) };
    let Some(mut stream) = connect(image, &socket)? else { return Ok(None) };
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    stream.write_all(line.as_bytes()).context("the mount's daemon does not listen")?;
    Ok(Some(Pending(BufReader::new(stream))))
}

/// A connection to the daemon that has `image` mounted and listens at `socket`, or will soon: one that begins
/// anew takes the socket away before it makes another.
fn connect(image: &Path, socket: &Path) -> Result<Option<UnixStream>> {
    let deadline_ns = now_ns() + BEGINNING_NS_MAX;
    loop {
        match UnixStream::connect(socket) {
            Ok(stream) => return Ok(Some(stream)),
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound) => {
                if !device::is_in_use(image).unwrap_or(false) || now_ns() > deadline_ns {
                    return Ok(None);
                }
                sleep_ns(STEP_NS);
            }
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("the daemon of {} cannot be reached at {}", image.display(), socket.display())
                });
            }
        }
    }
}

/// Listens at `socket`, in place of a dead daemon's.
///
/// # Errors
/// If the socket cannot be made, or a daemon that lives listens there: its image may only be read, so that no
/// lock keeps a second daemon away.
pub fn listen(socket: &Path) -> Result<UnixListener> {
    if UnixStream::connect(socket).is_ok() {
        bail!("the image is mounted already; unmount it first, or bind that mount: mount --bind DIR OTHER");
    }
    if let Err(error) = std::fs::remove_file(socket)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error)
            .with_context(|| format!("the old control socket {} cannot be removed", socket.display()));
    }
    UnixListener::bind(socket)
        .with_context(|| format!("the control socket {} cannot be made", socket.display()))
}

/// Reads the request of a new connection.
///
/// # Errors
/// If it is not one.
pub fn read_request(stream: &UnixStream) -> Result<Request> {
    let mut line = String::new();
    BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    serde_json::from_str(&line).context("not a request")
}

/// Sends the answer.
///
/// # Errors
/// If the client is gone.
pub fn write_answer(mut stream: &UnixStream, answer: &Answer) -> Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    stream.write_all(line.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::fs::{FlockOperation, flock};

    use super::*;

    #[test]
    fn a_request_and_its_answer_cross_a_socket() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let listener = listen(&socket).unwrap();
        let mut client = UnixStream::connect(&socket).unwrap();
        client.write_all(b"{\"command\":\"power-cut\",\"seed\":7}\n").unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(read_request(&server).unwrap(), Request::PowerCut { seed: 7 });
        write_answer(&server, &Answer::Failed("no".into())).unwrap();
        drop(server);
        let mut pending = Pending(BufReader::new(client));
        assert_eq!(pending.answer().unwrap_err().to_string(), "no");
        assert!(pending.answer().unwrap_err().to_string().contains("ended without an answer"));
    }

    #[test]
    fn a_daemon_that_begins_anew_is_awaited_and_a_dead_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("a.img");
        std::fs::write(&image, b"").unwrap();
        let socket = runtime_dir::for_daemon(&image).unwrap().socket;
        drop(listen(&socket).unwrap());
        assert!(send(&image, &Request::Info).unwrap().is_none(), "nobody has the image");
        let held = File::open(&image).unwrap();
        flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        let of = image.clone();
        let asked = amphi_rt::task::spawn("asks", move || send(&of, &Request::Info).unwrap().is_some());
        sleep_ns(3 * STEP_NS);
        let listener = listen(&socket).unwrap();
        assert!(asked.join(), "it listens again");
        drop(listener);
        std::fs::remove_file(&socket).unwrap();
        let at = socket.clone();
        let asked = amphi_rt::task::spawn("asks", move || connect(&image, &at).unwrap().is_some());
        sleep_ns(3 * STEP_NS);
        let listener = listen(&socket).unwrap();
        assert!(asked.join(), "for a moment there is no socket");
        drop(listener);
        std::fs::remove_file(socket).unwrap();
    }

    #[test]
    fn the_socket_of_a_daemon_that_lives_is_not_taken_away() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let listener = listen(&socket).unwrap();
        assert!(listen(&socket).unwrap_err().to_string().contains("mounted already"));
        UnixStream::connect(&socket).expect("the first one still listens");
        drop(listener);
        listen(&socket).expect("a dead one's place is free");
    }

    #[test]
    fn noise_is_refused_and_an_endless_line_is_cut() {
        for noise in [&b"\n"[..], b"{}\n", b"{\"command\":\"format\"}\n", &[b'['; 10_000]] {
            let (mut client, server) = UnixStream::pair().unwrap();
            client.write_all(noise).unwrap();
            assert!(read_request(&server).is_err());
        }
    }
}
