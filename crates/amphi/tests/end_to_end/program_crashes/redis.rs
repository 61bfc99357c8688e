//! Redis over crashes, its append-only file synced at each write: what was acknowledged to a client is there,
//! value for value and in order, and `redis-check-aof` finds nothing wrong.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Dice, Outcome, Program, Rig, Server, expect_count, installed, run, survive, wait_for};

#[test]
fn redis() {
    survive(make);
}

pub(super) fn make(mut dice: Dice) -> Redis {
    Redis { clients: (0..CLIENTS).map(|number| Client::new(number, Dice::new(dice.next()))).collect() }
}

/// Programs that talk to it at once.
const CLIENTS: u64 = 3;

/// Keys of each.
const KEYS: u64 = 200;

pub(super) struct Redis {
    clients: Vec<Client>,
}

impl Program for Redis {
    const NAME: &'static str = "Redis";
    const NEEDS: &'static [&'static str] = &["redis-server", "redis-check-aof"];
    const IMAGE: &'static str = "512M";
    const OPERATIONS: u64 = 8000;

    fn prepare(&mut self, rig: &Rig) -> Outcome<()> {
        std::fs::create_dir(rig.on_mount("redis")).map_err(|error| error.to_string())
    }

    fn work_until_crash(&mut self, rig: &Rig, acknowledged: &AtomicU64) -> Outcome<()> {
        let mut server = start(rig)?;
        std::thread::scope(|scope| {
            let working: Vec<_> = self
                .clients
                .iter_mut()
                .map(|client| scope.spawn(|| client.work(rig, acknowledged)))
                .collect();
            working.into_iter().try_for_each(|thread| thread.join().expect("a client does not panic"))
        })?;
        // It ends by itself: with this setting an acknowledgement that it cannot keep is its end.
        server.wait().map(drop)
    }

    fn verify(&mut self, rig: &Rig) -> Outcome<String> {
        let mut server = start(rig)?;
        let mut total = 0;
        for client in &mut self.clients {
            total += client.verify(rig)?;
        }
        let mut connection = Connection::open(rig).map_err(|error| error.to_string())?;
        // The answer to this is the end of the connection.
        let _ = connection.ask(&["SHUTDOWN"]);
        if !server.wait()? {
            return Err(format!("redis-server failed at its end:\n{}", log(rig)));
        }
        let manifest = rig.on_mount("redis/appendonlydir/appendonly.aof.manifest");
        run(Command::new(installed("redis-check-aof").expect("looked for before")).arg(manifest))?;
        Ok(format!("{total} writes of {CLIENTS} clients"))
    }
}

/// Starts the server and waits until it has read its file and answers.
fn start(rig: &Rig) -> Outcome<Server> {
    let file = std::fs::File::options().create(true).append(true).open(rig.path("redis.log"));
    let file = file.map_err(|error| error.to_string())?;
    let mut command = Command::new(installed("redis-server").expect("looked for before"));
    command.args(["--port", "0", "--unixsocket", &rig.path("redis.socket")]);
    command.args(["--dir", rig.on_mount("redis").to_str().expect("a plain path"), "--save", ""]);
    command.args(["--appendonly", "yes", "--appendfsync", "always"]);
    // The file is written anew whenever it has doubled, from quite small on, by a process beside the server.
    command.args(["--auto-aof-rewrite-percentage", "100", "--auto-aof-rewrite-min-size", "200kb"]);
    let mut server = Server::start(command.stdout(Stdio::from(file)).stderr(Stdio::null()))?;
    wait_for("redis-server answers", || {
        server.has_ended()
            || Connection::open(rig)
                .and_then(|mut connection| connection.ask(&["PING"]))
                .is_ok_and(|reply| reply == Reply::Text("PONG".to_owned()))
    })?;
    if server.has_ended() { Err(format!("redis-server does not start:\n{}", log(rig))) } else { Ok(server) }
}

