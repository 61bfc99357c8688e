//! The build of a small C project over crashes: a generated header, forty modules with dependency files, a
//! library, a program that checks itself. What was built and synced is there bit for bit as a build elsewhere
//! makes it; an interrupted build, made again, is too.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Dice, Outcome, Program, Rig, Server, command, run, survive};

#[test]
fn build() {
    survive(make);
}

pub(super) fn make(dice: Dice) -> Build {
    Build { dice, finished: Vec::new(), interrupted: None, expected: BTreeMap::new() }
}

const MODULES: usize = 40;

/// Built in a directory beside `src`, all paths relative: the outputs do not depend on where that is.
const MAKEFILE: &str = "\
CFLAGS = -O1 -Wall -Werror -I. -I../src
OBJECTS = $(patsubst ../src/%.c,%.o,$(sort $(wildcard ../src/module*.c)))
all: tables
\t@./tables > answer && echo DONE answer
tables: main.o libmodules.a
\t@$(CC) -o $@ main.o -L. -lmodules && echo DONE $@
libmodules.a: $(OBJECTS)
\t@rm -f $@ && ar rcD $@ $(OBJECTS) && ranlib -D $@ && echo DONE $@
generator: ../src/generator.c
\t@$(CC) $(CFLAGS) -o $@ $< && echo DONE $@
squares.h: generator
\t@./generator > $@.new && mv $@.new $@ && echo DONE $@
%.o: ../src/%.c squares.h
\t@$(CC) $(CFLAGS) -MMD -c -o $@ $< && echo DONE $@
-include $(wildcard *.d)
";

