//! Every operation works, again and again, on a directory and on a library, alone and with two threads, and
//! leaves nothing behind.

use std::sync::Arc;

use amphi_benchlab::interleave::{self, Seat};
use amphi_benchlab::kernel::Mounted;
use amphi_benchlab::library::Library;
use amphi_benchlab::operation::{ALL, Operation, Place};
use amphi_model::Model;

/// Runs every operation four times. Answers those that this place does not have.
fn works_everywhere(place: &dyn Place) -> Vec<Operation> {
    const CALLS: usize = 32;
    let mut seat = Seat::take(place, 2).expect("two desks");
    let mut missing = Vec::new();
    for operation in ALL {
        for threads in [1, 2, 2, 1] {
            match seat.batch(operation, threads, CALLS) {
                Ok(batch) => {
                    assert_eq!(batch.samples.len(), CALLS / operation.calls_per_sample() * threads);
                }
                Err(error) if error.to_string().contains("no direct reads") => missing.push(operation),
                Err(error) => panic!("{operation:?} with {threads} threads: {error:#}"),
            }
        }
    }
    missing
}

/// In memory, if the machine has such a place: disks may be slow.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

#[test]
fn on_a_directory() {
    let directory = directory();
    works_everywhere(&Mounted::new(directory.path()));
    let mut left: Vec<_> = std::fs::read_dir(directory.path().join("thread-1"))
        .expect("a desk")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["data", "inner"], "batches clear their desks");
}

#[test]
fn on_a_library() {
    assert!(works_everywhere(&Library::new(Arc::new(Model::new()))).is_empty());
}

#[test]
fn peers_take_turns_a_failure_is_told_and_an_interruption_ends_the_run() {
    let directory = directory();
    let place = Mounted::new(directory.path());
    let mut seats = [Some(Seat::take(&place, 1).expect("a desk")), None];
    let samples = interleave::run(&mut seats, Operation::Stat, 1, 3, &|| true);
    assert_eq!((samples[0].rounds.len(), samples[1].rounds.len()), (3, 0), "nobody sits at the second");
    let expected = Operation::Stat.calls() / Operation::Stat.calls_per_sample();
    assert!(samples[0].rounds.iter().all(|round| round.len() == expected));
    std::fs::write(directory.path().join("thread-0/file-000100"), b"in the way").expect("written");
    let samples = interleave::run(&mut seats, Operation::Mkdir, 1, 3, &|| true);
    assert!(samples[0].rounds.is_empty() && samples[0].failure.is_some(), "{samples:?}");
    let samples = interleave::run(&mut seats, Operation::Stat, 1, 3, &|| false);
    assert!(samples[0].rounds.is_empty() && samples[0].failure.is_none(), "{samples:?}");
}
