//! What a mount can be asked for.

use std::str::FromStr;

/// How requests get from the kernel to this process and answers back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Rings where the kernel offers them, else the device.
    #[default]
    Auto,
    /// FUSE over io_uring: programs are served on the processor they run on. Needs Linux 6.14 and the
    /// kernel's permission (`/sys/module/fuse/parameters/enable_uring`).
    Ring,
    /// Reads and writes of `/dev/fuse`, which every kernel has.
    Device,
}

impl FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(name: &str) -> Result<Self, UnknownTransport> {
        match name {
            "auto" => Ok(Self::Auto),
            "ring" => Ok(Self::Ring),
            "device" => Ok(Self::Device),
            other => Err(UnknownTransport(other.to_owned())),
        }
    }
}

/// A word that names no [`Transport`].
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no transport; there are auto, ring and device")]
pub struct UnknownTransport(String);

/// How to mount. [`MountOptions::default`] is a private read-write mount without device nodes and set-id
/// programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What the mount table shows as the source: the image's path.
    pub fsname: String,
    /// Other users may enter (the kernel still checks permissions). Needs root, or `user_allow_other` in
    /// `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Nothing can be changed through this mount.
    pub read_only: bool,
    /// Set-user-id and set-group-id programs work. Only root can have this.
    pub suid: bool,
    /// Device nodes work. Only root can have this.
    pub dev: bool,
    /// Programs can be run from it.
    pub exec: bool,
    /// The kernel decides by owner and mode who may do what. Without that the server has to.
    pub kernel_permissions: bool,
    /// The kernel keeps what programs write until they close the file, call `fsync` or it needs the memory. A
    /// completed write that it still keeps is lost when this process is killed, and no other door sees it.
    pub write_back: bool,
    /// How requests come.
    pub transport: Transport,
    /// Threads that serve requests of the device; zero is one per CPU. Rings have their own.
    pub threads: usize,
    /// A mount whose server died at the same place is taken away first, instead of refusing to mount.
    pub replace_dead: bool,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            fsname: "amphi".to_owned(),
            allow_other: false,
            read_only: false,
            suid: false,
            dev: false,
            exec: true,
            kernel_permissions: true,
            write_back: false,
            transport: Transport::Auto,
            threads: 0,
            replace_dead: true,
        }
    }
}

impl MountOptions {
    /// Options of `mount(2)` and `fusermount3` alike, each after a `,`, without those that are flags of
    /// `mount(2)`.
    ///
    /// The kernel checks permissions (`default_permissions`): it has the caller's groups and capabilities, a
    /// request does not.
    pub(crate) fn kernel_options(&self) -> String {
        let permissions = if self.kernel_permissions { ",default_permissions" } else { "" };
        let other = if self.allow_other { ",allow_other" } else { "" };
        format!("{permissions}{other}")
    }

    /// [`fsname`](Self::fsname) with what separates options escaped, as `fusermount3` wants it.
    pub(crate) fn escaped_fsname(&self) -> String {
        self.fsname.replace('\\', "\\\\").replace(',', "\\,")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_allowed() {
        let mut options = MountOptions::default();
        assert_eq!(options.kernel_options(), ",default_permissions");
        options.allow_other = true;
        assert_eq!(options.kernel_options(), ",default_permissions,allow_other");
        let unchecked = MountOptions { kernel_permissions: false, ..MountOptions::default() };
        assert_eq!(unchecked.kernel_options(), "");
        options.fsname = r"a,b\c".to_owned();
        assert_eq!(options.escaped_fsname(), r"a\,b\\c");
    }

    #[test]
    fn transports_have_names() {
        assert_eq!("ring".parse::<Transport>().unwrap(), Transport::Ring);
        let error = "rings".parse::<Transport>().unwrap_err().to_string();
        assert!(error.contains("`rings`") && error.contains("device"), "{error}");
    }
}
