//! Workloads and measurements: the same operations on several file systems in one interleaved run, so that
//! what disturbs the machine disturbs all of them, and ratios mean something where single figures do not.
//!
//! Start at [`software::run`]: it makes the [`peers`], has [`interleave`] run every
//! [`operation`](operation::Operation) on each of them in turn, and hands back a [`report::Report`].
#![forbid(unsafe_code)]

pub mod applications;
mod batch;
pub mod beside;
pub mod experiment;
pub mod figure;
pub mod files;
pub mod gridgraph;
pub mod html;
pub mod idle;
pub mod interleave;
pub mod kernel;
pub mod kernel_ssd;
pub mod library;
pub mod lsm;
pub mod operation;
pub mod parameter;
mod paths;
pub mod peer;
pub mod peers;
pub mod remote;
pub mod replay;
pub mod report;
pub mod rest;
pub mod rings;
pub mod samples;
pub mod software;
pub mod validation;
pub mod workload;
pub mod ycsb;

/// Says on standard error what could not be put back as it was, where no caller can be told. Nobody may
/// listen.
fn complain(what: std::fmt::Arguments<'_>) {
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("amphi: {what}\n"));
}
