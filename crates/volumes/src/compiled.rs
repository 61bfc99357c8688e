//! The file systems on the emulated SSD, compiled once.
//!
//! A generic function is compiled by the first crate that needs it for its types. Crates above that one link
//! to what it has, if nothing is optimised for speed; crates beside it compile the same again. The
//! laboratories, the command and the libraries stand beside each other, and all need every file system on
//! [`Ssd`]. So this crate, below them all, needs it first, where the whole workspace is built for tests: that
//! takes minutes less. A release build shares nothing, and who builds one program needs one file system or
//! two, so it is a feature that `cargo xtask test` asks for.

use std::sync::Arc;

use amphi_ssd::Ssd;
use amphi_vfs::FileSystem;
use amphi_volume::{FormatOptions, MountOptions, Result, Volume};

use crate::{Act, Kind};

/// Does with a file system what every tool does. Nobody has to call it.
///
/// # Errors
/// As [`Volume::mount`].
pub fn with_every_function(kind: Kind, device: &Arc<Ssd>) -> Result<()> {
    kind.with_on(&**device, Everything(device))
}

struct Everything<'a>(&'a Arc<Ssd>);

impl Act<Ssd> for Everything<'_> {
    type Out = Result<()>;

    fn on<V: Volume<Ssd>>(self) -> Result<()> {
        V::probe(self.0)?;
        V::format(self.0, &FormatOptions::default())?;
        V::check(self.0, &mut |_| ())?;
        V::repair(self.0, &mut |_| ())?;
        let fs = V::mount(self.0, &MountOptions::default())?;
        // Its table of functions has every operation.
        let operations: &dyn FileSystem = &fs;
        let _promise = operations.promise();
        fs.unmount()
    }
}
