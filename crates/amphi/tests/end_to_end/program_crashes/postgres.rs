//! PostgreSQL over crashes, with data checksums: pgbench's transactions, each of them counted when it was
//! acknowledged; afterwards its own recovery, every heap and index looked through by `pg_amcheck`, pgbench's
//! balances, and all checksums by `pg_checksums`.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use super::{
    Dice, Outcome, Program, Rig, Server, command, complaint, expect_count, installed, run, survive, wait_for,
};

#[test]
fn postgres() {
    survive(make);
}

pub(super) fn make(dice: Dice) -> Postgres {
    Postgres { dice, user: User::for_server(), transactions: 0, in_flight: 0 }
}

/// Connections of pgbench.
const CLIENTS: u64 = 4;

/// The files are written again and again: few buffers, little log between checkpoints. Nothing is asked for
/// that could lose a transaction.
const SETTINGS: [&str; 8] = [
    "listen_addresses=",
    "shared_buffers=8MB",
    "max_wal_size=16MB",
    "min_wal_size=2MB",
    "checkpoint_timeout=30s",
    "autovacuum_naptime=1s",
    "fsync=on",
    "synchronous_commit=on",
];

pub(super) struct Postgres {
    dice: Dice,
    user: User,
    /// Acknowledged ones, and after a check those that are there.
    transactions: u64,
    /// How many may be there besides.
    in_flight: u64,
}

