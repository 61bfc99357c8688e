//! What the oracle allows a file system that makes metadata durable later, in their order, as a journal does:
//! held against one in memory that commits when it is asked to, and now and then by itself, and that writes
//! data in place whenever it likes.

use amphi_crashlab::judge;
use amphi_crashlab::oracle::{Legal, Oracle};
use amphi_crashlab::tree::Tree;
use amphi_crashlab::workload::{How, Operation, Place, at, random};
use amphi_model::Model;
use amphi_rt::Sim;
use amphi_rt::random::Generator;
use amphi_vfs::{AccessTimes, Cred, FileSystem, Ino, Promise, SetAttr, SetTime, WriteMode};

const LATER: Promise =
    Promise { metadata_durable_on_return: false, atomic_writes: false, data_durable_on_return: false };

fn new_model() -> Model {
    let model = Model::new();
    model.set_access_times(AccessTimes::Never);
    model
}

fn oracle_of(model: &Model) -> Oracle {
    let tree = Tree::of(model).expect("readable");
    Oracle::new(LATER, &tree.nodes[&Ino::ROOT.0]).expect("an oracle")
}

/// A file system in memory: what its users see, and what a crash would leave.
struct Delayed {
    live: Model,
    disk: Model,
}

impl Delayed {
    fn commit(&mut self) {
        self.disk = self.live.clone();
        self.disk.drop_references();
    }

    /// Does an operation; `dice` decides what becomes durable by itself.
    fn apply(&mut self, operation: &Operation, number: u64, dice: &mut Generator) {
        if operation.apply(&self.live, number).is_err() {
            return;
        }
        if operation.persists()
            || matches!(operation, Operation::Write(_, How::Mapped, ..))
            || dice.below(12) == 0
        {
            self.commit();
        } else if let Operation::Write(path, _, Place::At(offset), len) = operation
            && dice.below(2) == 0
        {
            self.in_place(path, *offset, *len, dice);
        }
    }

    /// Part of what was written goes to where the file is on disk, if it is there and as long.
    fn in_place(&self, path: &str, offset: u64, len: u32, dice: &mut Generator) {
        let Ok(ino) = at(&self.live, path, Ok) else { return };
        let Ok(attr) = self.disk.getattr(ino) else { return };
        let part = dice.below(u64::from(len) + 1);
        if offset + part > attr.size {
            return;
        }
        let mut data = vec![0; part as usize];
        self.live.read(ino, offset, &mut data, false).expect("readable");
        self.disk.write(ino, offset, &data, WriteMode::default(), &Cred::ROOT).expect("written");
        let times = SetAttr {
            mode: Some(attr.mode),
            atime: Some(SetTime::At(attr.atime)),
            mtime: Some(SetTime::At(attr.mtime)),
            ctime: Some(attr.ctime),
            ..SetAttr::default()
        };
        self.disk.setattr(ino, &times, &Cred::ROOT).expect("set");
    }
}

#[test]
fn a_file_system_that_commits_in_order_is_always_legal_and_one_that_forgets_a_sync_is_not() {
    let mut forgotten = 0;
    for seed in 0..16 {
        Sim::new(seed).run(|| {
            let mut fs = Delayed { live: new_model(), disk: new_model() };
            let mut oracle = oracle_of(&fs.live);
            let mut dice = Generator::new(seed ^ 0xde1a);
            for (number, operation) in (0..).zip(random::operations(seed)) {
                amphi_rt::time::sleep_ns(1000);
                let operation = operation.resolved(&oracle.model);
                let mut after = oracle.clone();
                let done = after.apply(&operation, number).is_ok();
                let old = fs.disk.clone();
                fs.apply(&operation, number, &mut dice);
                let during = if done { oracle.legal_until(&after, &operation) } else { oracle.legal() };
                for disk in [&old, &fs.disk] {
                    judge::compare(disk, &during)
                        .unwrap_or_else(|what| panic!("seed {seed}, during {number} {operation}: {what}"));
                }
                oracle = after;
                judge::compare(&fs.disk, &oracle.legal())
                    .unwrap_or_else(|what| panic!("seed {seed}, after {number} {operation}: {what}"));
                if operation == Operation::Sync && Tree::of(&old) != Tree::of(&fs.disk) {
                    assert!(
                        judge::compare(&old, &oracle.legal()).is_err(),
                        "seed {seed}: {number} did nothing"
                    );
                    forgotten += 1;
                }
            }
        });
    }
    assert!(forgotten > 40, "{forgotten}");
}

