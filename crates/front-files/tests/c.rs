//! The interface for C: the header against what the library exports, and programs compiled by cc, on an
//! image; and the example in Rust.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use amphi_ssd::{OpenOptions, Profile, Ssd};
use amphi_volume::{FormatOptions, Volume};
use amphi_volumes::{Act, Kind};

#[path = "../examples/files.rs"]
#[allow(dead_code, reason = "its main is for who runs it")]
mod example;

const HEADER: &str = include_str!("../include/amphi.h");
const EXPORTS: [&str; 4] = [
    include_str!("../src/c/mod.rs"),
    include_str!("../src/c/descriptors.rs"),
    include_str!("../src/c/directories.rs"),
    include_str!("../src/c/names.rs"),
];

struct Make<'a>(&'a std::sync::Arc<Ssd>);

impl Act<Ssd> for Make<'_> {
    type Out = ();

    fn on<V: Volume<Ssd>>(self) {
        V::format(self.0, &FormatOptions::default()).expect("makes a file system");
    }
}

/// An image with a file system of the kind on it.
fn image(directory: &Path, kind: Kind) -> String {
    let image = directory.join(format!("{}.img", kind.name()));
    let profile = Profile::named("mssd-pcie3").expect("built in");
    Ssd::create(&image, &profile, 128 << 20).expect("makes an image");
    let free = OpenOptions { free: true, ..OpenOptions::default() };
    kind.with(Make(&std::sync::Arc::new(Ssd::open(&image, &free).expect("opens"))));
    image.to_str().expect("text").to_owned()
}

/// A C program of this crate, compiled against the header and the library.
fn compiled(directory: &Path, source: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("has a path");
    let libraries = tests.parent().expect("is in a directory").display().to_string();
    let program = directory.join(Path::new(source).file_stem().expect("a name"));
    let status = Command::new("cc")
        .args(["-std=gnu99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread", "-Iinclude", source])
        .arg("-o")
        .arg(&program)
        .args([format!("-L{libraries}"), format!("-Wl,-rpath,{libraries}"), "-lamphifiles".to_owned()])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cc runs");
    assert!(status.success(), "cc: {status}");
    program
}

fn run(program: &Path, words: &[&str]) -> Output {
    Command::new(program).args(words).output().expect("runs")
}

fn shown(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn the_example_in_c_keeps_its_lines_in_an_image() {
    let directory = tempfile::tempdir().expect("a directory");
    let (program, image) =
        (compiled(directory.path(), "examples/files.c"), image(directory.path(), Kind::Bytefs));
    assert_eq!(shown(&run(&program, &[&image, "one"])), "one\n");
    assert_eq!(shown(&run(&program, &[&image, "two"])), "one\ntwo\n");
    for place in ["/dev/null", "/"] {
        let output = run(&program, &[place, "three"]);
        assert!(output.status.code() == Some(1) && output.stderr.len() > 10, "{place}: {output:?}");
    }
}

#[test]
fn the_example_in_rust_does_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = image(directory.path(), Kind::Ext4like);
    for (text, shown) in [("one", "one\n"), ("two", "one\ntwo\n")] {
        assert_eq!(example::append(Path::new(&image), text).expect("appends"), shown);
    }
    let elsewhere = example::append(Path::new("/"), "three").expect_err("no mount of ours").to_string();
    assert!(elsewhere.contains("root directory"), "{elsewhere}");
}

#[test]
fn every_call_does_on_an_image_what_posix_says() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = compiled(directory.path(), "tests/calls.c");
    for kind in [Kind::Bytefs, Kind::Ext4like] {
        let image = image(directory.path(), kind);
        for round in ["first", "second"] {
            assert_eq!(shown(&run(&program, &[&image])), "all\n", "{} {round}", kind.name());
        }
    }
}

/// The function whose declaration `text` begins with, without `amphi_`: its name, and how many arguments it
/// takes.
fn function(text: &str) -> (String, usize) {
    let (name, rest) = text.split_once('(').expect("a list of arguments");
    let list = rest.split_once(')').expect("an end of it").0.trim().trim_end_matches(',');
    let arguments = if list.is_empty() || list == "void" { 0 } else { list.split(',').count() };
    (name.to_owned(), arguments)
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let code: String =
        HEADER.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, behind)| behind)).collect();
    let name_of = |statement: &str| {
        let end = statement.find('(')?;
        Some(function(&statement[statement[..end].rfind("amphi_")? + "amphi_".len()..]))
    };
    let declared: BTreeMap<_, _> = code.split(';').filter_map(name_of).collect();
    let mut exported = BTreeMap::new();
    for text in EXPORTS {
        exported.extend(text.split("fn amphi_").skip(1).map(function));
        // Those of the table have the file system and the path beside what their line says.
        let table = text.split("\n    amphi_").skip(1).map(function);
        exported.extend(table.map(|(name, arguments)| (name, arguments + 2)));
    }
    assert!(declared.len() >= 40, "{declared:?}");
    assert_eq!(declared, exported);
}

#[test]
fn pkg_config_says_how_to_link() {
    let file = include_str!("../amphi.pc");
    assert!(file.contains(&format!("\nVersion: {}\n", env!("CARGO_PKG_VERSION"))), "{file}");
    let asked = Command::new("pkg-config")
        .args(["--cflags", "--libs", "--define-variable=prefix=/opt/amphi", "amphi"])
        .env("PKG_CONFIG_PATH", env!("CARGO_MANIFEST_DIR"))
        .output();
    match asked {
        Ok(output) => {
            let words = shown(&output);
            for word in ["-I/opt/amphi/include", "-L/opt/amphi/lib", "-lamphifiles"] {
                assert!(words.contains(word), "{words}");
            }
        }
        Err(error) => println!("SKIPPED: there is no pkg-config ({error})"),
    }
}
