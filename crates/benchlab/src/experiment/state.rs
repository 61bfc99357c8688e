//! Cells that are finished, kept in a file, so that an interrupted experiment goes on and figures share what
//! they have in common.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::cell::{Cell, CellResult};

/// Finished cells.
pub struct State {
    cells: BTreeMap<String, CellResult>,
    file: Option<File>,
    program: String,
}

/// One line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    /// The program that ran it: another one may come to something else.
    program: String,
    /// The cell, as JSON text: equal cells are equal texts.
    cell: String,
    result: CellResult,
}

impl State {
    /// Finished cells in memory only.
    #[must_use]
    pub const fn in_memory() -> Self {
        Self { cells: BTreeMap::new(), file: None, program: String::new() }
    }

    /// Finished cells of this program in a file, which is made if it is missing. `program` names the
    /// program's exact build. Lines that cannot be read, as the last one of an interrupted run, are passed
    /// over.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn in_file(path: &Path, program: &str) -> Result<Self> {
        let named = || format!("{} cannot be used", path.display());
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(named)?;
        }
        let file = OpenOptions::new().create(true).append(true).read(true).open(path).with_context(named)?;
        let mut cells = BTreeMap::new();
        for line in BufReader::new(&file).lines() {
            let Ok(line) = serde_json::from_str::<Line>(&line.with_context(named)?) else { continue };
            if line.program == program {
                cells.insert(line.cell, line.result);
            }
        }
        Ok(Self { cells, file: Some(file), program: program.to_owned() })
    }

    /// The result of a cell, if it is finished.
    #[must_use]
    pub fn get(&self, cell: &Cell) -> Option<CellResult> {
        self.cells.get(&key(cell)).cloned()
    }

    /// Takes a result in, and writes it down.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn put(&mut self, cell: &Cell, result: CellResult) -> Result<()> {
        let key = key(cell);
        if let Some(file) = &mut self.file {
            let line = Line { program: self.program.clone(), cell: key.clone(), result: result.clone() };
            let text = serde_json::to_string(&line)? + "\n";
            file.write_all(text.as_bytes()).context("a finished cell cannot be written down")?;
        }
        self.cells.insert(key, result);
        Ok(())
    }
}

fn key(cell: &Cell) -> String {
    serde_json::to_string(cell).expect("a cell is plain data")
}
