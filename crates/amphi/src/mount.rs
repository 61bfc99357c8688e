//! `amphi mount`: starts the daemon of a mount and returns when the mount can be used, or says why it cannot.
//! An export is served in the same way.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use amphi_front_fuse::{MountOptions, kernel_withholds_rings};
use amphi_front_shared::Protection;
use amphi_vfs::AccessTimes;
use amphi_volume::Identity;
use amphi_volumes::Kind;
use anyhow::{Context, Error, Result, anyhow, bail};

use crate::daemon::{self, Open, Service};
use crate::device::Speed;
use crate::filesystem::{self, Use};
use crate::log;
use crate::metrics_server;
use crate::mountinfo;
use crate::runtime_dir::RuntimeFiles;
use crate::shared;

/// Mounts an image on a directory.
///
/// A crash before is recovered from. A mount whose daemon was killed is cleared away first.
#[derive(clap::Args)]
#[command(after_help = after_help())]
pub struct Options {
    /// The image.
    image: PathBuf,
    /// The directory.
    directory: PathBuf,
    #[command(flatten)]
    serving: Serving,
}

fn after_help() -> String {
    let mut text = "\
Examples:
  amphi mount ssd.img /mnt
  amphi mount ssd.img /mnt --dilate 20     device times x 20, so that the machine's own noise fades
  amphi mount ssd.img /mnt --free          no device times at all
  amphi mount ssd.img /mnt -o ro
  amphi mount ssd.img /mnt -o shared=unprotected    programs under `amphi run` call the file system
  amphi mount ssd.img /mnt --metrics 9100  counters for Prometheus at http://127.0.0.1:9100/metrics

Mount options of each file system:"
        .to_owned();
    for kind in Kind::ALL {
        let Identity { title, words, .. } = kind.identity();
        text += &format!("\n  {title:<10} {words}");
    }
    text
}

/// How to serve a mount, of whatever.
#[derive(clap::Args)]
pub struct Serving {
    /// Mount options: ro (the image need not be writable), rw, exec, noexec, free, dilate=N, allow_other
    /// (other users may enter, within the files' permissions), private (the default), suid, nosuid, dev,
    /// nodev, relatime (the default), noatime, strictatime, async (the default), sync (every write is durable
    /// when it returns, and fsync costs nothing), writeback (the kernel keeps what is written until the file
    /// is closed or synchronized, so many small writes cost less; what it keeps is lost if the daemon is
    /// killed, and amphi run does nothing on such a mount); trace=FILE records what is done, for amphi crash
    /// run --workload trace and amphi bench run trace. transport=auto|ring|device is how requests come from
    /// the kernel: ring is FUSE over io_uring, which serves programs on the processor they run on and needs
    /// Linux 6.14 with /sys/module/fuse/parameters/enable_uring set; device is /dev/fuse; auto (the default)
    /// is ring where the kernel offers it. shared puts the file system (bytefs or augefs) into memory that
    /// the owner's programs share, so that under `amphi run` their calls are function calls; protection keys
    /// guard it, and where the processor has none they use the queue. shared=pages guards it by page
    /// protections, at the price of system calls around each call; shared=unprotected does not guard it.
    #[arg(short = 'o', value_name = "OPTION", value_delimiter = ',')]
    option: Vec<String>,
    /// Stay in the foreground; Ctrl-C unmounts.
    #[arg(long)]
    foreground: bool,
    /// Multiply the device's times by this.
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = dilation)]
    dilate: f64,
    /// No device times: as fast as the software goes.
    #[arg(long, conflicts_with = "dilate")]
    free: bool,
    /// Answer Prometheus at http://ADDR/metrics: an address and a port, or a port of this machine alone; port
    /// 0 takes a free one, which `amphi info` names.
    #[arg(long, value_name = "ADDR", value_parser = metrics_server::address)]
    metrics: Option<SocketAddr>,
    /// Let --metrics answer other machines too: whoever reaches the address reads the counters.
    #[arg(long, requires = "metrics")]
    metrics_public: bool,
    /// This process is the one in the background.
    #[arg(long, hide = true, conflicts_with = "foreground")]
    background: bool,
}

/// What the daemon says on its standard output when the mount can be used.
const READY: &[u8] = b"ready\n";

pub fn run(options: &Options) -> Result<()> {
    let Options { image, directory, serving } = options;
    if serving.is_in_background(image)? {
        println!("{} is mounted at {}", existing_image(image)?.display(), directory.display());
        println!("unmount it with: amphi umount {}", directory.display());
        let is_left_to_us = !serving.option.iter().any(|word| word.starts_with("transport="));
        if is_left_to_us && rustix::process::geteuid().is_root() && kernel_withholds_rings() {
            println!(
                "this kernel can do better: echo 1 > /sys/module/fuse/parameters/enable_uring, then mount"
            );
        }
        return Ok(());
    }
    serving.serve(image, directory, filesystem::open, "is mounted at")
}

