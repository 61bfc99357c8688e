//! Where the kernel's ext4 keeps what, as `dumpe2fs` and `debugfs` tell. Directories and files lie in the
//! same blocks; both are `data`.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::Result;

use crate::peers::output;

/// Ranges of blocks, by their first, with their last and what they hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout(BTreeMap<u64, (u64, &'static str)>);

impl Layout {
    /// Of the file system on a device.
    ///
    /// # Errors
    /// The programs are missing or fail.
    pub(super) fn of(device: &str) -> Result<Self> {
        let mut layout = Self::from_dump(&output(Command::new("dumpe2fs").arg(device))?);
        let journal = output(Command::new("debugfs").args(["-R", "blocks <8>", device]))?;
        for block in journal.split_whitespace().filter_map(|word| word.parse().ok()) {
            layout.0.insert(block, (block, "journal"));
        }
        Ok(layout)
    }

    /// Takes the lines such as `Block bitmap at 81 (bg #0 + 81), csum …` and
    /// `Primary superblock at 0, Group descriptors at 1-1`.
    fn from_dump(text: &str) -> Self {
        const PARTS: [(&str, &str); 6] = [
            ("Primary superblock at ", "superblock"),
            ("Backup superblock at ", "superblock"),
            ("Group descriptors at ", "group descriptor"),
            ("Block bitmap at ", "bitmap"),
            ("Inode bitmap at ", "bitmap"),
            ("Inode table at ", "inode"),
        ];
        let mut layout = Self::default();
        for line in text.lines() {
            for (words, structure) in PARTS {
                let Some((_, rest)) = line.split_once(words) else { continue };
                let range: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect();
                let (first, last) = range.split_once('-').unwrap_or((&range, &range));
                if let (Ok(first), Ok(last)) = (first.parse(), last.parse()) {
                    layout.0.insert(first, (last, structure));
                }
            }
        }
        layout
    }

    /// What a block holds.
    pub(super) fn structure(&self, block: u64) -> &'static str {
        let found = self.0.range(..=block).next_back().filter(|(_, (last, _))| block <= *last);
        found.map_or("data", |(_, (_, structure))| *structure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_apart_by_what_dumpe2fs_prints() {
        let layout = Layout::from_dump(
            "Group 0: (Blocks 0-32767) csum 0x1 [ITABLE_ZEROED]\n  Primary superblock at 0, Group descriptors at 1-1\n  Reserved GDT blocks at 2-128\n  \
             Block bitmap at 129 (+129), csum 0x2\n  Inode bitmap at 137 (+137), csum 0x3\n  Inode table at 145-656 (+145)\n",
        );
        let found = [0, 1, 2, 129, 137, 145, 656, 657].map(|block| layout.structure(block));
        let due = ["superblock", "group descriptor", "data", "bitmap", "bitmap", "inode", "inode", "data"];
        assert_eq!(found, due);
    }
}
