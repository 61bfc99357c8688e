//! A kernel package of Debian's, unpacked by `dpkg-deb -x` and not installed: the kernel in `boot`, modules
//! in `lib/modules/VERSION`. There is no list of dependencies in it, which an installation would make; each
//! module names in itself what it needs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// An unpacked package.
#[derive(Debug)]
pub(super) struct Package {
    kernel: PathBuf,
    /// Modules by name, with `_` for `-`.
    modules: BTreeMap<String, PathBuf>,
}

/// What follows a field's name in a module, up to a zero byte.
fn field(module: &[u8], name: &str) -> Option<String> {
    let wanted = format!("\0{name}=");
    let at = module.windows(wanted.len()).position(|window| window == wanted.as_bytes())? + wanted.len();
    let len = module[at..].iter().position(|byte| *byte == 0)?;
    String::from_utf8(module[at..at + len].to_vec()).ok()
}

fn walk(directory: &Path, found: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), found)?;
        } else if let Some(name) = entry.file_name().to_str().and_then(|name| name.strip_suffix(".ko")) {
            found.insert(name.replace('-', "_"), entry.path());
        }
    }
    Ok(())
}

impl Package {
    /// The one that was unpacked into `directory`.
    ///
    /// # Errors
    /// It holds no kernel, or the modules are compressed or missing.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let what = || format!("{} holds no unpacked kernel package (dpkg-deb -x)", directory.display());
        let boot = std::fs::read_dir(directory.join("boot")).with_context(what)?;
        let is_kernel = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("vmlinuz-"))
        };
        let kernel = boot.flatten().map(|entry| entry.path()).find(is_kernel).with_context(what)?;
        let mut modules = BTreeMap::new();
        walk(&directory.join("lib/modules"), &mut modules).with_context(what)?;
        Ok(Self { kernel, modules })
    }

    /// The kernel's file.
    pub(super) fn kernel(&self) -> &Path {
        &self.kernel
    }

    /// Its version, as its file is called.
    pub(super) fn version(&self) -> String {
        let name = self.kernel.file_name().unwrap_or_default().to_string_lossy();
        name.trim_start_matches("vmlinuz-").to_owned()
    }

    /// The modules of some names and what they depend on, in the order in which they can be loaded. What is
    /// no module of the package is part of its kernel, or asked for by a name that is no module's.
    ///
    /// # Errors
    /// One cannot be read.
    pub(super) fn modules(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let mut order = Vec::new();
        for name in names {
            self.add(name, &mut order)?;
        }
        Ok(order)
    }

    fn add(&self, name: &str, order: &mut Vec<PathBuf>) -> Result<()> {
        let Some(path) = self.modules.get(&name.replace('-', "_")) else { return Ok(()) };
        if order.contains(path) {
            return Ok(());
        }
        let module = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let needed = field(&module, "depends").unwrap_or_default();
        for needed in needed.split(',').filter(|needed| !needed.is_empty()) {
            self.add(needed, order)?;
        }
        order.push(path.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_what_they_depend_on_and_once() {
        let directory = tempfile::tempdir().unwrap();
        let modules = directory.path().join("lib/modules/6.1/kernel/fs");
        std::fs::create_dir_all(&modules).unwrap();
        std::fs::create_dir_all(directory.path().join("boot")).unwrap();
        assert!(Package::open(directory.path()).is_err(), "there is no kernel");
        std::fs::write(directory.path().join("boot/vmlinuz-6.1.0-x"), "kernel").unwrap();
        let module = |name: &str, depends: &str| {
            let text = format!("ELF\0license=GPL\0depends={depends}\0name={name}\0");
            std::fs::write(modules.join(format!("{name}.ko")), text).unwrap();
        };
        module("f2fs", "lz4-compress,virtio");
        module("lz4_compress", "");
        module("virtio_blk", "virtio");
        module("virtio", "");
        let package = Package::open(directory.path()).unwrap();
        assert_eq!(package.version(), "6.1.0-x");
        let order = package.modules(&["virtio_blk", "f2fs", "built_in"]).unwrap();
        let names: Vec<_> = order.iter().map(|path| path.file_stem().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["virtio", "virtio_blk", "lz4_compress", "f2fs"]);
    }
}
