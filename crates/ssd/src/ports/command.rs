//! Commands to a file system inside of the device (DevFS §4.6).

use amphi_device::{CommandPort, Error, Result};

use crate::Firmware;
use crate::ssd::Ssd;

impl CommandPort for Ssd {
    fn processors(&self) -> Result<usize> {
        let profile = &self.core().profile;
        match profile.firmware.kind {
            Firmware::FileSystem => Ok(profile.command_processors()),
            _ => Err(Error::Unsupported("a file system inside of the device")),
        }
    }

    fn saved_bytes(&self) -> u64 {
        self.core().profile.bytes_saved()
    }

    fn receive(&self, bytes: u64) -> Result<()> {
        let core = self.core();
        core.timing.wait(core.timing.command_received(bytes));
        core.power.check()
    }

    fn compute(&self, bytes: u64) {
        let core = self.core();
        core.timing.wait(core.timing.command_computed(bytes));
    }

    fn exchange(&self, count: u64, bytes: u64) {
        let core = self.core();
        core.timing.wait(core.timing.structures_exchanged(count, bytes));
    }

    fn complete(&self, bytes: u64) -> Result<()> {
        let core = self.core();
        core.timing.wait(core.timing.command_completed(bytes));
        core.power.check()
    }
}
