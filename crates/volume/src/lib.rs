//! What a tool may do with a file system, whichever one it is: recognise, make, mount, check, repair, tune
//! it.
//!
//! A file system implements [`Volume`] for the devices that it can use. The command and the laboratories are
//! written against the trait; the list of file systems is the crate `volumes`. This crate lies below the file
//! systems, so that they share one [`Severity`], one [`Report`], one [`Error`] and one way to read a size.
#![forbid(unsafe_code)]

mod about;
mod checked;
mod claims;
mod device;
mod discard;
mod error;
mod fields;
mod links;
mod options;
mod report;
pub mod size;
mod words;

use std::sync::Arc;

use amphi_queue::CommandDevice;
use amphi_vfs::FileSystem;

pub use about::{About, parse_uuid, shown_uuid};
pub use checked::{Checked, Found};
pub use claims::{Bits, CHUNK_BITS, Claims};
pub use device::{io_error, read_runs};
pub use discard::Discard;
pub use error::{Error, Result, recognise};
pub use fields::{
    TypeCodes, attributes_bytes, decode_attributes, encode_attributes, label_bytes, label_text, random_uuid,
};
pub use links::Links;
pub use options::{Changes, FormatOptions, MountOptions};
pub use report::{Progress, Repair, Report, Severity};
pub use words::{Word, read_words};

/// What a file system asks of the device's byte side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it uses the block port alone.
    Blocks,
    /// A byte port that shows the block port's pages.
    PageView,
    /// A memory area with an address space of its own.
    MemoryArea,
    /// It is the firmware: it runs inside of the SSD, on flash and on memory that the host does not reach.
    Inside,
}

/// What a file system is called, and what it asks of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name on the command line and in reports.
    pub name: &'static str,
    /// The name in sentences.
    pub title: &'static str,
    /// What it is, in one sentence without its full stop, for the help text.
    pub summary: &'static str,
    /// The mount options that it understands, for people.
    pub words: &'static str,
    /// What it asks of the device.
    pub needs: Needs,
}

/// What is to be done with where programs' commands go ([`Volume::take_commands`]).
pub trait TakeCommands<F: FileSystem + 'static>: Sized {
    /// What it comes to.
    type Out;

    /// Commands are carried out by calls of the file system.
    fn by_calls(self, fs: &Arc<F>) -> Self::Out;

    /// The device takes them itself.
    fn by_device<C: CommandDevice>(self, device: &Arc<C>) -> Self::Out;
}

/// A file system that tools can make, mount and check on a device `D`.
///
/// The device is nobody else's while one of these functions runs, and while a file system is mounted on it.
pub trait Volume<D>: FileSystem + Sized + 'static {
    /// What it is called and what it asks of a device.
    const IDENTITY: Identity;

    /// Reads what the superblock says, changing nothing.
    ///
    /// # Errors
    /// [`Error::NotThis`] if something else or nothing is on the device. Any other error means that it is
    /// this file system, and damaged or of another version.
    fn probe(device: &D) -> Result<About>;

    /// Makes an empty one, over whatever was there.
    ///
    /// # Errors
    /// The device cannot carry it, or fails.
    fn format(device: &Arc<D>, options: &FormatOptions) -> Result<()>;

    /// Mounts it; a crash before is recovered from. What `options` leave open, its superblock says.
    ///
    /// # Errors
    /// [`Error::NotThis`]; it is damaged, an option is unknown or impossible, or the device fails.
    fn mount(device: &Arc<D>, options: &MountOptions) -> Result<Self>;

    /// Makes everything durable and closes it.
    ///
    /// # Errors
    /// The device fails; the next mount then recovers.
    fn unmount(self) -> Result<()>;

    /// What it is, while it is mounted.
    fn about(&self) -> About;

    /// What it has counted since it was mounted, by name; nothing, if it counts nothing.
    fn counted(&self) -> serde_json::Map<String, serde_json::Value> {
        serde_json::Map::new()
    }

    /// What it counts and what it has in memory, while it is mounted, by name; nothing, where all that there
    /// is to know is what the device counts.
    fn stats(&self) -> serde_json::Map<String, serde_json::Value> {
        self.counted()
    }

    /// Says where commands of programs go that do not come through the kernel: `then` is told to call the
    /// file system, or, where the device takes commands itself, to give them to the device.
    fn take_commands<T: TakeCommands<Self>>(fs: &Arc<Self>, then: T) -> T::Out {
        then.by_calls(fs)
    }

    /// Checks it, unmounted, and changes nothing but what mounting would. Damage is no error but a finding.
    ///
    /// # Errors
    /// [`Error::NotThis`]; the device fails.
    fn check(device: &Arc<D>, progress: &mut dyn FnMut(Progress)) -> Result<Report>;

    /// Checks it and mends what it finds, as long as that makes it better. A file system without a repair of
    /// its own mends what mounting mends, if nothing else is wrong.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    fn repair(device: &Arc<D>, progress: &mut dyn FnMut(Progress)) -> Result<Repair> {
        let before = Self::check(device, progress)?;
        if before.is_clean() && !before.cleanly_unmounted {
            Self::mount(device, &MountOptions::default())?.unmount()?;
            let after = Self::check(device, progress)?;
            return Ok(Repair { before, after });
        }
        Ok(Repair { after: before.clone(), before })
    }

    /// Changes what an unmounted one's superblock says; returns what it says then.
    ///
    /// # Errors
    /// [`Error::Unsupported`]; [`Error::NotThis`]; a change is impossible, or the device fails.
    fn tune(_device: &D, _changes: &Changes) -> Result<About> {
        Err(Error::unsupported::<D, Self>("tuned"))
    }

    /// Lets an unmounted one grow to `bytes`, or to all of its device. Returns its bytes before and after.
    ///
    /// # Errors
    /// [`Error::Unsupported`]; [`Error::NotThis`]; it cannot have that size, or the device fails.
    fn grow(_device: &D, _bytes: Option<u64>) -> Result<(u64, u64)> {
        Err(Error::unsupported::<D, Self>("resized"))
    }
}
