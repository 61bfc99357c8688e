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
    /// How it fails.
    pub way: Way,
}

/// How a command fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Way {
    /// It is refused.
    Refused,
    /// It is carried out all the same, so that the host is told of a failure that was none. Reads never are.
    Done,
    /// It is refused, and so are all others from then on.
    Lasting,
    /// It is refused, and so is one in [`RECURS`] from then on.
    Recurring,
}

/// One in so many commands fails where failures recur: few enough that most operations come through.
pub const RECURS: u64 = 20;

impl Way {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Refused, Self::Done, Self::Lasting, Self::Recurring];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.way {
            Way::Refused => "",
            Way::Done => "d",
            Way::Lasting => "l",
            Way::Recurring => "r",
        };
        write!(f, "!{}{way}", self.command)
    }
}

impl FromStr for Fault {
    type Err = std::num::ParseIntError;

    /// Reads what [`Display`](fmt::Display) writes, without the exclamation mark.
    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let (command, way) = if let Some(command) = text.strip_suffix('d') {
            (command, Way::Done)
        } else if let Some(command) = text.strip_suffix('l') {
            (command, Way::Lasting)
        } else if let Some(command) = text.strip_suffix('r') {
            (command, Way::Recurring)
        } else {
            (text, Way::Refused)
        };
        Ok(Self { command: command.parse()?, way })
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

    /// Whether this command is the one, and if it is, how it fails.
    fn take(&self, what: &'static str) -> Option<Way> {
        let mut inner = self.0.lock();
        let fault = inner.0.as_mut()?;
        if let Some(left) = fault.command.checked_sub(1) {
            fault.command = left;
            return None;
        }
        let way = fault.way;
        match way {
            Way::Lasting => {}
            Way::Recurring => fault.command = RECURS - 1,
            Way::Refused | Way::Done => inner.0 = None,
        }
        inner.1.get_or_insert(what);
        Some(way)
    }

    /// A command that changes something is about to be carried out.
    ///
    /// # Errors
    /// It fails and is not carried out.
    pub fn change(&self, what: &'static str) -> Result<End> {
        match self.take(what) {
            None => Ok(End(false)),
            Some(Way::Done) => Ok(End(true)),
            Some(Way::Refused | Way::Lasting | Way::Recurring) => Err(failure()),
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
