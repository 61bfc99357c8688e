//! The suites on every other file system, through `/dev/fuse` and by `amphi run`: what they ask differs
//! little from ByteFS's runs, what answers is another program. stress-ng takes a minute for each and runs
//! with `--long` alone.

use super::{FSX_OPERATIONS, Transport, accelerated, dbench_by, fsx_by, is_long, pjdfstest_by, stress_ng_by};

/// Operations of fsx in all, unless `--long` is given.
const FSX_OPERATIONS_SHORT: u64 = 40_000;

fn all(file_system: &str) {
    let transport = Transport::Device;
    pjdfstest_by(file_system, transport);
    fsx_by(file_system, transport, if is_long() { FSX_OPERATIONS } else { FSX_OPERATIONS_SHORT });
    dbench_by(file_system, transport, if is_long() { 20 } else { 2 });
    accelerated::on(file_system);
    if is_long() {
        stress_ng_by(file_system, transport);
    }
}

#[test]
fn augefs() {
    all("augefs");
}

#[test]
fn devfs() {
    all("devfs");
}

#[test]
fn ext4like() {
    all("ext4like");
}

#[test]
fn f2fslike() {
    all("f2fslike");
}

#[test]
fn novalike() {
    all("novalike");
}

#[test]
fn pmfslike() {
    all("pmfslike");
}

#[test]
fn romefs() {
    all("romefs");
}
