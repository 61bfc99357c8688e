//! A file system with pins as tools see it: the one below, mounted so that ranges of its files can be pinned.

use std::sync::Arc;

use amphi_device::BaBuffer;
use amphi_vfs::Extents;
use amphi_volume::{
    About, Changes, Error, FormatOptions, Identity, MountOptions, Progress, Report, Result, Volume,
};

use crate::logs::{Options, Rule};
use crate::pinned::{MountError, Pinned};

/// Takes the words about logs out of the mount options: `log=RULE`, `logs=known`.
fn of_logs(words: &str) -> Result<(Options, String)> {
    let mut logs = Options::default();
    let mut others = Vec::new();
    for word in words.split(',') {
        match word.split_once('=') {
            Some(("log", rule)) => {
                let rule = Rule::parse(rule).map_err(|why| Error::own(BadRule(why)))?;
                logs.rules.push(rule);
            }
            Some(("logs", "known")) => logs.rules.extend(Options::built_in().rules),
            _ => others.push(word),
        }
    }
    Ok((logs, others.join(",")))
}

/// A rule that is none.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BadRule(String);

impl<F: Volume<D> + Extents, D: BaBuffer> Volume<D> for Pinned<F, D> {
    const IDENTITY: Identity = F::IDENTITY;

    fn probe(device: &D) -> Result<About> {
        F::probe(device)
    }

    fn format(device: &Arc<D>, options: &FormatOptions) -> Result<()> {
        // Nobody writes blocks whose bytes are in the window of the one that was there.
        for entry in device.entries().map_err(Error::own)? {
            device.flush_entry(entry.id).map_err(Error::own)?;
        }
        F::format(device, options)
    }

    fn mount(device: &Arc<D>, options: &MountOptions) -> Result<Self> {
        let (logs, words) = of_logs(&options.words)?;
        let options = MountOptions { words, ..options.clone() };
        if options.read_only && device.entries().is_ok_and(|entries| !entries.is_empty()) {
            // What a crash has left in the window is brought in place first, as a journal's contents are.
            let recovering = MountOptions { read_only: false, ..options.clone() };
            <Self as Volume<D>>::mount(device, &recovering)?.unmount()?;
        }
        match Self::mount_with_logs(device, &logs, || F::mount(device, &options)) {
            Ok(fs) => Ok(fs),
            Err(MountError::Logs(error)) => Err(Error::own(error)),
            Err(MountError::Below(error)) => Err(error),
            Err(MountError::Device(error)) => Err(Error::own(error)),
        }
    }

    fn unmount(self) -> Result<()> {
        self.into_below().map_err(Error::own)?.unmount()
    }

    fn about(&self) -> About {
        self.below().about()
    }

    fn check(device: &Arc<D>, progress: &mut dyn FnMut(Progress)) -> Result<Report> {
        F::check(device, progress)
    }

    fn tune(device: &D, changes: &Changes) -> Result<About> {
        F::tune(device, changes)
    }

    fn grow(device: &D, bytes: Option<u64>) -> Result<(u64, u64)> {
        F::grow(device, bytes)
    }
}
