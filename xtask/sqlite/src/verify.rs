//! The check after a crash: SQLite finds the database sound, and every acknowledged row is there with its right payload.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rusqlite::{Connection, OptionalExtension};
use serde::Serialize;

use crate::row;

/// What `verify` takes.
#[derive(clap::Args)]
pub struct Options {
    /// The database file.
    #[arg(long)]
    db: PathBuf,
    /// The log that `load` wrote.
    #[arg(long)]
    acknowledged: PathBuf,
}

/// What a successful check prints, as one line of JSON.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Report {
    integrity_check: String,
    /// Rows whose COMMIT had returned; all of them are there.
    acknowledged: u64,
    /// All rows: at most one more than acknowledged, the one in flight, for each crash.
    rows: i64,
}

/// Checks and prints the report.
///
/// # Errors
/// If anything acknowledged is missing or wrong, or SQLite finds damage.
pub fn run(options: &Options) -> Result<()> {
    let log = std::fs::read(&options.acknowledged)
        .with_context(|| format!("{} cannot be read", options.acknowledged.display()))?;
    println!("{}", serde_json::to_string(&check(&options.db, &log)?)?);
    Ok(())
}

fn check(db: &Path, log: &[u8]) -> Result<Report> {
    let connection = Connection::open(db).with_context(|| format!("{} cannot be opened", db.display()))?;
    let integrity_check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if integrity_check != "ok" {
        bail!("integrity_check: {integrity_check}");
    }
    let mut select = connection.prepare("SELECT payload FROM entry WHERE id = ?1")?;
    let mut acknowledged = 0;
    for bytes in log.chunks_exact(8) {
        let id = i64::from_le_bytes(bytes.try_into()?);
        let payload: Option<Vec<u8>> = select.query_row([id], |row| row.get(0)).optional()?;
        match payload {
            None => bail!("transaction {id} was acknowledged and is lost"),
            Some(payload) if payload != row::payload(id) => bail!("transaction {id} has another row's bytes"),
            Some(_) => acknowledged += 1,
        }
    }
    let rows: i64 = connection.query_row("SELECT count(*) FROM entry", [], |row| row.get(0))?;
    Ok(Report { integrity_check, acknowledged, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database(rows: &[(i64, i64)]) -> Connection {
        // Shared by name: `check` opens the same memory once more.
        let connection = Connection::open("file:verify?mode=memory&cache=shared").unwrap();
        connection.execute_batch(&format!("DROP TABLE IF EXISTS entry; {}", row::CREATE_TABLE)).unwrap();
        for (id, payload_of) in rows {
            connection.execute("INSERT INTO entry VALUES (?1, ?2)", (id, row::payload(*payload_of))).unwrap();
        }
        connection
    }

    #[test]
    fn lost_and_wrong_rows_are_told() {
        let db = Path::new("file:verify?mode=memory&cache=shared");
        let log: Vec<u8> = [1_i64, 2].iter().flat_map(|id| id.to_le_bytes()).collect();

        let sound = database(&[(1, 1), (2, 2), (3, 3)]);
        assert_eq!(
            check(db, &log).unwrap(),
            Report { integrity_check: "ok".into(), acknowledged: 2, rows: 3 }
        );
        drop(sound);

        let lost = database(&[(1, 1)]);
        assert!(
            check(db, &log).unwrap_err().to_string().contains("transaction 2 was acknowledged and is lost")
        );
        drop(lost);

        let wrong = database(&[(1, 1), (2, 9)]);
        assert!(check(db, &log).unwrap_err().to_string().contains("transaction 2 has another row's bytes"));
        drop(wrong);
    }
}
