//! Flash operations and the host's commands as they are booked on the device's timelines and measured at the
//! same time.

use amphi_device::{Result, Structure};

use super::{Cause, Command, FlashOperation};
use crate::media::Media;

impl Media {
    /// A die reads a page. Answers when the page has left the flash.
    pub(crate) fn time_read(&self, cause: Cause, from: u64, die: u64) -> u64 {
        let done = self.timing.read_page(from, die);
        self.meters.flash(FlashOperation::Read, cause, done.saturating_sub(from));
        done
    }

    /// A page enters the write buffer, from where a die programs it. Answers when it is admitted.
    pub(crate) fn time_program(&self, cause: Cause, from: u64, die: u64) -> u64 {
        let admitted = self.timing.program_page(from, die);
        self.meters.flash(FlashOperation::Program, cause, admitted.saturating_sub(from));
        admitted
    }

    /// A die programs a page that takes no place of the write buffer. Answers when it is done.
    pub(crate) fn time_program_past_buffer(&self, cause: Cause, from: u64, die: u64) -> u64 {
        let done = self.timing.program_past_buffer(from, die);
        self.meters.flash(FlashOperation::Program, cause, done.saturating_sub(from));
        done
    }

    /// A die erases a block. Answers when it is done.
    pub(crate) fn time_erase(&self, cause: Cause, from: u64, die: u64) -> u64 {
        let done = self.timing.erase_block(from, die);
        self.meters.flash(FlashOperation::Erase, cause, done.saturating_sub(from));
        done
    }

    /// Runs a command whose time is its work's own.
    ///
    /// # Errors
    /// The work's.
    pub(crate) fn measured<T>(&self, command: Command, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let began = self.timing.now();
        let outcome = work();
        let device_ns = self.timing.now().saturating_sub(began);
        self.meters.command(command, None, device_ns, began);
        outcome
    }

    /// A command that `began` waits until the device is `done` with it.
    pub(crate) fn wait_for(&self, command: Command, tag: Option<Structure>, began: u64, done: u64) {
        self.timing.wait(done);
        self.meters.command(command, tag, done.saturating_sub(began), began);
    }
}
