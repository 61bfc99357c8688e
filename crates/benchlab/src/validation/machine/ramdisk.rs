//! The memory file system of the machine: busybox, modules, the program with its libraries, and what the
//! kernel starts first.

use std::fmt::Write;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::package::Package;
use super::wanted::Wanted;
use crate::peers::{Workspace, output, text};

/// What the disk, the port and file systems need; what a package lacks is part of its kernel. F2FS and ext4
/// ask for checksums by names that are not those of modules.
const MODULES: [&str; 5] = ["virtio_pci", "virtio_blk", "virtio_console", "crc32_generic", "crc32c_generic"];

/// Where it is mounted in the machine.
const MEDIA: &str = "/media";

/// Puts it together. Returns the file.
///
/// # Errors
/// busybox or cpio is missing, or the package lacks what is needed.
pub(super) fn make(workspace: &Workspace, package: &Package, wanted: &Wanted<'_>) -> Result<PathBuf> {
    let root = workspace.directory("machine")?;
    for directory in ["bin", "dev", "proc", "sys", "tmp", "modules", MEDIA.trim_start_matches('/')] {
        std::fs::create_dir(root.join(directory))?;
    }
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    let busybox = busybox.context("there is no busybox: apt-get install busybox-static")?;
    copy(Path::new(busybox), &root.join("bin/busybox"))?;
    copy_program(wanted.amphi, &root)?;
    let modules = package.modules(&[&MODULES[..], &[wanted.kind]].concat())?;
    let mut names = Vec::new();
    for (number, module) in modules.iter().enumerate() {
        let name = format!("{number:02}.ko");
        std::fs::copy(module, root.join("modules").join(&name))?;
        names.push(name);
    }
    let init = root.join("init");
    std::fs::write(&init, script(wanted, &names))?;
    std::fs::set_permissions(&init, Permissions::from_mode(0o755))?;
    pack(&root, &workspace.path("machine.cpio"))
}

/// The kernel's first program. Whatever goes wrong ends the machine, and what was said is on its console.
fn script(wanted: &Wanted<'_>, modules: &[String]) -> String {
    let mut script = "#!/bin/busybox sh\nexport PATH=/bin\n".to_owned();
    for (kind, at) in [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys")] {
        let _ = writeln!(script, "busybox mount -t {kind} none {at}");
    }
    for module in modules {
        let _ = writeln!(script, "busybox insmod /modules/{module}");
    }
    let words: Vec<_> = wanted.arguments.iter().map(|word| format!("'{word}'")).collect();
    let options = if wanted.options.is_empty() { "defaults" } else { wanted.options };
    let _ = write!(
        script,
        "for at in 1 2 3 4 5 6 7 8 9 10; do [ -e /dev/vda ] && [ -e /dev/vport*p1 ] && break; busybox sleep 1; done\n\
         busybox mount -t {} -o {options} /dev/vda {MEDIA} && amphi bench guest /dev/vport*p1 {MEDIA} {}\n\
         busybox umount {MEDIA}\n\
         busybox poweroff -f\n",
        wanted.kind,
        words.join(" "),
    );
    script
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to).with_context(|| format!("{} cannot be copied", from.display()))?;
    Ok(std::fs::set_permissions(to, Permissions::from_mode(0o755))?)
}

/// The program and the libraries that its loader wants, at the same paths.
fn copy_program(amphi: &Path, root: &Path) -> Result<()> {
    let to = root.join("bin/amphi");
    // What a debugger wants is most of a program, and would be in the machine's memory.
    let stripped = Command::new("strip").arg("-o").arg(&to).arg(amphi).output();
    if !stripped.is_ok_and(|stripped| stripped.status.success()) {
        copy(amphi, &to)?;
    }
    for library in libraries(&output(Command::new("ldd").arg(amphi))?) {
        let to = root.join(library.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().context("a library has a directory")?)?;
        copy(Path::new(library), &to)?;
    }
    Ok(())
}

/// Paths of libraries in what `ldd` printed.
fn libraries(printed: &str) -> Vec<&str> {
    printed.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/'))).collect()
}

/// Packs a directory as the kernel wants it.
fn pack(root: &Path, into: &Path) -> Result<PathBuf> {
    let mut names = String::new();
    list(root, root, &mut names)?;
    let list = into.with_extension("list");
    std::fs::write(&list, names)?;
    let mut cpio = Command::new("cpio");
    cpio.args(["--create", "--format=newc", "--quiet"]).current_dir(root);
    cpio.stdin(File::open(&list)?).stdout(File::create(into)?).stderr(Stdio::piped());
    let packed = cpio.output().context("there is no cpio: apt-get install cpio")?;
    if !packed.status.success() {
        bail!("cpio: {}", String::from_utf8_lossy(&packed.stderr).trim());
    }
    Ok(into.to_owned())
}

fn list(root: &Path, directory: &Path, names: &mut String) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        names.push_str(text(path.strip_prefix(root)?)?);
        names.push('\n');
        if entry.file_type()?.is_dir() {
            list(root, &path, names)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ldd_prints_names_libraries() {
        let printed = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x7f)\n\
                       \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(libraries(printed), ["/lib/x86_64-linux-gnu/libm.so.6", "/lib64/ld-linux-x86-64.so.2"]);
    }
}
