//! Which room may depend on which. The table is strict: a room that is not in it may depend on nothing.

use super::Finding;
use super::tree::{SourceTree, room};

/// The rooms that `from` may name in `[dependencies]`.
fn allowed(from: &str, to: &str) -> bool {
    match from {
        // Faults that tests plant may stand in any room; their crate names none.
        _ if to == "planted" => true,
        "ssd" | "memory-device" | "lsm" | "wal" => matches!(to, "device" | "rt"),
        "vfs" => to == "rt",
        "names" | "page-cache" => matches!(to, "vfs" | "rt" | "radix"),
        "pins" => matches!(to, "device" | "vfs" | "rt" | "volume"),
        "volume" => matches!(to, "device" | "rt" | "vfs" | "queue"),
        // On the emulator, so that the rooms above do not each compile every file system on it.
        "volumes" => matches!(to, "device" | "ssd" | "volume" | "vfs" | "pins") || to.starts_with("fs-"),
        "model" => matches!(to, "vfs" | "rt"),
        "trace" => matches!(to, "vfs" | "rt"),
        "conformance" => matches!(to, "vfs" | "rt" | "model"),
        "queue" => matches!(to, "vfs" | "rt"),
        "amphi" | "sqlite-driver" | "hostile" | "benchlab" => true,
        // The laboratory composes, as the command does: file systems of the list on the emulated SSD.
        "crashlab" => {
            // Pins are above one file system of the list, which has to be named.
            let pinned = matches!(to, "pins" | "fs-ext4like");
            pinned || matches!(to, "device" | "vfs" | "rt" | "ssd" | "model" | "trace" | "volume" | "volumes")
        }
        "xtask" => false,
        // A program that links has a mount's daemon, or puts what is on an image there itself.
        "front-files" => {
            matches!(to, "front-queue" | "queue" | "rt" | "ssd" | "vfs" | "volume" | "volumes")
        }
        "front-preload" => matches!(to, "front-queue" | "front-shared" | "queue" | "rt"),
        // The part of the command that lies in a shared range: it puts a file system on a device, as the
        // command does.
        "front-shared-core" => {
            matches!(
                to,
                "front-shared" | "front-queue" | "queue" | "rt" | "ssd" | "vfs" | "volume" | "volumes"
            ) || to.starts_with("fs-")
        }
        "front-export" => matches!(to, "device" | "rt" | "front-fuse"),
        // A C program has no daemon: the library puts the log's file system on the image itself.
        "front-wal" => matches!(to, "device" | "rt" | "ssd" | "vfs" | "fs-ext4like" | "pins" | "wal"),
        // What file systems of PMFS's and of NOVA's kind share.
        "direct-access" => matches!(to, "device" | "names" | "rt" | "vfs" | "volume"),
        "fs-novalike" | "fs-pmfslike" if to == "direct-access" => true,
        "segments" => matches!(to, "device" | "names" | "page-cache" | "radix" | "rt" | "vfs" | "volume"),
        "fs-augefs" if matches!(to, "lsm" | "segments") => true,
        "fs-f2fslike" if to == "segments" => true,
        // Its device takes commands in the queue's format.
        "fs-devfs" if to == "queue" => true,
        _ if from.starts_with("fs-") => {
            matches!(to, "device" | "vfs" | "rt" | "names" | "page-cache" | "radix" | "volume")
        }
        _ if from.starts_with("front-") => matches!(to, "vfs" | "rt" | "queue"),
        _ => false,
    }
}

/// The rooms that `from` may name only in `[dev-dependencies]`: a file system is tested on the emulator,
/// everything against the model.
fn allowed_in_tests(from: &str, to: &str) -> bool {
    let tested_on_something_real = from.starts_with("fs-")
        || from.starts_with("front-")
        || matches!(from, "model" | "trace" | "queue" | "names" | "lsm" | "wal" | "pins" | "volumes");
    // Pins are tested above the file system that the paper assumes, and below a log.
    let pinned = from == "pins" && matches!(to, "fs-ext4like" | "wal");
    // The laboratory plants bugs in its file systems and in what they share, and has them in all its variants
    // answer tasks that meet.
    let of_laboratory = from == "crashlab"
        && (matches!(to, "direct-access" | "names" | "conformance" | "wal") || to.starts_with("fs-"));
    allowed(from, to)
        || of_laboratory
        || pinned
        || tested_on_something_real
            && matches!(to, "ssd" | "memory-device" | "device" | "model" | "conformance")
}