impl Serving {
    /// Starts the daemon if this process is to be none itself, and returns when the mount can be used. False
    /// if this process is to serve.
    ///
    /// # Errors
    /// What the daemon complained of.
    pub fn is_in_background(&self, image: &Path) -> Result<bool> {
        if let Some(at) = self.metrics
            && !self.metrics_public
            && !at.ip().is_loopback()
        {
            bail!(
                "{at} can be reached from other machines; use 127.0.0.1:{}, or add --metrics-public if that is meant",
                at.port()
            );
        }
        if self.foreground || self.background {
            return Ok(false);
        }
        existing_image(image)?;
        start_daemon()?;
        if let (.., Some(protection)) = mount_options(image, &self.option)? {
            shared::is_possible(protection);
        }
        Ok(true)
    }

    /// Refuses what is for file systems alone.
    ///
    /// # Errors
    /// If it is asked for.
    pub fn without_range(&self) -> Result<()> {
        if self.option.iter().any(|word| word == "shared" || word.starts_with("shared=")) {
            bail!("an export has no file system that programs could share; leave `shared` out");
        }
        Ok(())
    }

    /// Serves what `open` opens, in this process, until it is unmounted. In the foreground a line says that
    /// the image `is` at the directory.
    ///
    /// # Errors
    /// As [`daemon::serve`].
    pub fn serve(&self, image: &Path, directory: &Path, open: Open, is: &str) -> Result<()> {
        log::begin();
        let (mount, using, speed, shared) = mount_options(image, &self.option)?;
        let service = Service {
            image: existing_image(image)?,
            directory: mountinfo::absolute(directory)?,
            speed: speed.unwrap_or(if self.free { Speed::Free } else { Speed::Dilated(self.dilate) }),
            using,
            mount,
            open,
            metrics: self.metrics,
            shared,
        };
        if !self.background {
            return daemon::serve(&service, |_| {
                println!("{} {is} {}; Ctrl-C unmounts", service.image.display(), service.directory.display());
                Ok(())
            });
        }
        // A session of its own: the terminal's Ctrl-C and hang-up are not for a mount. A daemon that begins
        // anew has one, and is refused another. (To ask for the session's number would not do: it is 0
        // where the session began outside of this PID namespace.)
        match rustix::process::setsid() {
            Ok(_) | Err(rustix::io::Errno::PERM) => {}
            Err(error) => return Err(error).context("the daemon cannot leave the terminal"),
        }
        shared::remember_directory();
        std::env::set_current_dir("/").context("the daemon cannot leave the current directory")?;
        daemon::serve(&service, enter_background)
    }
}

/// Starts this program again as the daemon, and waits until it is ready or has failed.
fn start_daemon() -> Result<()> {
    let program = std::env::current_exe().context("this program's own file cannot be found")?;
    let mut command = Command::new(program);
    // Its file may be called as mount(8)'s helper is.
    command.arg0("amphi");
    // The same words, with one more after the subcommand.
    let mut words = std::env::args_os().skip(1);
    command.args(words.next()).arg("--background").args(words);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut daemon = command.spawn().context("the daemon cannot be started")?;
    let mut said = Vec::new();
    if let Some(mut stdout) = daemon.stdout.take() {
        stdout.read_to_end(&mut said)?;
    }
    if said == READY {
        return Ok(());
    }
    let mut complaint = String::new();
    if let Some(mut stderr) = daemon.stderr.take() {
        stderr.read_to_string(&mut complaint)?;
    }
    let status = daemon.wait()?;
    // The daemon speaks as this command does; its sentence becomes ours.
    match complaint.trim().strip_prefix("amphi: ") {
        Some(sentence) => Err(anyhow!("{sentence}")),
        None => bail!("the daemon ended ({status}) {}", complaint.trim()),
    }
}

/// Lets go of the parent's pipes: from here on the log hears what the daemon says.
fn enter_background(files: &RuntimeFiles) -> Result<()> {
    let nothing = OpenOptions::new().write(true).open("/dev/null").context("/dev/null cannot be opened")?;
    let mut stdout = std::io::stdout();
    stdout.write_all(READY)?;
    stdout.flush()?;
    log::to_file(&files.log)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(())
}

/// The image's absolute path.
///
/// # Errors
/// If there is none.
pub fn existing_image(image: &Path) -> Result<PathBuf> {
    image
        .canonicalize()
        .with_context(|| format!("{} cannot be opened; make it with: amphi mkfs", image.display()))
}

/// What `-o` words say: how to mount, how the file system is used, the device's speed if they name one, and
/// how a range that programs share is protected if there shall be one.
type Said = (MountOptions, Use, Option<Speed>, Option<Protection>);

