//! [`DevFs`]: the mounted file system as its host sees it.

use std::sync::{Arc, Weak};

use amphi_device::{BlockPort, CommandPort, MemoryArea};
use amphi_queue::{CommandDevice, Memory, Watcher};
use amphi_rt::sync::Mutex;
use amphi_vfs::{Cred, Result};
use serde_json::{Map, Value, json};

use crate::away::{HostMemory, SEAL_BYTES};
use crate::controller::Controller;
use crate::credentials::Credentials;
use crate::door::{Door, Inside, Reception, Speaks};
use crate::format::{PAGE, Superblock};
use crate::inode::{self, HOST_INODE_BYTES};
use crate::mount::{self, MountError, Mounted};
use crate::options::{FormatOptions, MountOptions};
use crate::processors::Processors;
use crate::recover::Recovered;

/// A mounted DevFS.
pub struct DevFs<D: BlockPort + MemoryArea + CommandPort + 'static> {
    mounted: Mounted<D>,
    host: Arc<HostMemory>,
    pub(crate) inside: Arc<Inside<D>>,
    doors: Mutex<Vec<Weak<Door<D>>>>,
}

impl<D: BlockPort + MemoryArea + CommandPort + 'static> DevFs<D> {
    /// Makes an empty one, over whatever was there.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn format(device: &Arc<D>, options: &FormatOptions) -> std::result::Result<(), MountError> {
        if let Err(cause) = device.processors() {
            return Err(MountError::Unsuitable(format!(
                "DevFS runs inside of the SSD, but {cause}: make it with `--firmware file-system`"
            )));
        }
        mount::format(device, options)
    }

    /// Mounts the one on a device.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn mount(device: &Arc<D>, options: &MountOptions) -> std::result::Result<Self, MountError> {
        let processors = Processors::new(device.processors()?);
        let host = Arc::new(HostMemory::new(options.host_memory));
        let mounted = mount::open(device, options, &host)?;
        let inside = Arc::new(Inside {
            controller: Arc::clone(&mounted.controller),
            credentials: Credentials::new(&mounted.controller.memory),
            processors,
        });
        Ok(Self { mounted, host, inside, doors: Mutex::default() })
    }

    /// The credential table, which only the operating system's side may have in hand.
    pub fn credentials(&self) -> &Credentials {
        &self.inside.credentials
    }

    /// Registers a command buffer in which a queue was begun. Programs send commands through it until it is
    /// [closed](Door::close) or the mount ends.
    pub fn register(&self, memory: Arc<Memory>, speaks: Speaks) -> Arc<Door<D>> {
        let door = Door::open(&self.inside, memory, speaks);
        let mut doors = self.doors.lock();
        doors.retain(|door| door.strong_count() > 0);
        doors.push(Arc::downgrade(&door));
        drop(doors);
        door
    }

    /// Brings everything in place and ends the mount.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn unmount(self) -> Result<()> {
        self.close_doors();
        self.mounted.close()
    }

    fn close_doors(&self) {
        let doors = std::mem::take(&mut *self.doors.lock());
        doors.iter().filter_map(Weak::upgrade).for_each(|door| door.close());
    }

    pub(crate) fn controller(&self) -> &Controller<D> {
        &self.mounted.controller
    }

    /// The device.
    pub fn device(&self) -> &Arc<D> {
        &self.controller().media.device
    }

    /// What the last power-up found.
    pub const fn recovered(&self) -> Recovered {
        self.mounted.recovered
    }

    /// The host's memory that the device keeps things in.
    pub const fn host_memory(&self) -> &Arc<HostMemory> {
        &self.host
    }

    pub(crate) fn superblock(&self) -> Superblock {
        *self.mounted.superblock.lock()
    }

    /// What the controller counts, and what has its memory (§4.4).
    pub fn stats(&self) -> Map<String, Value> {
        let controller = self.controller();
        let mut stats = controller.counters.report();
        stats.insert("memory".into(), Value::Object(controller.memory.report()));
        stats.insert("inode_bytes".into(), Value::Object(inode_bytes()));
        stats.insert("host_memory_used".into(), json!(self.host.used()));
        stats.insert("slots".into(), json!(controller.slots.count()));
        stats.insert("slots_in_use".into(), json!(controller.slots.in_use()));
        // What capacitors have to save at most, what they can, and what a loss of power now would leave to
        // them.
        let page = PAGE as u64;
        let capacitors = json!({
            "accepted_bytes_max": controller.slots.count() * page,
            "accepted_bytes": controller.slots.in_use() * page,
            "saved_bytes": self.device().saved_bytes(),
        });
        stats.insert("capacitors".into(), capacitors);
        stats.insert("processors".into(), json!(self.inside.processors.count()));
        stats.insert("commands_that_waited".into(), json!(self.inside.processors.waited()));
        stats
    }
}

/// The parts of an inode (§4.4), in bytes: what one in use takes of device memory, what stays there of one
/// that is away, and what the host keeps of that. The paper's are 840, 262 and 578.
fn inode_bytes() -> Map<String, Value> {
    let parts = [("in_use", inode::bytes_in_use()), ("device", SEAL_BYTES), ("host", HOST_INODE_BYTES)];
    parts.map(|(name, bytes)| (name.to_owned(), json!(bytes))).into_iter().collect()
}

impl<D: BlockPort + MemoryArea + CommandPort + 'static> Drop for DevFs<D> {
    fn drop(&mut self) {
        // Of a mount that ended otherwise, as a test's crash does.
        self.close_doors();
    }
}

impl<D: BlockPort + MemoryArea + CommandPort + 'static> CommandDevice for DevFs<D> {
    type Executor<W: Watcher + 'static> = Reception<D, W>;

    fn register<W: Watcher + 'static>(
        &self,
        cred: &Cred,
        files_max: usize,
        watcher: W,
    ) -> Option<Reception<D, W>> {
        Reception::for_one(&self.inside, cred, files_max, watcher)
    }
}