/// The room that a package name means: `amphi-fs-bytefs` is `fs-bytefs`, `amphi` itself is the command.
fn room_of_package(package: &str) -> Option<&str> {
    if package == "amphi" { Some(package) } else { package.strip_prefix("amphi-") }
}

/// Packages that bring errno and system calls in; only front ends and the command may have them.
const LIBC: [&str; 2] = ["libc", "nix"];

pub fn check(tree: &SourceTree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending("Cargo.toml") {
        let Some(from) = room(path) else { continue };
        let manifest: toml::Table = match text.parse() {
            Ok(manifest) => manifest,
            Err(error) => {
                findings.push(Finding::error(path, 0, format!("is not TOML: {error}")));
                continue;
            }
        };
        for (section, in_tests) in
            [("dependencies", false), ("dev-dependencies", true), ("build-dependencies", false)]
        {
            for package in section_packages(&manifest, section) {
                let line =
                    text.lines().position(|l| l.starts_with(package.as_str())).map_or(0, |index| index + 1);
                let permitted = if in_tests { allowed_in_tests } else { allowed };
                if let Some(to) = room_of_package(&package)
                    && !permitted(from, to)
                {
                    let message = format!(
                        "`{from}` must not depend on `{to}` ([{section}]); see the table in `xtask/src/lint/edges.rs`"
                    );
                    findings.push(Finding::error(path, line, message));
                }
                if LIBC.contains(&package.as_str()) && !super::errno::may_know_errno(from) {
                    findings.push(Finding::error(
                        path,
                        line,
                        format!("`{from}` must not depend on `{package}`: only front ends know libc"),
                    ));
                }
            }
        }
    }
    findings
}

/// The packages of one dependency section, including those under `[target.….section]`.
fn section_packages(manifest: &toml::Table, section: &str) -> Vec<String> {
    let per_target = manifest.get("target").and_then(toml::Value::as_table).into_iter();
    let tables = per_target.flat_map(|targets| targets.values()).filter_map(toml::Value::as_table);
    let mut packages = Vec::new();
    for table in tables.chain([manifest]) {
        let Some(dependencies) = table.get(section).and_then(toml::Value::as_table) else { continue };
        for (key, value) in dependencies {
            packages.push(value.get("package").and_then(toml::Value::as_str).unwrap_or(key).to_owned());
        }
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&SourceTree::of(&[(path, text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_file_system_may_name_the_emulator_only_in_tests() {
        let path = "crates/fs-bytefs/Cargo.toml";
        assert_eq!(
            findings(
                path,
                "[dependencies]\namphi-device.workspace = true\n[dev-dependencies]\namphi-ssd.workspace = true\n"
            ),
            [""; 0]
        );
        let found = findings(path, "[dependencies]\namphi-ssd.workspace = true\n");
        assert!(found.len() == 1 && found[0].contains("`fs-bytefs` must not depend on `ssd`"), "{found:?}");
        let renamed = "[dependencies]\nbackend = { package = \"amphi-ssd\", path = \"../ssd\" }\n";
        assert_eq!(findings(path, renamed).len(), 1);
    }

    #[test]
    fn device_and_rt_stand_on_nothing() {
        for room in ["rt", "device", "newcomer"] {
            let path = format!("crates/{room}/Cargo.toml");
            assert_eq!(findings(&path, "[dependencies]\namphi-vfs.workspace = true\n").len(), 1, "{room}");
        }
        assert_eq!(findings("crates/vfs/Cargo.toml", "[dependencies]\namphi-rt.workspace = true\n").len(), 0);
    }

    #[test]
    fn libc_is_for_front_ends() {
        assert_eq!(
            findings("crates/ssd/Cargo.toml", "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"\n").len(),
            1
        );
        assert_eq!(findings("crates/front-fuse/Cargo.toml", "[dependencies]\nlibc = \"0.2\"\n").len(), 0);
    }
}
