//! A command that fails: the medium cannot read a page, or the device cannot do what it is told to.
//!
//! What may fail is what an SSD may fail: every block command, and of the byte port what reaches flash. The
//! battery-backed memory of an SSD does not fail, nor does a store, of whose fate the host hears later.

use std::fmt;
use std::str::FromStr;

use amphi_device::{Error, Lpa, Result};
use amphi_rt::sync::Mutex;

/// Which command fails, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fault {
    /// Its number, of those that may fail, from 0.
    pub command: u64,
    /// Whether it is carried out all the same, so that the host is told of a failure that was none. Reads
    /// never are.
    pub done: bool,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "!{}{}", self.command, if self.done { "d" } else { "" })
    }
}

impl FromStr for Fault {
    type Err = std::num::ParseIntError;

    /// Reads what [`Display`](fmt::Display) writes, without the exclamation mark.
    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let (command, done) = text.strip_suffix('d').map_or((text, false), |command| (command, true));
        Ok(Self { command: command.parse()?, done })
    }
}

/// The command that is going to fail, if one is, and whether it has.
#[derive(Debug, Default)]
pub struct Faults(Mutex<(Option<Fault>, Option<&'static str>)>);

/// How a command ends that is carried out.
#[must_use]
pub struct End(bool);

impl End {
    /// The host's answer.
    pub fn answer(self) -> Result<()> {
        if self.0 { Err(failure()) } else { Ok(()) }
    }
}

fn failure() -> Error {
    Error::Image("the laboratory has this command fail".to_owned())
}

impl Faults {
    /// Has a command fail, counted from the next one.
    pub fn plan(&self, fault: Option<Fault>) {
        self.0.lock().0 = fault;
    }

    /// What is still planned.
    pub fn planned(&self) -> Option<Fault> {
        self.0.lock().0
    }

    /// Which kind of command has failed, if one has.
    pub fn happened(&self) -> Option<&'static str> {
        self.0.lock().1
    }

    /// Whether this command is the one, and if it is, whether it is carried out.
    fn take(&self, what: &'static str) -> Option<bool> {
        let mut inner = self.0.lock();
        let fault = inner.0.as_mut()?;
        if let Some(left) = fault.command.checked_sub(1) {
            fault.command = left;
            return None;
        }
        let done = fault.done;
        *inner = (None, Some(what));
        Some(done)
    }

    /// A command that changes something is about to be carried out.
    ///
    /// # Errors
    /// It fails and is not carried out.
    pub fn change(&self, what: &'static str) -> Result<End> {
        match self.take(what) {
            Some(false) => Err(failure()),
            late => Ok(End(late.is_some())),
        }
    }

    /// A command is about to read into a buffer.
    ///
    /// # Errors
    /// It fails: the page is unreadable. What the buffer holds then is nobody's data.
    pub fn read(&self, what: &'static str, at: Lpa, into: &mut [u8]) -> Result<()> {
        match self.take(what) {
            Some(_) => {
                into.fill(0xee);
                Err(Error::Media(at))
            }
            None => Ok(()),
        }
    }
}
