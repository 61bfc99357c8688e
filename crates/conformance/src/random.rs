//! Random operations, compared with the model.
//!
//! [`run`] draws a sequence from a seed and applies each operation to the file system under test and to a
//! [`Model`]. Every answer must agree, and at the end the whole tree: names, attributes, data byte by byte.
//! What fails is shrunk to a minimal sequence and printed with the seed.

mod adopt;
mod apply;
mod compare;
mod generate;
mod linear;
mod numbers;
mod operation;
mod shrink;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use amphi_model::Model;
use amphi_rt::task;
use amphi_vfs::{FileSystem, Ino};

use crate::durable::sync_each;
use crate::harness::{Fs, message};
pub use adopt::adopt;
use apply::Pair;
pub use linear::{Door, Programs, linearizable};
pub use operation::{Data, Object, Operation, Path};

/// Where a file system and the model disagreed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Index of the operation in its sequence; its length stands for the comparison of the trees at the end.
    pub at: usize,
    /// What differs.
    pub what: String,
}

/// The sequence of `count` operations that `seed` stands for. A longer one starts with the shorter ones.
#[must_use]
pub fn sequence(seed: u64, count: usize) -> Vec<Operation> {
    generate::sequence(seed, count, None)
}

/// Applies `count` random operations to a file system fresh from `make` and to the model.
///
/// # Panics
/// If they disagree, with the seed and a minimal sequence that shows it.
pub fn run<F: FileSystem + 'static>(make: impl Fn() -> F, seed: u64, count: usize) {
    let operations = sequence(seed, count);
    report(seed, &operations, |operations| check(&make, no_remount, operations));
}

/// As [`run`], with `remount` called after about every `every` operations. It is handed the only reference to
/// the file system and returns one that was unmounted and mounted again, with the same contents.
///
/// # Panics
/// If they disagree, with the seed and a minimal sequence that shows it.
pub fn run_with_remounts<F: FileSystem + 'static>(
    make: impl Fn() -> F,
    remount: impl Fn(F) -> F,
    seed: u64,
    count: usize,
    every: usize,
) {
    let operations = generate::sequence(seed, count, Some(every));
    report(seed, &operations, |operations| check(&make, &remount, operations));
}

/// As [`run_with_remounts`], with crashes of the file system in the place of unmounts: `mount_again` drops it
/// and mounts what that leaves. All is durable before, each file by itself ([`sync_each`]).
///
/// # Panics
/// As there.
pub fn run_with_crashes<F: FileSystem + 'static>(
    make: impl Fn() -> F,
    mount_again: impl Fn(F) -> F,
    seed: u64,
    count: usize,
    every: usize,
) {
    let crash = |fs| {
        sync_each(&fs);
        mount_again(fs)
    };
    run_with_remounts(make, crash, seed, count, every);
}

/// As [`run`], with `tasks` tasks at the same time, each with names and a model of its own, in one and the
/// same directory.
///
/// In real time the interleaving differs from run to run; inside `amphi_rt::Sim` it follows from its seed. A
/// failure is not shrunk.
///
/// # Panics
/// If they disagree, with the seed and the task.
pub fn run_tasks<F: FileSystem + 'static>(make: impl Fn() -> F, seed: u64, count: usize, tasks: usize) {
    let fs = Fs::new(Arc::new(make()));
    let running: Vec<_> = (0..tasks)
        .map(|number| {
            let fs = fs.clone();
            task::spawn("random operations", move || {
                let operations = sequence(seed.wrapping_add(number as u64), count);
                let mut pair = Pair::new(fs, Model::new(), Some(number));
                let outcome = apply_all(&mut pair, &operations);
                if let Err(Mismatch { at, what }) = outcome {
                    let operation = operations.get(at);
                    panic!("seed {seed}, task {number} of {tasks}, operation {at} ({operation:?}): {what}");
                }
            })
        })
        .collect();
    for handle in running {
        handle.join();
    }
}

