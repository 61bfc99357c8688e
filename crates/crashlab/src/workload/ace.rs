//! Every short sequence of operations within the bounds of ACE (Mohan et al., OSDI 2018), and what ACE lacks.
//!
//! The bounds are those of ACE with one more level of directories: files foo, A/foo, bar, A/bar, A/C/bar,
//! directories root, A, B, A/C; 93 operations; after each nothing, `sync`, or `fsync` of a file used in the
//! sequence, of its sibling or its parent, and never nothing at the end. That gives 435 sequences of one
//! operation and 466,382 of two, as published. Prerequisites are inserted where an operation needs them.

use amphi_trace::{How, Operation, Place};
use amphi_vfs::Allocate;

/// The place within a file that an operation works on, as ACE has them: append 32 KiB, 5,000 B at 0, 5,000 B
/// from 2,000 B before the end.
const RANGES: [(Place, u32); 3] =
    [(Place::End, 32_768), (Place::At(0), 5000), (Place::BeforeEnd(2000), 5000)];
/// The same for direct and mapped writes: append 32 KiB, 8,192 B at 0.
const ALIGNED: [(Place, u32); 2] = [(Place::End, 32_768), (Place::At(0), 8192)];
const FILES: [&str; 2] = ["foo", "A/foo"];
const OTHER_FILES: [&str; 3] = ["bar", "A/bar", "A/C/bar"];
const DIRS: [&str; 3] = ["A", "B", "A/C"];
const OTHER_DIRS: [&str; 2] = ["B", "A/C"];

/// An operation of the bounded set and the paths it uses.
#[derive(Clone, Debug)]
pub struct Bounded {
    /// The operation.
    pub operation: Operation,
    /// What may be synced after it: the paths it uses, their siblings and parents.
    related: Vec<&'static str>,
}

/// The sibling and the parent of a path, as ACE defines them.
fn relatives(path: &'static str) -> [&'static str; 2] {
    match path {
        "foo" => ["bar", "."],
        "bar" => ["foo", "."],
        "A/foo" => ["A/bar", "A"],
        "A/bar" => ["A/foo", "A"],
        "A/C/bar" => ["A/C/foo", "A/C"],
        "A" => ["B", "."],
        "B" => ["A", "."],
        "A/C" => ["A/C", "A"],
        _ => [".", "."],
    }
}

