//! Why a profile cannot be used, and why an image cannot be made or opened. (What a command of an open device
//! answers is `amphi_device::Error`.)

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No built-in profile has this name.
    #[error("no profile is called '{name}'; built in are: {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The file cannot be read.
    #[error("cannot read the profile {path}: {cause}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        cause: String,
    },
    /// Not TOML, an unknown or missing key, or a value of the wrong type; the message names the key.
    #[error("the profile is not valid: {0}")]
    Syntax(String),
    /// A value is outside what the emulator can represent.
    #[error("the profile's {key} is {value}; it must be {expected}")]
    Value {
        /// The key, with its section.
        key: &'static str,
        /// Its value.
        value: u64,
        /// What it must be.
        expected: &'static str,
    },
}

/// Why an image cannot be made or opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The file is not an image of an emulated SSD.
    #[error("{path} is not an Amphi image; make one with `amphi mkfs`")]
    NotAnImage {
        /// The file.
        path: String,
    },
    /// Made by another version of the format.
    #[error(
        "the image has format version {found}, and this program reads version {supported}; copy its files out with the program that made it, \
         and make it anew with `amphi mkfs`"
    )]
    Version {
        /// The image's version.
        found: u32,
        /// The only version this program reads.
        supported: u32,
    },
    /// The file is shorter than its header says.
    #[error(
        "the image is truncated: it should have {expected} bytes and has {actual}; restore it from a copy"
    )]
    Truncated {
        /// Length by the header.
        expected: u64,
        /// Length of the file.
        actual: u64,
    },
    /// A checksum does not match.
    #[error("the image's {what} fails its checksum; restore the image from a copy")]
    Checksum {
        /// The damaged structure.
        what: &'static str,
    },
    /// A structure holds a value that no device writes.
    #[error("the image is damaged: {0}; restore it from a copy")]
    Corrupt(String),
    /// Another process has the image open.
    #[error("{path} is already in use by another process; unmount it first")]
    InUse {
        /// The file.
        path: String,
    },
    /// The file to be created is there already.
    #[error("{path} exists already; remove it first or choose another name")]
    Exists {
        /// The file.
        path: String,
    },
    /// The capacity asked for cannot be made.
    #[error("a device of {bytes} bytes cannot be made: {reason}")]
    Capacity {
        /// The capacity asked for.
        bytes: u64,
        /// Why not.
        reason: &'static str,
    },
    /// The capacitors do not give the energy to dump the BA-buffer.
    #[error(
        "dumping a BA-buffer of {bytes} bytes takes {needed_uj} uJ, and the capacitors give {budget_uj} uJ; \
         make it smaller, or give the profile more ba_buffer.capacitance_uf"
    )]
    Energy {
        /// The buffer's size.
        bytes: u64,
        /// What the dump takes.
        needed_uj: u64,
        /// What there is.
        budget_uj: u64,
    },
    /// The profile is not valid.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The host's disk is full.
    #[error("no room on the host's disk for {path}; free some space")]
    NoSpace {
        /// The image.
        path: String,
    },
    /// The system refused.
    #[error("cannot {action} {path}: {cause}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: String,
        /// What the system said.
        cause: String,
    },
}
