//! Requests as `amphi export -o record=FILE` writes them down, and their sums.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// What reached a device between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Blocks of 4 KiB written.
    pub blocks_written: u64,
    /// Write requests.
    pub writes: u64,
    /// Blocks of 4 KiB read.
    pub blocks_read: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Bytes that the SSD programmed into its flash, its own copies and tables included.
    pub flash_bytes: u64,
    /// Blocks written by structure.
    pub structures: BTreeMap<String, u64>,
}

/// A record that is still being written, read piece by piece.
#[derive(Debug)]
pub(super) struct Record {
    file: File,
    at: u64,
}

impl Record {
    /// A record that exists.
    ///
    /// # Errors
    /// It does not.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
        Ok(Self { file, at: 0 })
    }

    /// What was written down since the last call. `structure` says what a block belongs to, if not what the
    /// record says.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub(super) fn take(&mut self, structure: &dyn Fn(u64) -> Option<&'static str>) -> Result<Traffic> {
        self.file.seek(SeekFrom::Start(self.at))?;
        let mut traffic = Traffic::default();
        for line in BufReader::new(&self.file).lines() {
            let line = line?;
            self.at += line.len() as u64 + 1;
            traffic.add(&line, structure)?;
        }
        Ok(traffic)
    }
}

impl Traffic {
    fn add(&mut self, line: &str, structure: &dyn Fn(u64) -> Option<&'static str>) -> Result<()> {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, what, first, pages, tag] = words[..] else { bail!("not a request: {line}") };
        let (first, pages): (u64, u64) = (first.parse()?, pages.parse()?);
        match what {
            "W" => {
                self.writes += 1;
                self.blocks_written += pages;
                for block in first..first + pages {
                    let name = structure(block).unwrap_or(tag);
                    *self.structures.entry(name.to_owned()).or_default() += 1;
                }
            }
            "R" => self.blocks_read += pages,
            "F" => self.flushes += 1,
            "T" => {}
            _ => bail!("not a request: {line}"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_summed_up_piece_by_piece() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        std::fs::write(&path, "10 W 5 2 other\n12 F 0 0 other\n").unwrap();
        let mut record = Record::open(&path).unwrap();
        let first = record.take(&|block| (block == 6).then_some("journal")).unwrap();
        assert_eq!((first.blocks_written, first.writes, first.flushes, first.blocks_read), (2, 1, 1, 0));
        assert_eq!((first.structures["other"], first.structures["journal"]), (1, 1));
        let text = std::fs::read_to_string(&path).unwrap() + "13 R 0 3 other\n14 T 0 9 other\n";
        std::fs::write(&path, text).unwrap();
        let second = record.take(&|_| None).unwrap();
        assert_eq!((second.blocks_written, second.flushes, second.blocks_read), (0, 0, 3));
        std::fs::write(&path, "nonsense\n".repeat(20)).unwrap();
        assert!(record.take(&|_| None).is_err());
    }
}