/// Applies `operations` to a file system fresh from `make` and to the model.
///
/// # Errors
/// The first [`Mismatch`]; a panic of the file system is one too.
pub fn check<F: FileSystem + 'static>(
    make: impl Fn() -> F,
    remount: impl Fn(F) -> F,
    operations: &[Operation],
) -> Result<(), Mismatch> {
    let mut fs = Arc::new(make());
    let mut model = Model::new();
    let mut start = 0;
    loop {
        let end = operations[start..]
            .iter()
            .position(|operation| *operation == Operation::Remount)
            .map_or(operations.len(), |length| start + length);
        let mut pair = Pair::new(Fs::new(Arc::clone(&fs) as Arc<dyn FileSystem>), model, None);
        let applied = catch_unwind(AssertUnwindSafe(|| apply_all(&mut pair, &operations[start..end])));
        let moved = |Mismatch { at, what }| Mismatch { at: start + at, what };
        match applied {
            Ok(outcome) => outcome.map_err(moved)?,
            Err(cause) => {
                let at = start + pair.applied();
                return Err(Mismatch { at, what: format!("panic: {}", message(&*cause)) });
            }
        }
        model = pair.into_model();
        if end == operations.len() {
            return Ok(());
        }
        start = end + 1;
        model.drop_references();
        let alone = Arc::try_unwrap(fs).unwrap_or_else(|_| unreachable!("the pair was the only other owner"));
        let remounted = catch_unwind(AssertUnwindSafe(|| remount(alone)));
        fs = Arc::new(remounted.map_err(|cause| Mismatch {
            at: end,
            what: format!("panic while remounting: {}", message(&*cause)),
        })?);
        compare::trees(&Fs::new(Arc::clone(&fs) as Arc<dyn FileSystem>), &model, Ino::ROOT)
            .map_err(|what| Mismatch { at: end, what: format!("after remounting: {what}") })?;
    }
}

/// Applies `count` random operations to a file system that holds what `model` holds, and to the model;
/// returns the model as it is afterwards.
///
/// # Errors
/// The first [`Mismatch`]; a panic of the file system is one too.
pub fn run_on<F: FileSystem + 'static>(
    fs: &Arc<F>,
    model: Model,
    seed: u64,
    count: usize,
) -> Result<Model, Mismatch> {
    let operations = sequence(seed, count);
    let shared = Fs::new(Arc::clone(fs) as Arc<dyn FileSystem>);
    let mut pair = Pair::new(shared, model, None);
    match catch_unwind(AssertUnwindSafe(|| apply_all(&mut pair, &operations))) {
        Ok(outcome) => outcome.map(|()| pair.into_model()),
        Err(cause) => Err(Mismatch { at: pair.applied(), what: format!("panic: {}", message(&*cause)) }),
    }
}

/// Compares everything a file system holds with the model.
///
/// # Errors
/// The first difference, in words.
pub fn compare<F: FileSystem + 'static>(fs: &Arc<F>, model: &Model) -> Result<(), String> {
    compare::trees(&Fs::new(Arc::clone(fs) as Arc<dyn FileSystem>), model, Ino::ROOT)
}

fn no_remount<F>(fs: F) -> F {
    fs
}

/// Applies all operations to both, then compares the trees.
fn apply_all(pair: &mut Pair, operations: &[Operation]) -> Result<(), Mismatch> {
    for (at, operation) in operations.iter().enumerate() {
        pair.apply(operation).map_err(|what| Mismatch { at, what })?;
    }
    pair.finish().map_err(|what| Mismatch { at: operations.len(), what })
}

/// Shrinks a failing sequence and panics with what is left.
fn report(seed: u64, operations: &[Operation], check: impl Fn(&[Operation]) -> Result<(), Mismatch>) {
    let Err(first) = check(operations) else { return };
    let minimal = shrink::shrink(operations, &first, &check);
    let mismatch = check(&minimal).err();
    let what = mismatch.map_or_else(
        || format!("{} (and not when tried again)", first.what),
        |mismatch| format!("at operation {}: {}", mismatch.at, mismatch.what),
    );
    let lines: Vec<String> =
        minimal.iter().enumerate().map(|(at, operation)| format!("  {at}: {operation:?}")).collect();
    panic!(
        "seed {seed}, {} operations, shrunk to {}: {what}\n{}",
        operations.len(),
        minimal.len(),
        lines.join("\n")
    );
}
