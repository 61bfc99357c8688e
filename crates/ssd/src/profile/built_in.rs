//! The profiles that come with the program: the files of `profiles/`, by the name each carries.

macro_rules! built_in {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../../profiles/", $name, ".toml")))),*]
    };
}

/// Name and text, the default first.
pub(super) const BUILT_IN: &[(&str, &str)] = built_in![
    "mssd-pcie3",
    "mssd-ull",
    "mssd-low",
    "mssd-cxl",
    "mssd-artifact",
    "romefs-a",
    "romefs-b",
    "2b-ssd",
    "ull-ssd",
    "dc-ssd",
    "p4800x-pmr",
    "devfs-dram",
    "nvme",
    "cmm-h",
    "free",
];