fn mount_options(image: &Path, words: &[String]) -> Result<Said> {
    let is_root = rustix::process::geteuid().is_root();
    let image = existing_image(image)?;
    // Whoever asks by directory later finds the image by this name.
    let fsname =
        image.to_str().with_context(|| format!("{} is not valid UTF-8; rename it", image.display()))?;
    let mut options =
        MountOptions { fsname: fsname.to_owned(), suid: is_root, dev: is_root, ..MountOptions::default() };
    let (mut using, mut speed, mut shared) = (Use::default(), None, None);
    for word in words {
        match word.as_str() {
            "ro" => options.read_only = true,
            "rw" => options.read_only = false,
            "allow_other" => options.allow_other = true,
            "private" => options.allow_other = false,
            "suid" => options.suid = true,
            "nosuid" => options.suid = false,
            "exec" => options.exec = true,
            "noexec" => options.exec = false,
            "dev" => options.dev = true,
            "nodev" => options.dev = false,
            "relatime" => using.access_times = AccessTimes::Relative,
            "noatime" => using.access_times = AccessTimes::Never,
            "strictatime" => using.access_times = AccessTimes::Strict,
            // What the kernel would do about it is an `fsync` request after each write.
            "sync" | "async" => using.words.push(format!("writes={word}")),
            "writeback" => options.write_back = true,
            // What mount(8) and systemd keep in the same list for themselves.
            "" | "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "user" | "nouser" | "users"
            | "owner" | "group" => {}
            other if other.starts_with("x-") || other.starts_with("comment=") => {}
            "free" => speed = Some(Speed::Free),
            other if other.starts_with("dilate=") => {
                speed = Some(Speed::Dilated(dilation(&other["dilate=".len()..]).map_err(Error::msg)?));
            }
            other if other.starts_with("trace=") => {
                // The daemon leaves the current directory.
                let path = std::path::absolute(&other["trace=".len()..]);
                using.trace = Some(path.with_context(|| format!("`{other}` names no file"))?);
            }
            "shared" => shared = Some(Protection::Keys),
            other if other.starts_with("shared=") => {
                shared = Some(shared::protection(&other["shared=".len()..])?);
            }
            other if other.starts_with("transport=") => {
                options.transport = other["transport=".len()..].parse()?;
            }
            other if other.contains('=') => using.words.push(other.to_owned()),
            other => bail!("`{other}` is not a mount option of Amphi; see amphi mount --help"),
        }
    }
    if options.write_back && (shared.is_some() || using.words.iter().any(|word| word == "writes=sync")) {
        bail!("writeback has the kernel keep writes, which shared and sync rule out; leave one of them away");
    }
    using.read_only = options.read_only;
    Ok((options, using, speed, shared))
}

fn dilation(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (0.001..=1_000_000.0).contains(&factor) => Ok(factor),
        _ => Err("a number from 0.001 to 1000000 is needed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amphi_front_fuse::Transport;

    #[test]
    fn mount_options_are_read_and_unknown_ones_named() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let read = |words: &[&str]| {
            mount_options(image.path(), &words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
        };
        let (options, using, ..) = read(&[]).unwrap();
        assert!(!options.allow_other && !options.read_only, "nobody else enters unless asked");
        assert_eq!(using, Use { access_times: AccessTimes::Relative, ..Use::default() });
        let (options, using, ..) = read(&["ro", "allow_other", "data=journal", "noatime", "sync"]).unwrap();
        assert!(options.read_only && options.allow_other);
        let words = vec!["data=journal".to_owned(), "writes=sync".to_owned()];
        assert_eq!(using, Use { read_only: true, access_times: AccessTimes::Never, words, trace: None });
        let trace = read(&["trace=ops.txt"]).unwrap().1.trace.expect("a file");
        assert!(trace.is_absolute() && trace.ends_with("ops.txt"), "{}", trace.display());
        assert_eq!(read(&["transport=device"]).unwrap().0.transport, Transport::Device);
        assert!(!read(&[]).unwrap().0.write_back && read(&["writeback"]).unwrap().0.write_back);
        for other in ["sync", "shared"] {
            let error = read(&["writeback", other]).unwrap_err().to_string();
            assert!(error.contains(other), "{error}");
        }
        assert_eq!(read(&["shared"]).unwrap().3, Some(Protection::Keys));
        assert_eq!(read(&["shared=unprotected"]).unwrap().3, Some(Protection::Nothing));
        let error = read(&["shared=all"]).unwrap_err().to_string();
        assert!(error.contains("`shared=all`") && error.contains("keys"), "{error}");
        let error = read(&["transport=post"]).unwrap_err().to_string();
        assert!(error.contains("`post`") && error.contains("ring"), "{error}");
        let error = mount_options(image.path(), &["fast".into()]).unwrap_err().to_string();
        assert!(error.contains("`fast`"), "{error}");
    }

    #[test]
    fn dilation_has_a_range() {
        assert_eq!(dilation("20"), Ok(20.0));
        for bad in ["0", "-1", "NaN", "inf", "x"] {
            assert!(dilation(bad).is_err(), "{bad}");
        }
    }
}
