//! What people do with a file system that is not mounted: look at it, tune it, let it grow, repair it.

use std::sync::Arc;

use amphi_volume::{About, Changes, Error, MountOptions, Repair, Volume};
use amphi_volumes::Act;

use crate::rig::Rig;
use crate::subject::Subject;

impl Subject {
    /// What its superblock says.
    ///
    /// # Errors
    /// Why it cannot be read, in words.
    pub fn about(&self, device: &Arc<Rig>) -> Result<About, String> {
        struct Probe<'a>(&'a Rig);
        impl Act<Rig> for Probe<'_> {
            type Out = Result<About, Error>;
            fn on<V: Volume<Rig>>(self) -> Self::Out {
                V::probe(self.0)
            }
        }
        self.act(device, Probe(device))
    }

    /// Changes what its superblock says.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn tune(&self, device: &Arc<Rig>, changes: &Changes) -> Result<About, String> {
        struct Tune<'a>(&'a Rig, &'a Changes);
        impl Act<Rig> for Tune<'_> {
            type Out = Result<About, Error>;
            fn on<V: Volume<Rig>>(self) -> Self::Out {
                V::tune(self.0, self.1)
            }
        }
        self.act(device, Tune(device, changes))
    }

    /// Lets it grow to all of its device. Returns its bytes before and after.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn grow(&self, device: &Arc<Rig>) -> Result<(u64, u64), String> {
        struct Grow<'a>(&'a Rig);
        impl Act<Rig> for Grow<'_> {
            type Out = Result<(u64, u64), Error>;
            fn on<V: Volume<Rig>>(self) -> Self::Out {
                V::grow(self.0, None)
            }
        }
        self.act(device, Grow(device))
    }

    /// Checks it, and mends what is found.
    ///
    /// # Errors
    /// Why it cannot be checked, in words.
    pub fn repair(&self, device: &Arc<Rig>) -> Result<Repair, String> {
        struct Mend<'a>(&'a Arc<Rig>);
        impl Act<Rig> for Mend<'_> {
            type Out = Result<Repair, Error>;
            fn on<V: Volume<Rig>>(self) -> Self::Out {
                V::repair(self.0, &mut |_| {})
            }
        }
        self.act(device, Mend(device))
    }

    /// Mounts it and unmounts it as people do, which a crash does not.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn unmount(&self, device: &Arc<Rig>) -> Result<(), String> {
        struct Unmount<'a>(&'a Arc<Rig>);
        impl Act<Rig> for Unmount<'_> {
            type Out = Result<(), Error>;
            fn on<V: Volume<Rig>>(self) -> Self::Out {
                V::mount(self.0, &MountOptions::default())?.unmount()
            }
        }
        self.act(device, Unmount(device))
    }
}
