//! Where the kernel's file system keeps what: ext4 as `dumpe2fs` and `debugfs` tell, whose directories and
//! files lie in the same blocks, both are `data`; F2FS as `dump.f2fs` tells, whose nodes lie there too.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::Result;

use crate::peers::output;

/// Areas of F2FS, and of what is of its kind.
const PACKS: &str = "checkpoints";
const TABLES: &str = "NAT, SIT and summaries";
const MAIN: &str = "data, directories and nodes";

/// In which area of F2FS the baseline of its kind would have a structure.
pub(super) fn area(structure: &str) -> &'static str {
    match structure {
        "journal" => PACKS,
        "pointer" | "bitmap" => TABLES,
        "superblock" => "superblock",
        _ => MAIN,
    }
}

/// Ranges of blocks, by their first, with their last and what they hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout(BTreeMap<u64, (u64, &'static str)>);

impl Layout {
    /// Of the ext4 on a device.
    ///
    /// # Errors
    /// The programs are missing or fail.
    pub(super) fn of_ext4(device: &str) -> Result<Self> {
        let mut layout = Self::from_dump(&output(Command::new("dumpe2fs").arg(device))?);
        let journal = output(Command::new("debugfs").args(["-R", "blocks <8>", device]))?;
        for block in journal.split_whitespace().filter_map(|word| word.parse().ok()) {
            layout.0.insert(block, (block, "journal"));
        }
        Ok(layout)
    }

    /// Of the F2FS on a device.
    ///
    /// # Errors
    /// The program is missing or fails.
    pub(super) fn of_f2fs(device: &str) -> Result<Self> {
        Ok(Self::from_areas(&output(Command::new("dump.f2fs").args(["-d", "1", device]))?))
    }

    /// Takes the lines such as `cp_blkaddr   [0x     200 : 512]`: where areas begin, one behind the other.
    /// The structures are those of the baseline's tags.
    fn from_areas(text: &str) -> Self {
        const AREAS: [(&str, &str); 5] = [
            ("cp_blkaddr", PACKS),
            ("sit_blkaddr", TABLES),
            ("nat_blkaddr", TABLES),
            ("ssa_blkaddr", TABLES),
            ("main_blkaddr", MAIN),
        ];
        let mut layout = Self(BTreeMap::from([(0, (u64::MAX, "superblock"))]));
        for line in text.lines() {
            let Some((name, rest)) = line.split_once('[') else { continue };
            let area = AREAS.iter().find(|(area, _)| *area == name.trim());
            let begin = rest.split([':', ']']).nth(1).and_then(|number| number.trim().parse().ok());
            if let (Some((_, structure)), Some(begin)) = (area, begin) {
                layout.0.insert(begin, (u64::MAX, structure));
            }
        }
        layout
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

    #[test]
    fn areas_are_told_apart_by_what_dump_f2fs_prints() {
        let layout = Layout::from_areas(
            "segment0_blkaddr              \t\t[0x     200 : 512]\ncp_blkaddr      \t[0x     200 : 512]\n\
             sit_blkaddr \t[0x     600 : 1536]\nnat_blkaddr \t[0x     a00 : 2560]\nssa_blkaddr [0x 1200 : 4608]\n\
             main_blkaddr  \t\t[0x    1400 : 5120]\n",
        );
        let found = [0, 512, 1535, 1536, 2560, 4608, 5119, 5120, 99_999].map(|block| layout.structure(block));
        let due = ["superblock", PACKS, PACKS, TABLES, TABLES, TABLES, TABLES, MAIN, MAIN];
        assert_eq!(found, due);
    }
}
