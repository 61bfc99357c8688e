//! SQLite on the library, in one process and without a mount: load, host crash, power loss, check. What the
//! demo runs where nothing can be mounted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions, fsck};
use amphi_ssd::{OpenOptions, Profile, Ssd};
use anyhow::{Context, Result, bail, ensure};
use rusqlite::Connection;
use serde_json::json;

use crate::load::{self, Interrupted, Load};
use crate::storage::Storage;
use crate::{bridge, verify};

/// What `in-process` takes.
#[derive(clap::Args)]
pub struct Options {
    /// A directory for the image and the acknowledgement logs.
    #[arg(long)]
    directory: PathBuf,
    /// The emulated device: a built-in profile's name.
    #[arg(long, default_value = "mssd-pcie3")]
    profile: String,
    /// Rows to insert in each journal mode.
    #[arg(long, default_value_t = 10_000)]
    transactions: u64,
    /// Decides when the crashes come and what they destroy.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const CAPACITY_BYTES: u64 = 8 << 30;
const JOURNAL_MODES: [&str; 2] = ["delete", "wal"];

static STORAGE: Storage = Storage::new();

/// A mounted image.
struct Mounted {
    device: Arc<Ssd>,
    fs: Arc<ByteFs<Ssd>>,
}

impl Mounted {
    fn open(image: &Path) -> Result<Self> {
        let device = Arc::new(Ssd::open(image, &OpenOptions::default())?);
        let fs = Arc::new(ByteFs::mount(Arc::clone(&device), MountOptions::default())?);
        STORAGE.mount(Arc::clone(&fs) as _);
        Ok(Self { device, fs })
    }

    fn close(self) -> Result<()> {
        STORAGE.unmount();
        let fs = Arc::into_inner(self.fs).context("a file is still open")?;
        Ok(fs.unmount()?)
    }

    /// Leaves everything as it is, as a crash does.
    fn abandon(self) {
        STORAGE.unmount();
    }
}

/// The two ways to die.
#[derive(Clone, Copy)]
enum Crash {
    Host,
    Power,
}

/// Runs everything, printing one line of JSON for each load and each crash.
///
/// # Errors
/// Whatever goes wrong: a refused transaction, something lost, damage.
pub fn run(options: &Options) -> Result<()> {
    bridge::register(&STORAGE)?;
    let image = options.directory.join("ssd.img");
    let profile = Profile::named(&options.profile)?;
    Ssd::create(&image, &profile, CAPACITY_BYTES)?;
    ByteFs::format(&Ssd::open(&image, &OpenOptions::default())?, &FormatOptions::default())?;

    let mounted = Mounted::open(&image)?;
    for journal in JOURNAL_MODES {
        let before = mounted.device.stats();
        let mut load = Load { journal, transactions: options.transactions, log: None, progress: None };
        let report = load.run(&connect(journal)?)?;
        let line = json!({ "load": journal, "report": report,
            "before": { "device": before }, "after": { "device": mounted.device.stats() } });
        println!("{line}");
    }
    mounted.close()?;

    for (number, crash) in [Crash::Host, Crash::Power].into_iter().enumerate() {
        for (round, journal) in JOURNAL_MODES.into_iter().enumerate() {
            let seed = options.seed.wrapping_mul(4).wrapping_add((number * 2 + round) as u64);
            crash_once(options, &image, crash, journal, seed)?;
        }
    }
    Ok(())
}

fn crash_once(options: &Options, image: &Path, crash: Crash, journal: &'static str, seed: u64) -> Result<()> {
    /// Far more than it will come to.
    const TRANSACTIONS: u64 = 1_000_000;
    let kind = match crash {
        Crash::Host => "host-crash",
        Crash::Power => "power-loss",
    };
    let name = format!("{kind}-{journal}");
    let acknowledged = options.directory.join(&name);
    let mounted = Mounted::open(image)?;
    {
        let connection = connect(&name)?;
        let log = load::AcknowledgementLog::open(&acknowledged)?;
        let mut load = Load { journal, transactions: TRANSACTIONS, log: Some(log), progress: None };
        let device = Arc::clone(&mounted.device);
        let after_ms = 200 + seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 800;
        let crasher = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(after_ms));
            match crash {
                Crash::Host => device.host_crash(seed),
                Crash::Power => device.power_cut(seed),
            }
        });
        let outcome = load.run(&connection);
        ensure!(crasher.join().is_ok(), "the crash itself failed");
        match outcome {
            Err(error) if error.is::<Interrupted>() => {}
            Err(error) => return Err(error),
            Ok(_) => bail!("SQLite did not notice the crash"),
        }
    }
    mounted.device.settle();
    mounted.abandon();

    let mounted = Mounted::open(image)?;
    let verified = verify::check(&connect(&name)?, &std::fs::read(&acknowledged)?)?;
    mounted.close()?;
    let device = Ssd::open(image, &OpenOptions::default())?;
    let report = fsck::check(&device, &mut |_| {})?;
    ensure!(report.is_clean(), "fsck finds {} errors and {} warnings", report.errors, report.warnings);
    println!("{}", json!({ "crash": kind, "journal": journal, "verified": verified }));
    Ok(())
}

/// A connection to a database on the storage. One connection alone needs no shared memory for its write-ahead
/// log.
fn connect(name: &str) -> Result<Connection> {
    let vfs = bridge::NAME.to_str()?;
    let connection =
        Connection::open_with_flags_and_vfs(format!("/{name}.db"), rusqlite::OpenFlags::default(), vfs)?;
    connection.execute_batch("PRAGMA locking_mode=EXCLUSIVE; PRAGMA temp_store=MEMORY")?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlite_runs_on_the_library_and_loses_nothing_in_a_crash() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            directory: directory.path().to_owned(),
            profile: "free".to_owned(),
            transactions: 200,
            seed: 7,
        };
        run(&options).unwrap();
    }
}
