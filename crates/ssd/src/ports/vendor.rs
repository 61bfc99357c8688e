//! The vendor commands of the transactional write log: COMMIT, RECOVER, and cleaning on demand (ByteFS §4.3,
//! §4.7).

use amphi_device::{Error, RecoverReport, Result, TxId, WriteLog};

use crate::ssd::Ssd;
use crate::stats::{Activity, Command, Counter};

impl WriteLog for Ssd {
    fn commit(&self, tx: TxId) -> Result<()> {
        let core = self.core();
        core.power.command()?;
        let log = core.log()?;
        let began = core.timing.now();
        let done = core.timing.command();
        core.timing.wait(done);
        for _ in 0..3 {
            let seen = log.bell.rounds();
            if let Some(used) = log.append_commit(tx)? {
                core.count().add(Counter::Commits, 1);
                core.meters.command(Command::Commit, None, done - began, began);
                if used * 100 > core.layout.txlog_entries * core.profile.log.clean_at_percent {
                    log.ring();
                }
                return Ok(());
            }
            log.ring();
            let _waiting = core.meters.begin(Activity::LogFull);
            log.bell.wait_beyond(seen)?;
        }
        Err(Error::NoSpace(
            "the transaction log is full and open transactions keep it so; commit them".to_owned(),
        ))
    }

    fn recover(&self) -> Result<RecoverReport> {
        let core = self.core();
        core.power.command()?;
        let log = core.log()?;
        core.measured(Command::Recover, || {
            core.timing.wait(core.timing.command());
            log.recover_log()
        })
    }

    fn clean_log(&self) -> Result<()> {
        let core = self.core();
        core.power.command()?;
        let log = core.log()?;
        core.measured(Command::CleanLog, || {
            core.timing.wait(core.timing.command());
            log.clean_all()
        })
    }
}
