//! `mount.fuse.amphi`: what mount(8) and `/etc/fstab` call for the type `fuse.amphi`. It is this program
//! under another name, which `amphi install-helper` gives it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The name that mount(8) looks for.
const NAME: &str = "mount.fuse.amphi";

/// Lets mount(8) and /etc/fstab mount images.
///
/// It makes a link to this program where mount(8) looks for its helpers.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi install-helper
  mount -t fuse.amphi /srv/ssd.img /mnt -o allow_other
A line of /etc/fstab:
  /srv/ssd.img  /mnt  fuse.amphi  allow_other,nofail  0  0")]
pub struct Options {
    /// The directory of mount(8)'s helpers.
    #[arg(long, value_name = "DIRECTORY", default_value = "/sbin")]
    to: PathBuf,
}

pub fn install(options: &Options) -> Result<()> {
    let own = std::env::current_exe().context("this program's own file cannot be found")?;
    let link = options.to.join(NAME);
    match std::fs::symlink_metadata(&link) {
        Ok(metadata) if !metadata.is_symlink() => {
            bail!("{} is no link of ours; remove it first", link.display())
        }
        Ok(_) => {
            std::fs::remove_file(&link).with_context(|| format!("{} cannot be replaced", link.display()))?
        }
        Err(_) => {}
    }
    std::os::unix::fs::symlink(&own, &link)
        .with_context(|| format!("{} cannot be made; are you root?", link.display()))?;
    println!("{} is {}", link.display(), own.display());
    println!("mount with: mount -t fuse.amphi IMAGE DIRECTORY");
    Ok(())
}

/// Whether this program was called as mount(8)'s helper.
pub fn is_called() -> bool {
    let name = std::env::args_os().next().map(PathBuf::from);
    name.as_deref().and_then(Path::file_name).is_some_and(|name| name == NAME)
}

/// Mounts as mount(8) asks: it becomes `amphi mount`.
///
/// # Errors
/// The words are not mount(8)'s.
pub fn mount() -> Result<()> {
    let Some(words) = translated(std::env::args_os().skip(1))? else { return Ok(()) };
    let own = std::env::current_exe().context("this program's own file cannot be found")?;
    Err(Command::new(own).arg0("amphi").args(words).exec()).context("amphi mount cannot be started")
}

/// `IMAGE DIRECTORY [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]` as words of `amphi`; none if nothing is to
/// be done.
fn translated(words: impl Iterator<Item = OsString>) -> Result<Option<Vec<OsString>>> {
    let mut words = words;
    let mut places = Vec::new();
    let mut mount = vec![OsString::from("mount")];
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-o") => options.push(words.next().context("-o needs options")?),
            Some("-t" | "-N") => drop(words.next()),
            // A rehearsal.
            Some(flags) if flags.starts_with('-') && flags.contains('f') => return Ok(None),
            Some(flags) if flags.starts_with('-') => {}
            _ => places.push(word),
        }
    }
    let [image, directory] = <[OsString; 2]>::try_from(places)
        .map_err(|_| anyhow::anyhow!("{NAME} is called by mount(8): mount -t fuse.amphi IMAGE DIRECTORY"))?;
    mount.extend([image, directory]);
    for option in options {
        mount.extend(["-o".into(), option]);
    }
    Ok(Some(mount))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translate(line: &str) -> Option<Vec<String>> {
        let words = translated(line.split(' ').map(OsString::from)).expect("mount(8)'s words");
        words.map(|words| words.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn the_words_of_mount_8_become_ours() {
        let words = translate("/a.img /mnt -s -o rw,nofail -t fuse.amphi").unwrap();
        assert_eq!(words, ["mount", "/a.img", "/mnt", "-o", "rw,nofail"]);
        assert_eq!(translate("/a.img /mnt -f -o ro"), None, "a rehearsal");
        assert!(translated(["/a.img".into()].into_iter()).is_err());
    }
}
