//! The check after a crash: SQLite finds the database sound, and every acknowledged row is there with its
//! right payload.

use std::path::PathBuf;

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
pub struct Report {
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
    let connection = Connection::open(&options.db)
        .with_context(|| format!("{} cannot be opened", options.db.display()))?;
    println!("{}", serde_json::to_string(&check(&connection, &log)?)?);
    Ok(())
}

/// Checks a database against the log of acknowledged rows.
///
/// # Errors
/// As [`run`].
pub fn check(connection: &Connection, log: &[u8]) -> Result<Report> {
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
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(row::CREATE_TABLE).unwrap();
        for (id, payload_of) in rows {
            connection.execute("INSERT INTO entry VALUES (?1, ?2)", (id, row::payload(*payload_of))).unwrap();
        }
        connection
    }

    #[test]
    fn lost_and_wrong_rows_are_told() {
        let log: Vec<u8> = [1_i64, 2].iter().flat_map(|id| id.to_le_bytes()).collect();
        let outcome = |rows| check(&database(rows), &log);

        let sound = outcome(&[(1, 1), (2, 2), (3, 3)]).unwrap();
        assert_eq!(sound, Report { integrity_check: "ok".into(), acknowledged: 2, rows: 3 });
        let lost = outcome(&[(1, 1)]).unwrap_err().to_string();
        assert!(lost.contains("transaction 2 was acknowledged and is lost"), "{lost}");
        let wrong = outcome(&[(1, 1), (2, 9)]).unwrap_err().to_string();
        assert!(wrong.contains("transaction 2 has another row's bytes"), "{wrong}");
    }
}