const GENERATOR: &str = "#include <stdio.h>
int main(void) {
    printf(\"static const unsigned squares[] = {\");
    for (unsigned i = 0; i < 1000; i++) printf(\"%u,\\n\", i * i);
    return printf(\"};\\n\") < 0;
}
";

pub(super) struct Build {
    dice: Dice,
    /// Directories whose build was finished and synced.
    finished: Vec<PathBuf>,
    /// The one in which a build was interrupted.
    interrupted: Option<PathBuf>,
    /// All files of a build elsewhere.
    expected: BTreeMap<String, Vec<u8>>,
}

impl Program for Build {
    const NAME: &'static str = "C build";
    const NEEDS: &'static [&'static str] = &["make", "cc", "ar"];
    const IMAGE: &'static str = "512M";
    const OPERATIONS: u64 = 60;

    fn prepare(&mut self, rig: &Rig) -> Outcome<()> {
        for place in [PathBuf::from(rig.path("elsewhere")), rig.on_mount("project")] {
            write_sources(&place.join("src")).map_err(|error| format!("{}: {error}", place.display()))?;
        }
        sync(&rig.on_mount("project/src"))?;
        let elsewhere = PathBuf::from(rig.path("elsewhere/built"));
        fs::create_dir(&elsewhere).map_err(|error| error.to_string())?;
        run(&mut make_in(&elsewhere))?;
        self.expected = contents(&elsewhere)?;
        Ok(())
    }

    fn work_until_crash(&mut self, rig: &Rig, acknowledged: &AtomicU64) -> Outcome<()> {
        loop {
            let directory = rig.on_mount(&format!("project/built{}", self.dice.next()));
            self.interrupted = Some(directory.clone());
            if fs::create_dir(&directory).is_err() || !counted(&mut make_in(&directory), acknowledged)? {
                return Ok(());
            }
            if sync(&directory).is_err() {
                return Ok(());
            }
            self.finished.push(directory);
        }
    }

    fn verify(&mut self, rig: &Rig) -> Outcome<String> {
        run(command("diff").arg("-r").arg(rig.path("elsewhere/src")).arg(rig.on_mount("project/src")))?;
        for directory in &self.finished {
            self.compare(directory)?;
        }
        let finished = self.finished.len();
        // make takes files for complete that nobody synced; so does everybody after a crash on any file
        // system, and starts anew.
        if let Some(directory) = self.interrupted.take() {
            if directory.exists() {
                fs::remove_dir_all(&directory)
                    .map_err(|error| format!("{}: {error}", directory.display()))?;
            }
            fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
            run(&mut make_in(&directory))?;
            sync(&directory)?;
            self.compare(&directory)?;
            self.finished.push(directory);
        }
        let [files, bytes] = [self.expected.len(), self.expected.values().map(Vec::len).sum()];
        Ok(format!(
            "{finished} finished builds and the interrupted one made anew, {files} files of {bytes} bytes each time"
        ))
    }
}

impl Build {
    /// Compares a finished build with the one elsewhere.
    fn compare(&self, directory: &Path) -> Outcome<()> {
        let found = contents(directory)?;
        let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
        if names(&found) != names(&self.expected) {
            return Err(format!("{} holds {:?}", directory.display(), names(&found)));
        }
        match found.iter().find(|(name, bytes)| *bytes != &self.expected[*name]) {
            Some((name, _)) => {
                Err(format!("{}/{name} is not as it was built elsewhere", directory.display()))
            }
            None => Ok(()),
        }
    }
}

fn write_sources(directory: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join("Makefile"), MAKEFILE)?;
    fs::write(directory.join("generator.c"), GENERATOR)?;
    let mut header = String::new();
    let mut main = "#include <stdio.h>\n#include \"modules.h\"\nint main(void) {\n".to_owned();
    for module in 0..MODULES {
        let _ = writeln!(header, "unsigned module{module}(unsigned);");
        let _ = writeln!(main, "    printf(\"%u\\n\", module{module}({module}));");
        let mut source = "#include \"squares.h\"\n#include \"modules.h\"\n".to_owned();
        for table in 0..20 {
            let _ = writeln!(
                source,
                "static unsigned part{table}(unsigned x) {{ for (unsigned i = 0; i < {}; i++) x = x * 33 + squares[(x + i) % 1000]; return x; }}",
                module + table
            );
        }
        let sum: Vec<String> = (0..20).map(|table| format!("part{table}(x)")).collect();
        let _ = writeln!(source, "unsigned module{module}(unsigned x) {{ return {}; }}", sum.join(" ^ "));
        fs::write(directory.join(format!("module{module}.c")), source)?;
    }
    fs::write(directory.join("modules.h"), header)?;
    fs::write(directory.join("main.c"), main + "    return 0;\n}\n")
}

/// make in `directory`, beside the sources.
fn make_in(directory: &Path) -> Command {
    let mut make = command("make");
    make.args(["-j2", "-f", "../src/Makefile", "-C"])
        .arg(directory)
        .env("LC_ALL", "C")
        .env_remove("MAKEFLAGS");
    make
}

/// Runs make and counts what it makes; whether it made all.
fn counted(make: &mut Command, acknowledged: &AtomicU64) -> Outcome<bool> {
    let mut make = Server::start(make.stdout(Stdio::piped()).stderr(Stdio::null()))?;
    for line in BufReader::new(make.0.stdout.take().expect("piped")).lines() {
        if line.is_ok_and(|line| line.starts_with("DONE")) {
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
    make.wait()
}

/// Syncs all files of `directory`.
fn sync(directory: &Path) -> Outcome<()> {
    for entry in fs::read_dir(directory).map_err(|error| error.to_string())? {
        let synced = entry.and_then(|entry| fs::File::open(entry.path())).and_then(|file| file.sync_all());
        synced.map_err(|error| format!("sync in {}: {error}", directory.display()))?;
    }
    Ok(())
}

/// All files of `directory` by name.
fn contents(directory: &Path) -> Outcome<BTreeMap<String, Vec<u8>>> {
    let wrong = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.insert(name, fs::read(entry.path()).map_err(wrong)?);
    }
    Ok(files)
}
