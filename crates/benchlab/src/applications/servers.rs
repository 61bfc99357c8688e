//! Applications that are a server on the file system and a client beside it. The server lives from the first
//! round to the last, and dies with the run.

use std::fs::File;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use amphi_rt::time;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::{Commits, Program, Rounds, Site, command};
use crate::peers::output;

/// Redis, its log synced at each write.
pub(super) struct Redis;

/// PostgreSQL.
pub(super) struct Postgres;

/// A server's process. Ended when dropped.
struct Server {
    child: Child,
    /// What ends it without much ado.
    signal: Signal,
}

impl Server {
    /// Starts it, and waits until `answers` says that it does.
    fn start(command: &mut Command, log: &Path, signal: Signal, answers: &dyn Fn() -> bool) -> Result<Self> {
        const PATIENCE_NS: u64 = 60_000_000_000;
        const PAUSE_NS: u64 = 20_000_000;
        let name = format!("{command:?}");
        let file = File::create(log)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("{name} cannot be run"))?;
        let mut server = Self { child, signal };
        let deadline_ns = time::now_ns() + PATIENCE_NS;
        while !answers() {
            let has_ended = server.child.try_wait()?.is_some();
            if has_ended || time::now_ns() > deadline_ns {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                let last = said.lines().rev().take(5).collect::<Vec<_>>();
                bail!("it does not answer: {}", last.into_iter().rev().collect::<Vec<_>>().join(" / "));
            }
            time::sleep_ns(PAUSE_NS);
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32)
            && matches!(self.child.try_wait(), Ok(None))
        {
            // It may end by itself in this moment.
            let _ = kill_process(pid, self.signal);
        }
        let _ = self.child.wait();
    }
}

impl Program for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn description(&self) -> &'static str {
        "Redis, appendfsync always: SET of 100 B by one client of redis-benchmark"
    }

    fn start(&self, at: &Site<'_>) -> Result<Box<dyn Rounds>> {
        let socket = at.scratch.join("redis.socket");
        let mut command = command(Path::new("redis-server"), None, at.preloaded_by)?;
        let fsync = if at.commits == Commits::Durable { "always" } else { "everysec" };
        command.args(["--port", "0", "--save", "", "--appendonly", "yes", "--appendfsync", fsync]);
        command.arg("--unixsocket").arg(&socket).arg("--dir").arg(at.directory);
        let answers = || {
            let ping = Command::new("redis-cli").arg("-s").arg(&socket).arg("PING").output();
            ping.is_ok_and(|said| said.stdout.starts_with(b"PONG"))
        };
        let server = Server::start(&mut command, &at.scratch.join("redis.log"), Signal::TERM, &answers)?;
        Ok(Box::new(RedisClient { _server: server, socket }))
    }
}

struct RedisClient {
    _server: Server,
    socket: PathBuf,
}

impl Rounds for RedisClient {
    fn round(&mut self, operations: u64) -> Result<f64> {
        let mut client = Command::new("redis-benchmark");
        client
            .arg("-s")
            .arg(&self.socket)
            .args(["-t", "set", "-c", "1", "-d", "100", "-r", "100000", "--csv"]);
        let printed = output(client.args(["-n", &operations.to_string()]))?;
        // A head, then "SET","12345.67",…
        let line = printed.lines().find(|line| line.starts_with("\"SET\""));
        let rate = line.and_then(|line| line.split('"').nth(3)?.parse().ok());
        rate.with_context(|| format!("no rate in: {}", printed.trim()))
    }
}

/// Small enough that eight servers fit beside each other; nothing here could lose a transaction.
const SETTINGS: [&str; 5] =
    ["listen_addresses=", "shared_buffers=16MB", "max_connections=10", "fsync=on", "autovacuum=off"];

/// Who runs PostgreSQL, which refuses to be root.
const USER: &str = "postgres";

impl Program for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn description(&self) -> &'static str {
        "PostgreSQL, pgbench at scale 1: one client's TPC-B transactions, synchronous_commit=on"
    }

    fn start(&self, at: &Site<'_>) -> Result<Box<dyn Rounds>> {
        let programs = installed()?;
        let owner = owner_of_user()?;
        for directory in [at.directory, at.scratch] {
            chown(directory, Some(owner.0), Some(owner.1))?;
        }
        let data = at.directory.join("data");
        let mut initdb = command(&programs.join("initdb"), Some(USER), None)?;
        initdb.args(["--username=postgres", "--auth=trust", "--no-locale", "--encoding=UTF8", "-D"]);
        output(initdb.arg(&data).current_dir("/"))?;
        let mut postgres = command(&programs.join("postgres"), Some(USER), at.preloaded_by)?;
        postgres.current_dir("/").arg("-D").arg(&data);
        postgres.arg("-c").arg(format!("unix_socket_directories={}", at.scratch.display()));
        let commit = if at.commits == Commits::Durable { "on" } else { "off" };
        postgres.arg("-c").arg(format!("synchronous_commit={commit}"));
        for setting in SETTINGS {
            postgres.args(["-c", setting]);
        }
        let client = PostgresClient { _server: None, programs, host: at.scratch.to_owned() };
        let answers = || output(client.command("psql").args(["-XAtqc", "SELECT 1"])).is_ok();
        let server = Server::start(&mut postgres, &at.scratch.join("postgres.log"), Signal::INT, &answers)?;
        output(client.command("pgbench").args(["-q", "-i", "-s", "1"]))?;
        Ok(Box::new(PostgresClient { _server: Some(server), ..client }))
    }
}

/// Where Debian keeps the newest PostgreSQL's programs.
fn installed() -> Result<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.map(|version| version.path().join("bin")).filter(|bin| bin.join("initdb").exists());
    newest.max().context("PostgreSQL is not installed (Debian: postgresql)")
}

/// The user's and the group's number.
fn owner_of_user() -> Result<(u32, u32)> {
    let number = |option: &str| -> Result<u32> {
        Ok(output(Command::new("id").args([option, USER]))?.trim().parse()?)
    };
    Ok((number("-u")?, number("-g")?))
}

struct PostgresClient {
    _server: Option<Server>,
    programs: PathBuf,
    host: PathBuf,
}

impl PostgresClient {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.arg(format!("--host={}", self.host.display())).arg("--username=postgres").current_dir("/");
        command.env("PGDATABASE", "postgres");
        command
    }
}

impl Rounds for PostgresClient {
    fn round(&mut self, operations: u64) -> Result<f64> {
        let mut pgbench = self.command("pgbench");
        let printed = output(pgbench.args(["-n", "-c", "1", "-t", &operations.to_string()]))?;
        let rate =
            printed.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        rate.with_context(|| format!("no rate in: {}", printed.trim()))
    }
}
