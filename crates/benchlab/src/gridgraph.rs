//! What GridGraph does to files (RomeFS section 4.4): edges are read in chunks and written to the blocks of a
//! grid, the blocks are put together along its columns and its rows, and PageRank reads the columns again and
//! again.
//!
//! The graph is synthetic: an edge falls into a block of the grid by the recursive matrix model (R-MAT),
//! whose degrees follow a power law as those of the graphs of the paper do. Only the grid's part of an edge
//! is drawn, because nothing else of it decides where it is written. What GridGraph computes is left out, as
//! in the paper's replay; so are its vertices, which it keeps in memory.

use amphi_rt::random::Generator;
use amphi_rt::time;
use anyhow::{Context, Result};

use crate::files::{Creation, Files, Handle, OpenMode};
use crate::workload::{Outcome, StepOutcome, empty_histogram};

/// A graph of the paper's table 6.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Graph {
    /// The workload's name.
    pub name: &'static str,
    /// One line for people.
    pub description: &'static str,
    /// Directed edges.
    pub edges: u64,
    /// Blocks along a side of the grid, a power of two.
    pub side: usize,
}

/// The graphs. Edges as published with the data sets; 16 blocks a side is an assumption.
pub const GRAPHS: [Graph; 3] = [
    Graph {
        name: "gridgraph-livejournal",
        description: "GridGraph's PageRank on a graph as large as LiveJournal",
        edges: 68_993_773,
        side: 16,
    },
    Graph {
        name: "gridgraph-twitter",
        description: "GridGraph's PageRank on a graph as large as Twitter's",
        edges: 1_468_365_182,
        side: 16,
    },
    Graph {
        name: "gridgraph-friendster",
        description: "GridGraph's PageRank on a graph as large as Friendster",
        edges: 1_806_067_135,
        side: 16,
    },
];

/// GridGraph's `IOSIZE`.
const CHUNK: u64 = 24 << 20;
/// Two vertices of four bytes.
const EDGE_BYTES: u64 = 8;
/// RomeFS section 4.4.
const ITERATIONS: usize = 20;
/// R-MAT's usual shares of the four quarters, in thousandths, added up.
const QUARTERS: [u64; 3] = [570, 760, 950];
/// The input.
const EDGES: &str = "edges";

impl Graph {
    /// The one of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        GRAPHS.into_iter().find(|graph| graph.name == name)
    }

    /// The same with fewer edges. Chunks and the grid stay.
    #[must_use]
    pub fn scaled(self, scale: f64) -> Self {
        Self { edges: ((self.edges as f64 * scale) as u64).max(1), ..self }
    }

    /// Makes the list of edges.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn prepare(&self, files: &dyn Files) -> Result<()> {
        let bytes = vec![0x5a; CHUNK as usize];
        let file = files.open(EDGES, OpenMode::NEW)?;
        let mut left = self.edges * EDGE_BYTES;
        while left > 0 {
            let part = left.min(CHUNK);
            files.append(file, &bytes[..part as usize])?;
            left -= part;
        }
        files.close(file)?;
        Ok(files.sync()?)
    }

    /// Does what GridGraph does. `begin` is called at the beginning, to read counters.
    ///
    /// # Errors
    /// What the file system answers.
    pub fn run(&self, files: &dyn Files, seed: u64, begin: &dyn Fn()) -> Result<Outcome> {
        begin();
        let begun = time::now_ns();
        let mut run = Run { files, steps: Vec::new(), buffer: vec![0; CHUNK as usize] };
        let sizes = self.preprocess(&mut run, seed).context("the grid cannot be made")?;
        self.put_together(&mut run, &sizes).context("rows and columns cannot be made")?;
        let column = OpenMode { direct: true, ..OpenMode::READ };
        for _ in 0..ITERATIONS {
            let file = files.open("column", column)?;
            run.stream(file, sizes.iter().sum(), |_, _| Ok(()))?;
            files.close(file)?;
        }
        Ok(run.outcome(time::now_ns() - begun))
    }

    /// The block that an edge falls into.
    fn block(&self, chance: &mut Generator) -> usize {
        let (mut row, mut column, mut half) = (0, 0, self.side / 2);
        while half > 0 {
            let quarter = chance.below(1000);
            row += if quarter >= QUARTERS[1] { half } else { 0 };
            let is_right = (QUARTERS[0]..QUARTERS[1]).contains(&quarter) || quarter >= QUARTERS[2];
            column += if is_right { half } else { 0 };
            half /= 2;
        }
        row * self.side + column
    }

    /// Reads the edges and writes each to its block. Returns the blocks' bytes.
    fn preprocess(&self, run: &mut Run<'_>, seed: u64) -> Result<Vec<u64>> {
        let mut chance = Generator::new(seed ^ 0x6772_6964);
        let mut sizes = vec![0; self.side * self.side];
        let blocks: Vec<Handle> = (0..sizes.len())
            .map(|block| run.files.open(&name(block), OpenMode::NEW))
            .collect::<Result<_, _>>()?;
        let edges = run.files.open(EDGES, OpenMode { direct: true, ..OpenMode::READ })?;
        run.stream(edges, self.edges * EDGE_BYTES, |run, bytes| {
            let mut counts = vec![0; sizes.len()];
            for _ in 0..bytes / EDGE_BYTES {
                counts[self.block(&mut chance)] += EDGE_BYTES;
            }
            for ((block, count), size) in blocks.iter().zip(counts).zip(&mut sizes) {
                if count > 0 {
                    run.append(*block, count)?;
                    *size += count;
                }
            }
            Ok(())
        })?;
        run.files.close(edges)?;
        blocks.into_iter().try_for_each(|block| run.files.close(block))?;
        Ok(sizes)
    }

    /// Puts the blocks together, column by column and row by row.
    fn put_together(&self, run: &mut Run<'_>, sizes: &[u64]) -> Result<()> {
        for (whole, by_columns) in [("column", true), ("row", false)] {
            let mode = OpenMode { create: Creation::New, ..OpenMode::WRITE };
            let into = run.files.open(whole, mode)?;
            for number in 0..sizes.len() {
                let (first, second) = (number / self.side, number % self.side);
                let block = if by_columns { second * self.side + first } else { number };
                let from = run.files.open(&name(block), OpenMode { direct: true, ..OpenMode::READ })?;
                run.stream(from, sizes[block], |run, bytes| run.append(into, bytes))?;
                run.files.close(from)?;
            }
            run.files.close(into)?;
        }
        Ok(())
    }
}

