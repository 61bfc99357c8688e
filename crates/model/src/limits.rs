//! What a model holds at the most.

/// Limits of a [`Model`](crate::Model), so that a test can reach them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Pages of 4096 bytes that file contents may take together.
    pub pages: u64,
    /// Inodes, the root included.
    pub inodes: u64,
    /// Names one inode may have.
    pub links: u32,
    /// Largest file size in bytes.
    pub file_bytes: u64,
}

impl Default for Limits {
    /// 16 GiB in 16 M inodes, 65,000 links, files to 8 TiB.
    fn default() -> Self {
        Self { pages: 1 << 22, inodes: 1 << 24, links: 65_000, file_bytes: 1 << 43 }
    }
}
