//! The machine as a process: QEMU with KVM, or with its own emulation where KVM is not there or does not run
//! such a kernel. Killed when dropped, and when the run is.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};

use super::package::Package;
use super::wanted::Wanted;
use super::{BEGIN, DONE, FAILED, READY, ramdisk};
use crate::peers::{Workspace, dying_with_us, text};

/// Processors of the machine, and its memory.
const PROCESSORS: &str = "2";
const MEMORY: &str = "2048";
/// How long the kernel may take until the program in it answers. An emulated one on a busy machine takes half
/// a minute.
const BOOT_NS: [(&str, u64); 2] = [("kvm", 30_000_000_000), ("tcg", 300_000_000_000)];
const PAUSE_NS: u64 = 20_000_000;

/// A machine in which the program waits for words.
#[derive(Debug)]
pub(in crate::validation) struct Machine {
    qemu: Child,
    console: PathBuf,
    words: BufReader<UnixStream>,
    about: String,
}

impl Machine {
    /// Powers one on and waits for the program in it.
    ///
    /// # Errors
    /// Something is missing, or the kernel or the program failed; with the end of what the console showed.
    pub(in crate::validation) fn start(workspace: &Workspace, wanted: &Wanted<'_>) -> Result<Self> {
        let package = Package::open(wanted.package)?;
        let ramdisk = ramdisk::make(workspace, &package, wanted)?;
        let mut failures = Vec::new();
        for (accelerator, patience_ns) in BOOT_NS {
            if accelerator == "kvm" && !Path::new("/dev/kvm").exists() {
                continue;
            }
            let started = Self::power_on(workspace, &package, &ramdisk, wanted.disk, accelerator)
                .and_then(|machine| machine.booted(patience_ns));
            match started {
                Ok(mut machine) => {
                    machine.about = format!("Linux {} in QEMU ({accelerator})", package.version());
                    return Ok(machine);
                }
                Err(error) => failures.push(format!("with {accelerator}: {error:#}")),
            }
        }
        bail!("the machine does not start; {}", failures.join("; "))
    }

    fn power_on(
        workspace: &Workspace,
        package: &Package,
        ramdisk: &Path,
        disk: &Path,
        accelerator: &str,
    ) -> Result<Self> {
        let console = workspace.path(&format!("console-{accelerator}"));
        let socket = workspace.path(&format!("port-{accelerator}"));
        let cpu = if accelerator == "kvm" { "host,arch-capabilities=off" } else { "max" };
        let mut command = dying_with_us(Path::new("qemu-system-x86_64"));
        command.args(["-machine", &format!("q35,accel={accelerator}"), "-cpu", cpu]);
        command.args(["-smp", PROCESSORS, "-m", MEMORY, "-nodefaults", "-no-reboot", "-display", "none"]);
        command.args(["-kernel", text(package.kernel())?, "-initrd", text(ramdisk)?]);
        command.args(["-append", "console=ttyS0 quiet panic=-1", "-serial"]);
        command.arg(format!("file:{}", text(&console)?));
        // Past the host's page cache, which would answer reads; a flush reaches the SSD.
        let drive = format!("file={},format=raw,if=none,id=ssd,cache=none,discard=unmap", text(disk)?);
        let blocks = "logical_block_size=4096,physical_block_size=4096";
        command.args(["-drive", &drive, "-device", &format!("virtio-blk-pci,drive=ssd,{blocks}")]);
        let port = format!("socket,id=words,path={},server=on,wait=off", text(&socket)?);
        command.args(["-device", "virtio-serial-pci,id=ports", "-chardev", &port]);
        command.args(["-device", "virtserialport,bus=ports.0,nr=1,chardev=words,name=amphi"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let started = command.spawn();
        let mut qemu = started.context("QEMU cannot be run: apt-get install qemu-system-x86")?;
        let words = loop {
            if let Ok(stream) = UnixStream::connect(&socket) {
                break stream;
            }
            if qemu.try_wait()?.is_some() {
                bail!("QEMU ended: {}", said(&mut qemu));
            }
            amphi_rt::time::sleep_ns(PAUSE_NS);
        };
        Ok(Self { qemu, console, words: BufReader::new(words), about: String::new() })
    }

    /// This, when the program in it has answered.
    fn booted(mut self, patience_ns: u64) -> Result<Self> {
        let patience = std::time::Duration::from_nanos(patience_ns);
        self.words.get_ref().set_read_timeout(Some(patience))?;
        let first = self.line()?;
        if first != READY {
            bail!("the machine said {first:?}");
        }
        self.words.get_ref().set_read_timeout(None)?;
        Ok(self)
    }

    /// Which kernel runs, and on what.
    pub(in crate::validation) fn about(&self) -> &str {
        &self.about
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        let read = self.words.read_line(&mut line);
        if !matches!(read, Ok(1..)) {
            let shown = std::fs::read_to_string(&self.console).unwrap_or_default();
            let lines: Vec<_> = shown.lines().collect();
            let last = lines[lines.len().saturating_sub(8)..].join(" | ");
            bail!("the machine does not answer; its console: {last:?}");
        }
        Ok(line.trim().to_owned())
    }

    /// Has the program do something.
    ///
    /// # Errors
    /// It failed, or the machine did.
    pub(in crate::validation) fn order(&mut self, word: &str, number: usize) -> Result<()> {
        writeln!(self.words.get_mut(), "{word} {number}").context("the machine does not listen")?;
        let answer = self.line()?;
        match answer.strip_prefix(FAILED) {
            Some(why) => bail!("{}", why.trim()),
            None if answer == DONE => Ok(()),
            None => bail!("the machine said {answer:?}"),
        }
    }

    /// Begins a round.
    ///
    /// # Errors
    /// As for [`Machine::order`].
    pub(in crate::validation) fn begin(&mut self, round: usize) -> Result<()> {
        self.order(BEGIN, round)
    }

    /// Has it unmount and power off, and waits for that.
    ///
    /// # Errors
    /// QEMU failed.
    pub(in crate::validation) fn power_off(mut self) -> Result<()> {
        // Nobody is at the other end any more: the program ends, and the machine after it.
        self.words.get_ref().shutdown(std::net::Shutdown::Both)?;
        if !self.qemu.wait()?.success() {
            bail!("QEMU failed: {}", said(&mut self.qemu));
        }
        Ok(())
    }
}

/// What QEMU complained of.
fn said(qemu: &mut Child) -> String {
    let mut text = String::new();
    if let Some(stderr) = qemu.stderr.as_mut() {
        // What cannot be read was not said.
        let _ = std::io::Read::read_to_string(stderr, &mut text);
    }
    text.trim().to_owned()
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