fn bounded(operation: Operation, used: &[&'static str]) -> Bounded {
    let mut related: Vec<&'static str> =
        used.iter().flat_map(|path| [*path].into_iter().chain(relatives(path))).collect();
    related.sort_unstable();
    related.dedup();
    Bounded { operation, related }
}

/// The 93 operations.
#[must_use]
pub fn operations() -> Vec<Bounded> {
    let mut all = Vec::new();
    let own = |path: &str| path.to_owned();
    for file in FILES {
        all.push(bounded(Operation::Create(own(file)), &[file]));
    }
    all.push(bounded(Operation::Mkdir(own("A")), &["A"]));
    let ways = [
        Allocate::Zero { keep_size: false },
        Allocate::Zero { keep_size: true },
        Allocate::PunchHole,
        Allocate::Reserve { keep_size: true },
        Allocate::Reserve { keep_size: false },
    ];
    for file in FILES {
        for what in ways {
            for (place, len) in RANGES {
                all.push(bounded(Operation::Allocate(own(file), what, place, len), &[file]));
            }
        }
    }
    for (how, ranges) in [(How::Buffered, &RANGES[..]), (How::Direct, &ALIGNED), (How::Mapped, &ALIGNED)] {
        for file in FILES {
            for (place, len) in ranges {
                all.push(bounded(Operation::Write(own(file), how, *place, *len), &[file]));
            }
        }
    }
    for make in [Operation::Link as fn(String, String) -> Operation, Operation::Rename] {
        for from in FILES.into_iter().chain(OTHER_FILES) {
            for to in OTHER_FILES.into_iter().filter(|to| *to != from) {
                all.push(bounded(make(own(from), own(to)), &[from, to]));
            }
        }
    }
    for from in DIRS {
        for to in OTHER_DIRS.into_iter().filter(|to| *to != from) {
            all.push(bounded(Operation::Rename(own(from), own(to)), &[from, to]));
        }
    }
    // remove(3) of a file is unlink(2): ACE has both, and so has the count.
    for _unlink_then_remove in 0..2 {
        for file in FILES.into_iter().chain(OTHER_FILES) {
            all.push(bounded(Operation::Unlink(own(file)), &[file]));
        }
    }
    for file in FILES {
        all.push(bounded(Operation::SetXattr(own(file), 40), &[file]));
        all.push(bounded(Operation::RemoveXattr(own(file)), &[file]));
        all.push(bounded(Operation::Truncate(own(file), 0), &[file]));
        all.push(bounded(Operation::Truncate(own(file), 2500), &[file]));
    }
    all
}

/// What ACE lacks.
#[must_use]
pub fn additions() -> Vec<Bounded> {
    let own = |path: &str| path.to_owned();
    let mut all = Vec::new();
    for file in FILES {
        all.push(bounded(Operation::Symlink(own("A/bar"), own(file)), &[file]));
        all.push(bounded(Operation::Mknod(own(file)), &[file]));
        all.push(bounded(Operation::Tmpfile(own(file)), &[file]));
        all.push(bounded(Operation::Chmod(own(file), 0o4751), &[file]));
        all.push(bounded(Operation::Chown(own(file), 1000, 100), &[file]));
        all.push(bounded(Operation::Utimens(own(file), 1_234_567_890_123_456_789), &[file]));
        all.push(bounded(Operation::SetXattr(own(file), 3000), &[file]));
        all.push(bounded(Operation::UnlinkOpen(own(file)), &[file]));
        // As much as a direct write sends by bytes.
        all.push(bounded(Operation::Write(own(file), How::Direct, Place::At(512), 512), &[file]));
        for other in OTHER_FILES {
            all.push(bounded(Operation::Exchange(own(file), own(other)), &[file, other]));
        }
    }
    let long = "a-target-so-long-that-it-does-not-fit-into-the-inode-and-takes-a-block-of-its-own/".repeat(3);
    all.push(bounded(Operation::Symlink(long, own("A/bar")), &["A/bar"]));
    all.push(bounded(Operation::Exchange(own("A"), own("B")), &["A", "B"]));
    all.push(bounded(Operation::Exchange(own("A/C"), own("B")), &["A/C", "B"]));
    all.push(bounded(Operation::Rmdir(own("A")), &["A"]));
    all.push(bounded(Operation::Rmdir(own("A/C")), &["A/C"]));
    all.push(bounded(Operation::Mkdir(own("A/C")), &["A/C"]));
    all
}

/// Sequences of one or two operations with every choice of syncs, by number.
#[derive(Clone, Debug)]
pub struct Sequences {
    operations: Vec<Bounded>,
    /// Which of the operations follow one another.
    combinations: Vec<Vec<usize>>,
    /// Whether `fdatasync` is a choice wherever `fsync` is.
    fdatasync: bool,
    /// The number of the first sequence of each combination, and at the end how many sequences there are.
    starts: Vec<u64>,
}

impl Sequences {
    /// The published ones: of one or two operations.
    ///
    /// # Panics
    /// For other lengths, which are sampled instead.
    #[must_use]
    pub fn published(length: u32) -> Self {
        Self::of(operations(), length, false)
    }

    /// Sequences of one operation, ACE's or one that it lacks, or of two that it lacks; with `fdatasync`
    /// among the syncs.
    ///
    /// # Panics
    /// For other lengths.
    #[must_use]
    pub fn extended(length: u32) -> Self {
        let mut all = additions();
        if length == 1 {
            all.extend(operations());
        }
        Self::of(all, length, true)
    }

    /// Sequences of two operations, one of ACE's and one that it lacks, in either order; with `fdatasync`
    /// among the syncs.
    #[must_use]
    pub fn mixed() -> Self {
        let mut all = additions();
        let lacking = all.len();
        all.extend(operations());
        let pairs = pairs_of(all.len()).filter(|pair| (pair[0] < lacking) != (pair[1] < lacking)).collect();
        Self::numbered(all, pairs, true)
    }

    fn of(operations: Vec<Bounded>, length: u32, fdatasync: bool) -> Self {
        let combinations = match length {
            1 => (0..operations.len()).map(|one| vec![one]).collect(),
            2 => pairs_of(operations.len()).collect(),
            _ => panic!("sequences of {length} operations are too many to number"),
        };
        Self::numbered(operations, combinations, fdatasync)
    }

    fn numbered(operations: Vec<Bounded>, combinations: Vec<Vec<usize>>, fdatasync: bool) -> Self {
        let mut all = Self { operations, combinations, fdatasync, starts: Vec::new() };
        let mut next = 0;
        for combination in 0..all.combinations.len() {
            all.starts.push(next);
            next += all.choices(combination);
        }
        all.starts.push(next);
        all
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first number after those of the sequences of the same operations as number `number`, with other
    /// syncs.
    #[must_use]
    pub fn after_family(&self, number: u64) -> u64 {
        let next = self.starts.partition_point(|start| *start <= number);
        self.starts.get(next).copied().unwrap_or(number + 1)
    }

    fn members(&self, combination: usize) -> Vec<&Bounded> {
        self.combinations[combination].iter().map(|&one| &self.operations[one]).collect()
    }

    fn choices(&self, combination: usize) -> u64 {
        let members = self.members(combination);
        let syncs = syncs(&members, self.fdatasync).len() as u64;
        (syncs + 1).pow(members.len() as u32 - 1) * syncs
    }

    /// The sequence numbered `number`: its operations, each with the sync that follows it, if any.
    ///
    /// # Panics
    /// If there are not as many.
    #[must_use]
    pub fn get(&self, number: u64) -> Vec<(Operation, Option<Operation>)> {
        assert!(
            number < self.len(),
            "there are {} sequences, and number {number} is none of them",
            self.len()
        );
        let combination = self.starts.partition_point(|start| *start <= number) - 1;
        let members = self.members(combination);
        let syncs = syncs(&members, self.fdatasync);
        let mut rest = number - self.starts[combination];
        let last = rest % syncs.len() as u64;
        rest /= syncs.len() as u64;
        let mut chosen = vec![Some(syncs[last as usize].clone())];
        for _ in 1..members.len() {
            let choices = syncs.len() as u64 + 1;
            // The last choice is none.
            chosen.push(syncs.get((rest % choices) as usize).cloned());
            rest /= choices;
        }
        chosen.reverse();
        members.iter().map(|member| member.operation.clone()).zip(chosen).collect()
    }

    /// The three-operation sequence that `seed` draws from the same operations and syncs, ACE's additions
    /// included.
    #[must_use]
    pub fn sample_of_three(seed: u64) -> Vec<(Operation, Option<Operation>)> {
        let mut dice = amphi_rt::random::Generator::new(seed ^ 0x3a5e_0003);
        let all: Vec<Bounded> = operations().into_iter().chain(additions()).collect();
        let members: Vec<&Bounded> = (0..3).map(|_| &all[dice.below(all.len() as u64) as usize]).collect();
        let syncs = syncs(&members, true);
        let count = syncs.len() as u64;
        members
            .into_iter()
            .enumerate()
            .map(|(place, member)| {
                // As often none as any.
                let none = place < 2 && dice.below(2) == 0;
                let sync = syncs[dice.below(count) as usize].clone();
                (member.operation.clone(), (!none).then_some(sync))
            })
            .collect()
    }
}

/// Every two of `count`, in either order and twice the same, the second one fastest.
fn pairs_of(count: usize) -> impl Iterator<Item = Vec<usize>> {
    (0..count).flat_map(move |first| (0..count).map(move |second| vec![first, second]))
}

/// The syncs of which one may follow each of these operations.
fn syncs(members: &[&Bounded], fdatasync: bool) -> Vec<Operation> {
    let mut related: Vec<&str> = members.iter().flat_map(|member| member.related.iter().copied()).collect();
    related.sort_unstable();
    related.dedup();
    let fsync = |data_only| related.iter().map(move |path| Operation::Fsync((*path).to_owned(), data_only));
    let mut syncs: Vec<Operation> = fsync(false).collect();
    if fdatasync {
        syncs.extend(fsync(true));
    }
    syncs.push(Operation::Sync);
    syncs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_published() {
        assert_eq!(operations().len(), 93);
        assert_eq!(Sequences::published(1).len(), 435);
        assert_eq!(Sequences::published(2).len(), 466_382);
    }

    #[test]
    fn mixed_sequences_are_of_both_kinds_in_either_order() {
        let mixed = Sequences::mixed();
        assert_eq!(mixed.len(), 917_828);
        let of = |kind: Vec<Bounded>| kind.into_iter().map(|one| one.operation).collect::<Vec<_>>();
        let (lacking, published) = (of(additions()), of(operations()));
        assert_eq!(mixed.combinations.len(), 2 * lacking.len() * published.len());
        let mut orders = [0, 0];
        for &start in &mixed.starts[..mixed.combinations.len()] {
            let [(first, _), (second, sync)] = mixed.get(start).try_into().unwrap();
            assert!(sync.is_some());
            let lacking_first = lacking.contains(&first);
            assert!(if lacking_first { published.contains(&second) } else { lacking.contains(&second) });
            orders[usize::from(lacking_first)] += 1;
        }
        assert_eq!(orders[0], orders[1]);
    }

    #[test]
    fn numbers_name_sequences_one_to_one() {
        let all = Sequences::published(1);
        let texts: std::collections::BTreeSet<String> =
            (0..all.len()).map(|number| format!("{:?}", all.get(number))).collect();
        // Five unlinks stand there twice, as unlink and as remove, with four syncs each.
        assert_eq!(texts.len(), 435 - 5 * 4);
        let two = Sequences::published(2);
        for number in [0, 1, 4999, 466_381] {
            let sequence = two.get(number);
            assert_eq!(sequence.len(), 2);
            assert!(sequence[1].1.is_some(), "the last operation is always followed by a sync");
        }
    }
}
