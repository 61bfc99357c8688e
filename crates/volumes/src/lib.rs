//! The one list of file systems. A tool that is written against [`Volume`] gets them all from here, and a new
//! file system is one more line.
//!
//! What a tool does is an [`Act`]; [`Kind::with`] does it to the file system of a name, as one monomorphic
//! piece of code for each: no operation goes through a table of functions because of this list.
#![forbid(unsafe_code)]

#[cfg(feature = "compiled-once")]
pub mod compiled;

use amphi_device::{BaBuffer, BlockPort, CommandPort, MemoryArea, WriteLog};
use amphi_pins::Pinned;
use amphi_volume::{About, Error, Identity, Needs, Result, Volume};

/// A device with every port that a file system of the list may use. Which of them work is known at run time:
/// an emulated SSD chooses its firmware when it is made.
pub trait Ports: BlockPort + WriteLog + MemoryArea + CommandPort + 'static {}

impl<D: BlockPort + WriteLog + MemoryArea + CommandPort + 'static> Ports for D {}

/// Something that is done with a file system on a device `D`, whichever file system it is.
pub trait Act<D> {
    /// What it brings.
    type Out;

    /// Does it with file systems of the type `V`.
    fn on<V: Volume<D>>(self) -> Self::Out;
}

macro_rules! list {
    ($($kind:ident: $room:ident::$volume:ident,)*) => {
        /// The file systems.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(
                #[doc = concat!("[`", stringify!($room), "`]")]
                $kind,
            )*
        }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// What it is called and what it asks of a device.
            #[must_use]
            pub const fn identity(self) -> &'static Identity {
                match self {
                    $(Self::$kind => &$room::IDENTITY,)*
                }
            }

            /// Does `act` with this file system.
            pub fn with<D: Ports, A: Act<D>>(self, act: A) -> A::Out {
                match self {
                    $(Self::$kind => act.on::<$room::$volume<D>>(),)*
                }
            }
        }
    };
}

list! {
    Bytefs: amphi_fs_bytefs::ByteFs,
    Ext4like: amphi_fs_ext4like::Ext4Like,
    Romefs: amphi_fs_romefs::RomeFs,
    Augefs: amphi_fs_augefs::AugeFs,
    Devfs: amphi_fs_devfs::DevFs,
    F2fslike: amphi_fs_f2fslike::F2fsLike,
    Novalike: amphi_fs_novalike::NovaLike,
    Pmfslike: amphi_fs_pmfslike::PmfsLike,
    Toy: amphi_fs_toy::Toy,
}

impl Kind {
    /// The name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.identity().name
    }

    /// The file system of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Does `act` with this file system as it is on this device: with pins, where the device's window is a
    /// BA-buffer and the file system says where its files lie.
    pub fn with_on<D: Ports + BaBuffer, A: Act<D>>(self, device: &D, act: A) -> A::Out {
        match self {
            Self::Ext4like if device.ba_buffer().is_ok() => {
                act.on::<Pinned<amphi_fs_ext4like::Ext4Like<D>, D>>()
            }
            _ => self.with(act),
        }
    }

    /// Which one a device holds, damaged or not. `None`: none of the list.
    ///
    /// Those in a memory area come first: what lies in the block port's page 0 is file data then.
    pub fn on<D: Ports>(device: &D) -> Option<Self> {
        let in_memory = |kind: &Self| matches!(kind.identity().needs, Needs::MemoryArea | Needs::Inside);
        let is_there = |kind: &Self| !matches!(kind.probe(device), Err(Error::NotThis { .. }));
        let (first, then): (Vec<Self>, Vec<Self>) = Self::ALL.iter().partition(|kind| in_memory(kind));
        first.into_iter().chain(then).find(is_there)
    }

    /// Reads what its superblock says.
    ///
    /// # Errors
    /// As [`Volume::probe`].
    pub fn probe<D: Ports>(self, device: &D) -> Result<About> {
        struct Probe<'a, D>(&'a D);
        impl<D> Act<D> for Probe<'_, D> {
            type Out = Result<About>;
            fn on<V: Volume<D>>(self) -> Self::Out {
                V::probe(self.0)
            }
        }
        self.with(Probe(device))
    }
}