/// The end of what the server said.
fn log(rig: &Rig) -> String {
    let log = std::fs::read_to_string(rig.path("redis.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// One that writes keys of its own and knows what it was told.
struct Client {
    number: u64,
    dice: Dice,
    /// The number of the last write of each key that was acknowledged.
    keys: BTreeMap<u64, u64>,
    /// Length of its list; the elements are 0 and following.
    list: u64,
    /// Numbers its writes.
    writes: u64,
    /// The write that a crash interrupted: a key, or the list.
    in_flight: Option<Option<u64>>,
}

impl Client {
    fn new(number: u64, dice: Dice) -> Self {
        Self { number, dice, keys: BTreeMap::new(), list: 0, writes: 0, in_flight: None }
    }

    fn key(&self, key: u64) -> String {
        format!("client{}:{key}", self.number)
    }

    fn work(&mut self, rig: &Rig, acknowledged: &AtomicU64) -> Outcome<()> {
        let mut connection = Connection::open(rig).map_err(|error| format!("connect: {error}"))?;
        loop {
            let write = self.writes + 1;
            let key = (self.dice.below(4) != 0).then(|| self.dice.below(KEYS));
            let reply = match key {
                Some(key) => connection.ask(&["SET", &self.key(key), &value(write)]),
                None => connection.ask(&["RPUSH", &self.key(KEYS), &self.list.to_string()]),
            };
            self.writes = write;
            match (reply, key) {
                (Ok(Reply::Text(ok)), Some(key)) if ok == "OK" => drop(self.keys.insert(key, write)),
                (Ok(Reply::Number(len)), None) if len == self.list + 1 => self.list = len,
                (Err(_), key) => {
                    self.in_flight = Some(key);
                    return Ok(());
                }
                (Ok(reply), _) => return Err(format!("write {write} is answered with {reply:?}")),
            }
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of writes that were compared.
    fn verify(&mut self, rig: &Rig) -> Outcome<u64> {
        let mut connection = Connection::open(rig).map_err(|error| format!("connect: {error}"))?;
        let in_flight = self.in_flight.take();
        for key in 0..KEYS {
            let name = self.key(key);
            let reply = connection.ask(&["GET", &name]).map_err(|error| format!("GET: {error}"))?;
            let acknowledged = self.keys.get(&key).copied();
            let expected = acknowledged.map_or(Reply::Nothing, |write| Reply::Text(value(write)));
            if reply == expected {
                continue;
            }
            if in_flight == Some(Some(key)) && reply == Reply::Text(value(self.writes)) {
                self.keys.insert(key, self.writes);
                continue;
            }
            return Err(format!("{name} is {reply:.60?}, and write {acknowledged:?} was acknowledged"));
        }
        let name = self.key(KEYS);
        let reply =
            connection.ask(&["LRANGE", &name, "0", "-1"]).map_err(|error| format!("LRANGE: {error}"))?;
        let Reply::Texts(elements) = reply else { return Err(format!("{name} is {reply:?}")) };
        let allowed = self.list..=self.list + u64::from(in_flight == Some(None));
        self.list = expect_count(&format!("elements of {name}"), elements.len() as u64, allowed)?;
        match elements.iter().zip(0_u64..).find(|(element, number)| **element != number.to_string()) {
            Some((element, number)) => Err(format!("element {number} of {name} is {element}")),
            None => Ok(self.writes),
        }
    }
}

/// What write `write` sets a key to: of 20 to 3019 bytes.
fn value(write: u64) -> String {
    format!("{write:0width$}", width = 20 + (write * 577 % 3000) as usize)
}

/// A connection to the server.
struct Connection {
    stream: BufReader<UnixStream>,
}

/// An answer of the server.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Text(String),
    Number(u64),
    Nothing,
    Texts(Vec<String>),
}

impl Connection {
    fn open(rig: &Rig) -> io::Result<Self> {
        let stream = UnixStream::connect(rig.path("redis.socket"))?;
        stream.set_read_timeout(Some(super::PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a command and returns its answer; one that is an error comes as one.
    fn ask(&mut self, words: &[&str]) -> io::Result<Reply> {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(command.as_bytes())?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let wrong = || io::Error::other(line.to_owned());
        let (kind, rest) = line.split_at_checked(1).ok_or_else(wrong)?;
        Ok(match (kind, rest) {
            ("+", text) => Reply::Text(text.to_owned()),
            (":", number) => Reply::Number(number.parse().map_err(|_| wrong())?),
            ("$", "-1") => Reply::Nothing,
            ("$", len) => {
                let mut text = vec![0; len.parse::<usize>().map_err(|_| wrong())? + 2];
                self.stream.read_exact(&mut text)?;
                text.truncate(text.len() - 2);
                Reply::Text(String::from_utf8(text).map_err(io::Error::other)?)
            }
            ("*", count) => {
                let count: usize = count.parse().map_err(|_| wrong())?;
                let texts = (0..count).map(|_| match self.reply()? {
                    Reply::Text(text) => Ok(text),
                    other => Err(io::Error::other(format!("{other:?} in a list"))),
                });
                Reply::Texts(texts.collect::<io::Result<_>>()?)
            }
            _ => return Err(wrong()),
        })
    }
}
