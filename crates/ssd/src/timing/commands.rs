//! Commands to a file system inside of the device: the link on both ways, and a processor's time.

use amphi_device::PAGE_BYTES;

use super::link::Link;
use super::{Timing, scaled};
use crate::Profile;

/// Bytes of a command, or of a completion, on the link: an entry of `amphi_queue`.
const ENTRY_BYTES: u64 = 128;

/// Processors of a device whose profile says nothing of them (DevFS §5.1).
const PROCESSORS: usize = 4;

/// What a command costs outside of flash. The ports of such a firmware are inside and have no link; this is
/// it.
#[derive(Debug)]
pub(super) struct Commands {
    link: Link,
    command_ns: u64,
    /// For 4 KB that the command moves.
    page_ns: u64,
    /// For a structure that the command moves to or from host memory.
    entry_ns: u64,
}

impl Commands {
    pub(super) fn new(profile: &Profile, dilation: f64, free: bool) -> Self {
        Self {
            link: Link::new(profile, dilation, free),
            command_ns: scaled(profile.firmware.command_cpu_ns, dilation),
            page_ns: scaled(profile.firmware.page_cpu_ns, dilation),
            entry_ns: scaled(profile.firmware.entry_cpu_ns, dilation),
        }
    }
}

impl Profile {
    /// Processors that carry out commands of a file system inside.
    pub(crate) const fn command_processors(&self) -> usize {
        match self.firmware.cores {
            0 => PROCESSORS,
            cores => cores as usize,
        }
    }
}

impl Timing {
    /// When a command that is rung now is in the device, with `bytes` of data.
    pub(crate) fn command_received(&self, bytes: u64) -> u64 {
        match &self.commands {
            Some(commands) if !self.free => {
                commands.link.carry_to_device(self.now(), ENTRY_BYTES + bytes) + commands.link.command_ns()
            }
            _ => 0,
        }
    }

    /// When a processor that begins now has computed what a command takes that moves `bytes`.
    pub(crate) fn command_computed(&self, bytes: u64) -> u64 {
        match &self.commands {
            Some(commands) if !self.free => {
                self.now() + commands.command_ns + bytes * commands.page_ns / PAGE_BYTES as u64
            }
            _ => 0,
        }
    }

    /// When a processor that begins now has moved `count` structures of `bytes` in all to or from host
    /// memory: its own time for each of them and for their bytes, then the link. Which of the two ways they
    /// go is not told apart.
    pub(crate) fn structures_exchanged(&self, count: u64, bytes: u64) -> u64 {
        match &self.commands {
            Some(commands) if !self.free => {
                let computing = count * commands.entry_ns + bytes * commands.page_ns / PAGE_BYTES as u64;
                commands.link.carry_to_host(self.now() + computing, bytes)
            }
            _ => 0,
        }
    }

    /// When the host has a completion that is sent now, and `bytes` of data.
    pub(crate) fn command_completed(&self, bytes: u64) -> u64 {
        match &self.commands {
            Some(commands) if !self.free => {
                let carried = commands.link.carry_to_host(self.now(), ENTRY_BYTES + bytes);
                carried + commands.link.completion_ns()
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Firmware;

    fn timing(kind: Firmware) -> Timing {
        let mut profile = Profile::named("mssd-pcie3").expect("valid");
        profile.firmware.kind = kind;
        Timing::new(&profile, 1.0, false)
    }

    /// With a clock that stands still meanwhile.
    #[test]
    fn commands_take_the_link_and_the_ports_inside_do_not() {
        amphi_rt::Sim::new(1).run(|| {
            let timing = timing(Firmware::FileSystem);
            let profile = Profile::named("mssd-pcie3").expect("valid");
            let began = timing.now();
            let empty = timing.command_received(0) - began;
            assert!(empty >= profile.link.command_ns, "{empty}");
            let page = timing.command_received(4096) - began;
            assert!(page > empty + 1000, "4 KB take a microsecond of any link here: {page}, {empty}");
            assert_eq!(timing.to_device(5, 4096), 5);
        });
    }

    #[test]
    fn what_moves_to_host_memory_takes_a_processor_and_the_link() {
        let profile = Profile::named("mssd-pcie3").expect("valid");
        // Each on an idle device, with a clock that stands still meanwhile.
        let took = |count, bytes| {
            amphi_rt::Sim::new(1).run(|| {
                let timing = timing(Firmware::FileSystem);
                timing.structures_exchanged(count, bytes) - timing.now()
            })
        };
        let (few, many) = (took(1, 128), took(100, 128));
        assert_eq!(many, few + 99 * profile.firmware.entry_cpu_ns);
        assert!(took(1, 1 << 20) > few + 100_000, "a megabyte takes longer");
    }

    #[test]
    fn another_firmware_takes_no_commands() {
        let timing = timing(Firmware::Log);
        assert_eq!((timing.command_received(4096), timing.command_computed(1)), (0, 0));
        assert_eq!((timing.command_completed(4096), timing.structures_exchanged(1, 1)), (0, 0));
    }
}
