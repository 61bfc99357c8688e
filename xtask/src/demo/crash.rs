//! The daemon killed, and the power cut, in the middle of an SQLite run: everything acknowledged is there
//! afterwards.

use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::Programs;
use super::database::{JOURNAL_MODES, Load, Said, verify};
use super::screen::{Progress, grouped};
use super::stage::Stage;
use crate::step::step;

/// The two ways to die.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Crash {
    /// `kill -9` of the daemon: the host crashes, the device keeps its power.
    Kill,
    /// The device loses its power too.
    PowerLoss,
}

/// Crashes the mount in both ways and both journal modes, and checks what is there afterwards.
pub fn run(stage: &Stage, programs: &Programs, seed: u64) -> Result<()> {
    for crash in [Crash::Kill, Crash::PowerLoss] {
        let title = match crash {
            Crash::Kill => "kill -9 of the daemon in the middle of an SQLite run",
            Crash::PowerLoss => "power loss in the middle of an SQLite run",
        };
        step(title, || {
            for (round, journal) in JOURNAL_MODES.into_iter().enumerate() {
                once(stage, programs, crash, journal, seed.wrapping_mul(4).wrapping_add(round as u64))?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn once(stage: &Stage, programs: &Programs, crash: Crash, journal: &str, seed: u64) -> Result<()> {
    // Far more than it will come to.
    const TRANSACTIONS: u64 = 1_000_000;
    let name = match crash {
        Crash::Kill => format!("kill-{journal}"),
        Crash::PowerLoss => format!("power-{journal}"),
    };
    let db = stage.mount_point().join(format!("{name}.db"));
    let acknowledged = stage.outside(&name);
    // After 500 to 2,500 transactions.
    let crash_after = 500 + seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 2000;

    let mut progress = Progress::new(&format!("journal_mode {}", journal.to_uppercase()));
    let mut load = Load::start(programs, &db, journal, TRANSACTIONS, &acknowledged)?;
    loop {
        match load.next()? {
            Said::Done(done) if done >= crash_after => break,
            Said::Done(done) => progress.show(&format!("{} acknowledged", grouped(done))),
            Said::Report(_) | Said::End => {
                let (_, complaint) = load.end()?;
                bail!("SQLite ended before the crash: {complaint}");
            }
        }
    }
    // Into the middle of some later transaction.
    std::thread::sleep(Duration::from_micros(crash_after * 10));
    match crash {
        Crash::Kill => stage.kill()?,
        Crash::PowerLoss => stage.cut_power(seed)?,
    }
    let (regular, _) = load.end()?;
    ensure!(!regular, "SQLite did not notice the crash");

    stage.mount()?;
    let verified = verify(programs, &db, &acknowledged)?;
    stage.unmount()?;
    stage.fsck()?;
    stage.mount()?;
    progress.done(&format!(
        "integrity_check ok, {} of {} acknowledged transactions there ({} rows), amphi fsck clean",
        grouped(verified.acknowledged),
        grouped(verified.acknowledged),
        grouped(verified.rows)
    ));
    Ok(())
}