/// Whether what `found` leaves is legal after `done`; both are operations one a line, numbered alike where
/// `=` stands for an operation left out.
fn is_legal(done: &str, found: &str) -> bool {
    Sim::new(1).run(|| {
        let model = new_model();
        let mut oracle = oracle_of(&model);
        for (number, line) in (0..).zip(done.lines()) {
            let operation: Operation = line.parse().expect("an operation");
            oracle.apply(&operation, number).expect("it can be done");
        }
        for (number, line) in (0..).zip(found.lines()).filter(|(_, line)| *line != "=") {
            let operation: Operation = line.parse().expect("an operation");
            operation.apply(&model, number).expect("it can be done");
        }
        judge::compare(&model, &Legal { times: false, ..oracle.legal() }).is_ok()
    })
}

#[test]
fn operations_are_lost_from_the_last_one_back_and_never_past_a_sync() {
    let done = "create a\nmkdir d\nchmod a 600";
    for found in ["", "create a", "create a\nmkdir d", done] {
        assert!(is_legal(done, found), "{found:?}");
    }
    for found in ["=\nmkdir d", "create a\n=\nchmod a 600"] {
        assert!(!is_legal(done, found), "{found:?} is not in order");
    }
    let synced = "create a\nmkdir d\nfsync a\nchmod a 600";
    assert!(!is_legal(synced, "") && is_legal(synced, "create a") && is_legal(synced, "create a\nmkdir d"));
    let later = "create a\nmkdir d\nchmod a 600\nfsync a";
    assert!(!is_legal(later, "create a\nmkdir d"), "what was changed last is promised");
    assert!(!is_legal("create a\nmkdir d\nsync", "create a"));
    // The directory's names are its own.
    assert!(!is_legal("mkdir d\ncreate d/a\nfsync d", "mkdir d"));
    assert!(is_legal("mkdir d\ncreate d/a\nfsync .", "mkdir d"));
    // A rename is the file's.
    assert!(!is_legal("create a\nsync\nrename a b\nfsync b", "create a"));
    assert!(is_legal("create a\nsync\nrename a b", "create a"));
}

#[test]
fn fdatasync_promises_contents_and_size_and_no_attribute() {
    assert!(is_legal("create a\nchmod a 600\nfdatasync a", "create a"));
    assert!(!is_legal("create a\nchmod a 600\nfsync a", "create a"));
    assert!(!is_legal("create a\nwrite a 0 100\nfdatasync a", "create a"));
    assert!(!is_legal("mkdir d\ncreate a\nfdatasync a", ""));
    // What is overwritten in place needs nothing else to be durable.
    let done = "create a\nwrite a 0 100\nsync\nmkdir d\nwrite a 0 100\nfdatasync a";
    assert!(is_legal(done, "create a\n=\n=\n=\nwrite a 0 100"));
    assert!(!is_legal(done, "create a\nwrite a 0 100\n=\nmkdir d"));
}

#[test]
fn bytes_may_be_newer_than_the_tree_they_are_found_in() {
    let base = "create a\nwrite a 0 100\nsync\n";
    let over = format!("{base}mkdir d\nwrite a 10 50");
    assert!(is_legal(&over, "create a\nwrite a 0 100\n=\n=\nwrite a 10 50"), "data first");
    assert!(is_legal(&over, "create a\nwrite a 0 100\n=\n=\nwrite a 10 20"), "some of it");
    assert!(!is_legal(&over, "create a\nwrite a 0 100\n=\n=\n=\nwrite a 10 20"), "never written");
    assert!(!is_legal(&over, "create a\nwrite a 0 100\nwrite a 10 20"), "never written");
    let grown = format!("{base}write a 100 50\nmkdir d");
    assert!(is_legal(&grown, "create a\nwrite a 0 100\n=\nwrite a 100 50"));
    assert!(!is_legal(&grown, "create a\nwrite a 0 100\n=\nwrite a 100 20"), "a size it never had");
    let cut = format!("{base}truncate a 40");
    assert!(is_legal(&cut, "create a\nwrite a 0 100"));
    assert!(
        is_legal(&cut, "create a\nwrite a 0 100\n=\ntruncate a 40\ntruncate a 100"),
        "cut off, its size not"
    );
    assert!(!is_legal(&cut, "create a\nwrite a 0 100\n=\ntruncate a 30\ntruncate a 100"));
}