fn name(block: usize) -> String {
    format!("block-{block}")
}

/// A run under way.
struct Run<'a> {
    files: &'a dyn Files,
    steps: Vec<StepOutcome>,
    buffer: Vec<u8>,
}

impl Run<'_> {
    /// Reads `bytes` of a file from its beginning, chunk by chunk, and has `each` told the bytes of each.
    fn stream(
        &mut self,
        file: Handle,
        bytes: u64,
        mut each: impl FnMut(&mut Self, u64) -> Result<()>,
    ) -> Result<()> {
        let mut offset = 0;
        while offset < bytes {
            let part = CHUNK.min(bytes - offset);
            let begun = time::now_ns();
            let files = self.files;
            let read = files.read(file, offset, &mut self.buffer[..part as usize])?;
            anyhow::ensure!(read as u64 == part, "a file ends at byte {} of {bytes}", offset + read as u64);
            self.count("read", part, begun);
            offset += part;
            each(self, part)?;
        }
        Ok(())
    }

    /// Appends and makes it durable (RomeFS section 4.4: `fsync` after each write).
    fn append(&mut self, file: Handle, bytes: u64) -> Result<()> {
        let begun = time::now_ns();
        self.files.append(file, &self.buffer[..bytes as usize])?;
        self.count("append", bytes, begun);
        let begun = time::now_ns();
        self.files.fsync(file, false)?;
        self.count("fsync", 0, begun);
        Ok(())
    }

    fn count(&mut self, operation: &'static str, bytes: u64, begun: u64) {
        let at = self.steps.iter().position(|step| step.operation == operation).unwrap_or_else(|| {
            let group = "gridgraph".to_owned();
            self.steps.push(StepOutcome {
                group,
                operation,
                counts: true,
                bytes: 0,
                latency: empty_histogram(),
            });
            self.steps.len() - 1
        });
        self.steps[at].bytes += bytes;
        // The histogram grows as needed.
        let _ = self.steps[at].latency.record(time::now_ns() - begun);
    }

    fn outcome(self, elapsed_ns: u64) -> Outcome {
        let operations = self.steps.iter().map(|step| step.latency.len()).sum();
        let bytes = |reads: bool| {
            let steps = self.steps.iter().filter(|step| (step.operation == "read") == reads);
            steps.map(|step| step.bytes).sum()
        };
        Outcome {
            operations,
            operations_in_all: operations,
            bytes_read: bytes(true),
            bytes_written: bytes(false),
            elapsed_ns,
            steps: self.steps,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_the_grid_are_as_uneven_as_the_model_says() {
        let graph = GRAPHS[0];
        let mut chance = Generator::new(1);
        let mut counts = vec![0_u32; graph.side * graph.side];
        for _ in 0..100_000 {
            counts[graph.block(&mut chance)] += 1;
        }
        // The first block takes 0.57 to the fourth power, the last one 0.05 to it.
        let first = f64::from(counts[0]) / 100_000.0;
        assert!((first - 0.1056).abs() < 0.004, "{first}");
        assert!(counts[255] < 10, "{}", counts[255]);
        // 0.76 of the edges begin in the upper half.
        let upper: u32 = counts[..128].iter().sum();
        assert!((f64::from(upper) / 100_000.0 - 0.76).abs() < 0.005, "{upper}");
    }
}
