//! Power: whether the device has it, and when a test takes it away.
//!
//! The firmware asks [`Power::step`] before every change of the image. A cut armed at the n-th step makes
//! that step and all later ones fail, so that the image is left exactly as if the firmware had died there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use amphi_device::{Error, Result};
use amphi_rt::sync::Padded;

use crate::dice::mix;

/// How the device went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The host died: CPU caches are lost, the link's posted writes arrive.
    HostCrash,
    /// Power failed: posted writes and commands in flight may be lost too.
    PowerCut,
}

const NOT_ARMED: u64 = u64::MAX;
const SLOW_NS_MAX: u64 = 1_000_000;

/// The device's power supply.
#[derive(Debug)]
pub(crate) struct Power {
    lost: AtomicBool,
    host_crash: AtomicBool,
    recorded: AtomicBool,
    firmware_runs: AtomicBool,
    seed: AtomicU64,
    armed: AtomicBool,
    commands_left: AtomicU64,
    steps_left: AtomicU64,
    /// By which seed steps take long, and one in how many; none do if that is 0.
    slow_by: AtomicU64,
    slow_one_in: AtomicU64,
    /// Away from what every command reads.
    tickets: Padded<AtomicU64>,
}

impl Power {
    /// Power that is on and stays on.
    pub(crate) const fn on() -> Self {
        Self {
            lost: AtomicBool::new(false),
            host_crash: AtomicBool::new(false),
            recorded: AtomicBool::new(false),
            firmware_runs: AtomicBool::new(false),
            seed: AtomicU64::new(0),
            armed: AtomicBool::new(false),
            commands_left: AtomicU64::new(NOT_ARMED),
            steps_left: AtomicU64::new(NOT_ARMED),
            slow_by: AtomicU64::new(0),
            slow_one_in: AtomicU64::new(0),
            tickets: Padded(AtomicU64::new(0)),
        }
    }

    /// Takes the power away. Answers whether it was still there.
    pub(crate) fn cut(&self, loss: Loss, seed: u64) -> bool {
        if self.lost.load(Ordering::Acquire) {
            return false;
        }
        self.seed.store(seed, Ordering::Relaxed);
        self.host_crash.store(loss == Loss::HostCrash, Ordering::Relaxed);
        !self.lost.swap(true, Ordering::AcqRel)
    }

    /// How the device went down and by which seed, if it did.
    pub(crate) fn loss(&self) -> Option<(Loss, u64)> {
        let loss = if self.host_crash.load(Ordering::Relaxed) { Loss::HostCrash } else { Loss::PowerCut };
        self.lost.load(Ordering::Acquire).then(|| (loss, self.seed.load(Ordering::Relaxed)))
    }

    /// Notes that the loss is being recorded in the image. Answers whether nobody had done so before.
    pub(crate) fn record(&self) -> bool {
        !self.recorded.swap(true, Ordering::AcqRel)
    }

    /// Arms a power cut just before the n-th command (from 0) or firmware step from now on.
    pub(crate) fn arm(&self, commands: Option<u64>, steps: Option<u64>, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
        self.commands_left.store(commands.unwrap_or(NOT_ARMED), Ordering::Relaxed);
        self.steps_left.store(steps.unwrap_or(NOT_ARMED), Ordering::Relaxed);
        self.armed.store(true, Ordering::Release);
    }

    /// Lets one in so many steps take up to 1 ms, as `seed` says.
    pub(crate) fn slow_down(&self, seed: u64, one_in: u64) {
        self.slow_by.store(seed, Ordering::Relaxed);
        self.slow_one_in.store(one_in, Ordering::Relaxed);
        self.armed.store(true, Ordering::Release);
    }

    /// Takes its time before a step, if it is one of the slow ones.
    fn dawdle(&self) {
        let one_in = self.slow_one_in.load(Ordering::Relaxed);
        if one_in > 0 {
            let number = self.slow_by.fetch_add(1, Ordering::Relaxed);
            let dice = mix(number);
            if dice.is_multiple_of(one_in) {
                amphi_rt::time::sleep_ns(mix(dice) % SLOW_NS_MAX);
            }
        }
    }

    fn count(&self, left: &AtomicU64) -> Result<()> {
        let before = left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| match left {
            NOT_ARMED => None,
            0 => Some(0),
            left => Some(left - 1),
        });
        if before == Ok(0) {
            self.cut(Loss::PowerCut, self.seed.load(Ordering::Relaxed));
        }
        self.check()
    }

    /// Whether there is power.
    ///
    /// # Errors
    /// [`Error::PowerLost`].
    pub(crate) fn check(&self) -> Result<()> {
        if self.lost.load(Ordering::Acquire) { Err(Error::PowerLost) } else { Ok(()) }
    }

    /// Whether a cut was armed, or steps are slow: commands and steps are counted then.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// A command arrives at a port.
    ///
    /// # Errors
    /// [`Error::PowerLost`], now or because a cut was armed at this command.
    pub(crate) fn command(&self) -> Result<()> {
        if self.armed.load(Ordering::Relaxed) {
            return self.count(&self.commands_left);
        }
        self.check()
    }

    /// The firmware is about to change the image.
    ///
    /// # Errors
    /// [`Error::PowerLost`], now or because a cut was armed at this step.
    pub(crate) fn step(&self) -> Result<()> {
        if self.armed.load(Ordering::Relaxed) {
            self.dawdle();
            return self.count(&self.steps_left);
        }
        if self.firmware_runs.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.check()
    }

    /// Firmware steps before an armed cut.
    pub(crate) fn steps_left(&self) -> Option<u64> {
        let left = self.steps_left.load(Ordering::Relaxed);
        (left != NOT_ARMED).then_some(left)
    }

    /// Lets the firmware go on although commands are refused: the host is gone, the device is not.
    pub(crate) fn run_firmware(&self, on: bool) {
        self.armed.store(false, Ordering::Relaxed);
        self.firmware_runs.store(on, Ordering::Relaxed);
    }

    /// Numbers a block command, so that each torn one is torn its own way.
    pub(crate) fn ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }
}
