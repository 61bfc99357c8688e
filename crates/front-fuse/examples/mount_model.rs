//! Mounts the in-memory model, so that the FUSE path can be tried and measured with no file system behind it.
//!
//! `cargo run --release -p amphi-front-fuse --example mount_model -- DIR [THREADS]`, then use DIR;
//! `umount DIR` ends it.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use amphi_front_fuse::{MountOptions, mount};
use amphi_model::Model;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("usage: mount_model DIR [THREADS]")?;
    let threads = arguments.next().map_or(Ok(0), |text| text.parse())?;
    let root = rustix::process::geteuid().is_root();
    let options =
        MountOptions { threads, allow_other: root, suid: root, dev: root, ..MountOptions::default() };
    let session = mount(Arc::new(Model::new()), Path::new(&directory), &options)?;
    println!("mounted on {}", session.mountpoint().display());
    session.wait()?;
    Ok(())
}