impl Program for Postgres {
    const NAME: &'static str = "PostgreSQL";
    const NEEDS: &'static [&'static str] =
        &["initdb", "postgres", "psql", "pgbench", "pg_amcheck", "pg_checksums"];
    const IMAGE: &'static str = "1G";
    const OPERATIONS: u64 = 1500;

    fn prepare(&mut self, rig: &Rig) -> Outcome<()> {
        for directory in [rig.on_mount("postgres"), rig.path("sockets").into(), rig.path("pgbench").into()] {
            std::fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
            self.user.give(&directory)?;
        }
        let data = rig.on_mount("postgres/data");
        let mut initdb = self.user.command("initdb");
        initdb.args([
            "--username=postgres",
            "--auth=trust",
            "--no-locale",
            "--encoding=UTF8",
            "--data-checksums",
        ]);
        // Small segments, so that many are begun, filled, renamed and removed.
        run(initdb.args(["--wal-segsize=1", "-D"]).arg(&data))?;
        let server = self.start(rig)?;
        run(self.user.command("pgbench").args(["-q", "-i", "-s", "1", "postgres"]).args(connect(rig)))?;
        stop(server)
    }

    fn work_until_crash(&mut self, rig: &Rig, acknowledged: &AtomicU64) -> Outcome<()> {
        let seed = self.dice.below(1 << 30);
        let mut server = self.start(rig)?;
        let history = || self.query(rig, "SELECT count(*) FROM pgbench_history").ok()?.parse::<u64>().ok();
        let before = history().ok_or("no history to count")?;
        let mut pgbench = self.user.command("pgbench");
        pgbench.args(["-n", "-c", &CLIENTS.to_string(), "-j", "2", "-T", "600"]);
        pgbench.arg(format!("--random-seed={seed}")).arg("postgres").args(connect(rig));
        let running = pgbench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut running = running.map_err(|error| format!("{pgbench:?}: {error}"))?;
        // When to crash is decided by what the database shows; what counts is what pgbench says in the end.
        while matches!(running.try_wait(), Ok(None)) {
            if let Some(now) = history() {
                acknowledged.store(now.saturating_sub(before + CLIENTS), Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let output = running.wait_with_output().map_err(|error| error.to_string())?;
        // Unless the failure has ended it already. It takes all its processes along, so that the next one is
        // alone.
        if !server.has_ended() {
            server.signal(Signal::QUIT)?;
        }
        server.wait()?;
        let report = String::from_utf8_lossy(&output.stdout);
        let processed =
            report.lines().find_map(|line| line.strip_prefix("number of transactions actually processed: "));
        let processed = processed.and_then(|count| count.split('/').next()?.trim().parse::<u64>().ok());
        self.transactions += processed.ok_or_else(|| complaint(&pgbench, &output))?;
        self.in_flight += CLIENTS;
        Ok(())
    }

    fn verify(&mut self, rig: &Rig) -> Outcome<String> {
        let server = self.start(rig)?;
        let mut amcheck = self.user.command("pg_amcheck");
        amcheck.args(["--all", "--install-missing", "--heapallindexed", "--parent-check", "--rootdescend"]);
        run(amcheck.args(connect(rig)))?;
        let count = self.query(rig, "SELECT count(*) FROM pgbench_history")?;
        let count = count.parse().map_err(|_| format!("psql says {count}"))?;
        self.transactions =
            expect_count("transactions", count, self.transactions..=self.transactions + self.in_flight)?;
        self.in_flight = 0;
        let sums = self.query(
            rig,
            "SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),
                (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(delta) FROM pgbench_history)",
        )?;
        if sums.split('|').any(|sum| Some(sum) != sums.split('|').next()) {
            return Err(format!("accounts, tellers, branches and history do not agree: {sums}"));
        }
        stop(server)?;
        let report = run(self
            .user
            .command("pg_checksums")
            .args(["--check", "-D"])
            .arg(rig.on_mount("postgres/data")))?;
        let blocks =
            report.lines().find_map(|line| line.strip_prefix("Blocks scanned:")).unwrap_or("no").trim();
        Ok(format!("{count} transactions, balances, indices and {blocks} checksums compared"))
    }
}

impl Postgres {
    /// Starts the server, which recovers first if it has to, and waits until it answers.
    fn start(&self, rig: &Rig) -> Outcome<Server> {
        let log = std::fs::File::options().create(true).append(true).open(rig.path("postgres.log"));
        let log = log.map_err(|error| error.to_string())?;
        let mut postgres = Command::new(installed("postgres").expect("looked for before"));
        self.user.run(&mut postgres);
        postgres.arg("-D").arg(rig.on_mount("postgres/data"));
        postgres.args(["-c", &format!("unix_socket_directories={}", rig.path("sockets"))]);
        for setting in SETTINGS {
            postgres.args(["-c", setting]);
        }
        postgres.stdout(Stdio::null()).stderr(Stdio::from(log));
        let mut server = Server::start(&mut postgres)?;
        wait_for("PostgreSQL answers", || server.has_ended() || self.query(rig, "SELECT 1").is_ok())?;
        if server.has_ended() {
            let log = std::fs::read_to_string(rig.path("postgres.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            return Err(format!(
                "PostgreSQL does not start:\n{}",
                lines[lines.len().saturating_sub(20)..].join("\n")
            ));
        }
        Ok(server)
    }

    /// What the database answers, fields separated by `|`.
    fn query(&self, rig: &Rig, query: &str) -> Outcome<String> {
        run(self.user.command("psql").args(["-XAtq", "-c", query, "postgres"]).args(connect(rig)))
    }
}

/// Ends the server as `pg_ctl stop -m fast` does.
fn stop(mut server: Server) -> Outcome<()> {
    server.signal(Signal::INT)?;
    if server.wait()? { Ok(()) } else { Err("PostgreSQL failed at its end".to_owned()) }
}

/// How to reach it.
fn connect(rig: &Rig) -> [String; 2] {
    [format!("--host={}", rig.path("sockets")), "--username=postgres".to_owned()]
}

/// Whom the server runs as: it refuses to be root.
struct User(Option<(u32, u32)>);

impl User {
    /// `postgres`, or where it is missing `nobody`, if this is root.
    fn for_server() -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self(None);
        }
        let users = std::fs::read_to_string("/etc/passwd").expect("a table of users");
        let find = |name: &str| {
            let fields: Vec<&str> = users
                .lines()
                .map(|line| line.split(':'))
                .map(Iterator::collect::<Vec<_>>)
                .find(|fields: &Vec<&str>| fields[0] == name)?;
            Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
        };
        Self(Some(find("postgres").or_else(|| find("nobody")).expect("a user other than root")))
    }

    /// Lets a command run as this user.
    fn run(&self, command: &mut Command) {
        if let Some((user, group)) = self.0 {
            command.uid(user).gid(group);
        }
        command.current_dir("/");
    }

    fn command(&self, program: &str) -> Command {
        let mut command = command(program);
        self.run(&mut command);
        command
    }

    /// Makes a new directory its own.
    fn give(&self, directory: &Path) -> Outcome<()> {
        let Some((user, group)) = self.0 else { return Ok(()) };
        std::os::unix::fs::chown(directory, Some(user), Some(group))
            .map_err(|error| format!("{}: {error}", directory.display()))
    }
}
