//! What is done with a file system that is not mounted, cut off by a loss of power or by a failing command.

use std::sync::Arc;

use amphi_crashlab::rig::{Fault, Rig, Way};
use amphi_crashlab::subject::{self, Size, Subject};
use amphi_ssd::Ssd;

use crate::others::write;

/// Steps to which a cut is armed, and commands up to one that is to fail, that are never to come: so they are
/// counted.
const NEVER: u64 = 1 << 40;
/// Steps at the beginning of what is done, and at its end, that are all tried, and so many between them.
const ENDS: u64 = 24;

/// The device that nobody uses any more.
pub fn into_ssd(rig: Arc<Rig>) -> Result<Ssd, String> {
    Ok(Arc::into_inner(rig).ok_or("what is done still holds the device")?.into_ssd())
}

/// The device after it has lost its power, with nothing failing any more.
pub fn after_power_cut(rig: Arc<Rig>, seed: u64) -> Result<Arc<Rig>, String> {
    let ssd = into_ssd(rig)?;
    ssd.power_cut(seed);
    Ok(Arc::new(Rig::plain(ssd.restart().map_err(|error| error.to_string())?)))
}

/// Has a command fail in each way, the first one and then every `every`th, until `run` says that none has.
/// Returns what `run` has found wrong. One that has more than a few commands to fail is expected.
pub fn each_fault(first: u64, every: usize, run: impl Fn(Fault) -> Result<bool, String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for way in Way::ALL {
        for command in (first..).step_by(every) {
            let fault = Fault { command, way };
            match run(fault) {
                Ok(true) => {}
                Ok(false) => {
                    assert!(command > 5, "it ended after {command} commands");
                    break;
                }
                Err(what) => wrong.push(format!("fault {fault}: {what}")),
            }
        }
    }
    wrong
}

/// A device with a file system that has a file, and was not unmounted.
pub fn used(subject: &Subject, format: impl Fn(&Arc<Rig>) -> Result<(), String>) -> Result<Ssd, String> {
    let device = subject::device("nvme", subject.firmware, Size::Cramped).or_else(|_| {
        // This firmware has no volatile write buffer.
        subject::device("free", subject.firmware, Size::Cramped)
    })?;
    let rig = Arc::new(Rig::plain(device));
    format(&rig)?;
    let fs = subject.mount(&rig)?;
    write(&*fs, "old", 0xab).and_then(|()| fs.sync()).map_err(|error| error.to_string())?;
    drop(fs);
    into_ssd(rig)
}

/// Some of so many steps.
fn some(all: u64) -> impl Iterator<Item = u64> {
    (0..all).filter(move |at| *at < ENDS || *at + ENDS > all || at % (all / ENDS).max(1) == 0)
}

/// Does something with copies of `used`, on each of which something else goes wrong: the power goes, or any
/// one of the commands fails. `judge` is told how it ended, and has the device, whose power went in either
/// case, at the latest when it had ended.
///
/// # Errors
/// What `judge` says, with what had gone wrong; nothing could go wrong.
pub fn interrupt(
    used: &Ssd,
    doing: &dyn Fn(&Arc<Rig>) -> Result<(), String>,
    mut judge: impl FnMut(Result<(), String>, Ssd) -> Result<(), String>,
) -> Result<(), String> {
    let fork = || used.fork().map(|ssd| Arc::new(Rig::plain(ssd))).map_err(|error| error.to_string());
    let counting = fork()?;
    counting.ssd().cut_after_steps(NEVER, 0);
    counting.fail(Some(Fault { command: NEVER, way: Way::Refused }));
    doing(&counting)?;
    let steps = NEVER - counting.ssd().steps_before_cut().unwrap_or(NEVER);
    let commands = NEVER - counting.planned_fault().map_or(NEVER, |fault| fault.command);
    if steps + commands == 0 {
        return Err("it does nothing that can be cut off".to_owned());
    }
    let mut end = |rig: Arc<Rig>, what: &str| {
        let outcome = doing(&rig);
        rig.fail(None);
        rig.ssd().power_cut(1);
        let judged = into_ssd(rig).and_then(|ssd| judge(outcome, ssd));
        judged.map_err(|error| format!("{what}: {error}"))
    };
    for step in some(steps) {
        let rig = fork()?;
        rig.ssd().cut_after_steps(step, step);
        end(rig, &format!("power lost after {step} of {steps} steps"))?;
    }
    for way in Way::ALL {
        for command in 0..commands {
            let rig = fork()?;
            rig.fail(Some(Fault { command, way }));
            end(rig, &format!("command {command} of {commands} fails: {way:?}"))?;
        }
    }
    Ok(())
}
