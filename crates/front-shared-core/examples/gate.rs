//! What a call into a shared range costs beside what it does: an empty call and `getattr` of the root of a
//! ByteFS, ns a call, for each protection that this machine has. `masked` and `deferred` are the two ways to
//! have signals wait (docs/shared.md); `getattr` on the instance itself is what there is to compare with.
//!
//! The program of the range comes first, then
//! `cargo run --release -p amphi-front-shared-core --example gate -- target/release/amphi-shared-core`.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock around its calls")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use amphi_front_shared::{Client, Manager, ManagerOptions, Protection, keys_are_here, signals};
use amphi_fs_bytefs::ByteFs;
use amphi_ssd::{OpenOptions, Profile, Ssd};
use amphi_vfs::{FileSystem, Ino};
use amphi_volume::{FormatOptions, MountOptions, Volume};
use anyhow::{Context, Result};

/// Calls that are timed together, and how often: the fastest says what the call takes.
const CALLS: u32 = 20_000;
const ROUNDS: u32 = 25;
const SSD_BYTES: u64 = 64 << 20;

fn ns(mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut fastest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            call()?;
        }
        fastest = fastest.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    Ok(fastest)
}

/// Two columns: an empty call and `getattr`.
fn calls(client: &Client) -> Result<String> {
    let empty = ns(|| Ok(client.cross()?))?;
    let getattr = ns(|| client.getattr(Ino::ROOT).map(drop).map_err(Into::into))?;
    Ok(format!("{empty:>8.0} {getattr:>8.0}"))
}

fn range(core: &Path, image: &Path, name: &str, protection: Protection) -> Result<Manager> {
    let options = ManagerOptions {
        core: core.to_owned(),
        image: image.to_owned(),
        name: name.to_owned(),
        place: 0,
        protection,
        dilation: None,
        words: Vec::new(),
        again: false,
    };
    Manager::start(options).context("the range is not made")
}

fn main() -> Result<()> {
    let core = std::env::args_os().nth(1).map(PathBuf::from).context("name the program of the range")?;
    let directory = tempfile::tempdir()?;
    let image = directory.path().join("ssd.img");
    let profile = Profile::named("free").context("a built-in profile")?;
    Ssd::create(&image, &profile, SSD_BYTES)?;
    let device = Arc::new(Ssd::open(&image, &OpenOptions { free: true, ..OpenOptions::default() })?);
    <ByteFs<Ssd> as Volume<Ssd>>::format(&device, &FormatOptions::default())?;
    let fs = <ByteFs<Ssd> as Volume<Ssd>>::mount(&device, &MountOptions::default())?;
    let getattr = ns(|| fs.getattr(Ino::ROOT).map(drop).map_err(Into::into))?;
    Volume::unmount(fs)?;
    drop(device);

    let name = format!("amphi-gate-{}", std::process::id());
    println!("{:<12} {:<9} {:>8} {:>8}", "protection", "signals", "empty", "getattr");
    println!("{:<12} {:<9} {:>8} {getattr:>8.0}", "no range", "", "");
    let all = [Protection::Nothing, Protection::Keys, Protection::Pages];
    let all: Vec<_> = all.into_iter().filter(|one| *one != Protection::Keys || keys_are_here()).collect();
    for way in ["masked", "deferred"] {
        if way == "deferred" {
            // From here on handlers are guarded.
            signals::defer();
        }
        for &protection in &all {
            let manager = range(&core, &image, &name, protection)?;
            let client = Client::connect(&name)?;
            println!("{:<12} {way:<9} {}", protection.name(), calls(&client)?);
            drop(client);
            manager.stop().map_err(anyhow::Error::msg)?;
        }
    }
    Ok(())
}
