//! Databases with their logs in an SSD's BA-buffer (2B-SSD §IV-B, TB-13): with `-o logs=known` the mount
//! recognises `pg_wal`, Redis's append-only file, SQLite's `-wal` and RocksDB's numbered logs, and an `fsync`
//! of one is a `BA_SYNC`. CONTRIBUTING.md has the command for two hundred crashes of each.

use super::{Place, postgres, redis, rocksdb, sqlite, survive_on};

/// On the ext4-like file system of an SSD with a BA-buffer. Ten crashes of each image, since making a
/// database takes longer than a crash; before each the log still goes through several parts.
const PINNED: Place = Place {
    mkfs: &["--fs", "ext4like", "--profile", "2b-ssd", "--firmware", "ba-buffer"],
    options: &["-o", "logs=known"],
    iterations: [1, 20],
    crashes: 10,
    fewer: 5,
};

#[test]
fn postgres_with_its_log_pinned() {
    survive_on(PINNED, postgres::make);
}

#[test]
fn redis_with_its_log_pinned() {
    survive_on(PINNED, redis::make);
}

#[test]
fn sqlite_with_its_log_pinned() {
    survive_on(PINNED, sqlite::make_wal);
}

#[test]
fn rocksdb_with_its_log_pinned() {
    survive_on(PINNED, rocksdb::make);
}
