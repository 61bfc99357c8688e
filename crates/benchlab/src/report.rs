//! What a run found: medians with their spread, and how many times longer others take than ours.

use std::fmt::Write as _;

use serde::Serialize;

use crate::beside::{self, Beside};
use crate::operation::Operation;
use crate::peer::{LIBRARY, MOUNTED, Peer, RINGS, ROMEFS};
use crate::rest::Rest;
use crate::samples::{Samples, Share, quantile, round_medians, times_longer};

/// Version of the JSON: another number if a field goes away or changes its meaning.
pub const SCHEMA: u32 = 2;

/// A whole run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Rounds that count.
    pub rounds: usize,
    /// Whether somebody ended the run early.
    pub interrupted: bool,
    /// How long idle processors polled before they halted, in ns, if this is a virtual machine where that is
    /// known.
    pub idle_polling_ns: Option<u64>,
    /// Who took part.
    pub peers: Vec<Peer>,
    /// What this machine does not have, and why.
    pub unavailable: Vec<Unavailable>,
    /// One entry for each operation and number of threads.
    pub operations: Vec<Line>,
    /// What daemons take whose programs do little, where daemons look for commands of programs.
    pub rests: Vec<Rest>,
}

/// A file system that could not take part.
#[derive(Clone, Debug, Serialize)]
pub struct Unavailable {
    /// Its name.
    pub name: String,
    /// Why not.
    pub reason: String,
}

/// One operation, with one number of threads, on every peer.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The operation.
    pub operation: String,
    /// Threads at once.
    pub threads: usize,
    /// Whether no mount's server is asked: see [`Operation::is_the_kernels`].
    pub kernel_alone: bool,
    /// In the order of the peers.
    pub results: Vec<Outcome>,
    /// Ours against the best peer of the kernel's.
    pub ratios: Vec<Ratio>,
    /// How many times longer RomeFS's library takes than ByteFS's, if both took part.
    pub romefs: Option<Share>,
    /// Our mount against the trivial one, if both took part.
    pub share: Option<Share>,
    /// Our mount through rings against the trivial one, which has none, if both took part.
    pub ring_share: Option<Share>,
    /// The ways that programs have to ours, beside each other.
    pub beside: Vec<Beside>,
}

/// One operation on one peer.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The peer.
    pub peer: String,
    /// Median over all samples, in ns a call.
    pub p50_ns: Option<u64>,
    /// 99 of 100 samples took at most this.
    pub p99_ns: Option<u64>,
    /// The lowest median of a round.
    pub round_p50_min_ns: Option<u64>,
    /// The highest median of a round.
    pub round_p50_max_ns: Option<u64>,
    /// Calls a second of all threads together: the median of the rounds' rates.
    pub per_second: Option<f64>,
    /// How many times as many that is as with the run's first number of threads; none for that one.
    pub scaling: Option<f64>,
    /// Samples.
    pub samples: usize,
    /// Why there are none.
    pub failure: Option<String>,
}

/// How many times longer the best of the kernel's file systems takes than ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Ours.
    pub ours: String,
    /// The fastest of the others, by median.
    pub best: String,
    /// The median of the quotients of the rounds' medians: what slows the machine down for a round or two
    /// does not count.
    pub p50: f64,
    /// The lowest quotient of one round's medians.
    pub min: f64,
    /// The highest.
    pub max: f64,
}

impl Outcome {
    fn of(peer: &Peer, samples: &Samples) -> Self {
        let mut all = samples.rounds.concat();
        let medians = round_medians(samples);
        let mut rates = samples.rates.clone();
        rates.sort_unstable_by(f64::total_cmp);
        Self {
            peer: peer.name.clone(),
            p50_ns: quantile(&mut all, 50),
            p99_ns: quantile(&mut all, 99),
            round_p50_min_ns: medians.iter().min().copied(),
            round_p50_max_ns: medians.iter().max().copied(),
            per_second: rates.get(rates.len() / 2).copied(),
            scaling: None,
            samples: all.len(),
            failure: samples.failure.clone(),
        }
    }
}

impl Line {
    /// What all peers' samples say.
    #[must_use]
    pub fn of(operation: Operation, threads: usize, peers: &[Peer], samples: &[Samples]) -> Self {
        let results: Vec<_> =
            peers.iter().zip(samples).map(|(peer, samples)| Outcome::of(peer, samples)).collect();
        let rivals = peers
            .iter()
            .enumerate()
            .filter(|(_, peer)| !peer.ours && !peer.trivial && (peer.durable || !operation.is_durable()));
        let best = rivals.filter_map(|(at, _)| Some((results[at].p50_ns?, at))).min();
        let ratio = |(at, peer): (usize, &Peer)| {
            let (_, best) = best?;
            let Share { p50, min, max } = times_longer(&samples[best], &samples[at])?;
            Some(Ratio { ours: peer.name.clone(), best: peers[best].name.clone(), p50, min, max })
        };
        let ratios = peers.iter().enumerate().filter(|(_, peer)| peer.ours).filter_map(ratio).collect();
        let trivial = peers.iter().position(|peer| peer.trivial);
        let of_ours = |name: &str| peers.iter().position(|peer| peer.ours && peer.name == name);
        let share = |name: &str| times_longer(&samples[trivial?], &samples[of_ours(name)?]);
        let romefs = || times_longer(&samples[of_ours(ROMEFS)?], &samples[of_ours(LIBRARY)?]);
        let romefs = romefs();
        let (share, ring_share) = (share(MOUNTED), share(RINGS));
        let kernel_alone = operation.is_the_kernels();
        let operation = operation.name();
        let beside = beside::all(peers, samples);
        Self { operation, threads, kernel_alone, results, ratios, romefs, share, ring_share, beside }
    }

    /// Compares the rates with those of the first line about the same operation, if there is one before.
    pub fn scale(&mut self, before: &[Self]) {
        let Some(first) = before.iter().find(|line| line.operation == self.operation) else { return };
        for (outcome, first) in self.results.iter_mut().zip(&first.results) {
            outcome.scaling = outcome.per_second.zip(first.per_second).map(|(many, one)| many / one);
        }
    }

    /// The line as text: medians in µs, then the ratios with their spread over the rounds.
    #[must_use]
    pub fn text(&self) -> String {
        let cell = |outcome: &Outcome| match outcome.p50_ns {
            Some(ns) => format!("{:>11}", micros(ns)),
            None => format!("{:>11}", if outcome.failure.is_some() { "failed" } else { "-" }),
        };
        let ratio = |ratio: &Ratio| {
            let spread = format!("({:.1}-{:.1})", ratio.min, ratio.max);
            format!("{:>8.2} {spread:<12}", ratio.p50)
        };
        let cells: String = self.results.iter().map(cell).collect();
        let ratios: String = self.ratios.iter().map(ratio).collect();
        let share = |share: &Share| {
            let spread = format!("({:.2}-{:.2})", share.min, share.max);
            format!("{:>6.2} {spread:<13}", share.p50)
        };
        let shares: String =
            self.romefs.iter().chain(&self.share).chain(&self.ring_share).map(share).collect();
        let best = self.ratios.first().map_or("", |ratio| ratio.best.as_str());
        let alone = if self.kernel_alone { "; on mounts the kernel alone" } else { "" };
        format!("{:<27}{:>3}{cells} {ratios} {shares}{best}{alone}", self.operation, self.threads)
    }
}

impl Report {
    /// The head of the lines.
    #[must_use]
    pub fn head(&self) -> String {
        let names: String = self.peers.iter().map(|peer| format!("{:>11}", peer.name)).collect();
        let ours = self.peers.iter().filter(|peer| peer.ours);
        let ratios: String = ours.map(|peer| format!("{:<21}", format!("   best / {}", peer.name))).collect();
        let has = |wanted: &dyn Fn(&Peer) -> bool| self.peers.iter().any(wanted);
        let has_trivial = has(&|peer| peer.trivial);
        let has_libraries = has(&|peer| peer.name == LIBRARY) && has(&|peer| peer.name == ROMEFS);
        let romefs = if has_libraries { format!("{:<20}", "romefs / library") } else { String::new() };
        let share = |name: &str| {
            if has_trivial && has(&|peer| peer.name == name) {
                format!("{:<20}", format!("trivial / {name}"))
            } else {
                String::new()
            }
        };
        let shares = romefs + &share(MOUNTED) + &share(RINGS);
        format!("{:<27}{:>3}{names} {ratios} {shares}best", "p50 in µs", "thr")
    }
}

/// The ways that programs have to ours as text: one line for each, under each operation.
#[must_use]
pub fn ways(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines.iter().filter(|line| !line.beside.is_empty()) {
        let threads = if line.threads == 1 { "" } else { "s" };
        text += &format!("{}, {} thread{threads}\n", line.operation, line.threads);
        for outcome in &line.results {
            let mut pairs = line.beside.iter().filter(|beside| beside.peer == outcome.peer).peekable();
            let (Some(_), Some(rate)) = (pairs.peek(), outcome.per_second) else { continue };
            // A text takes whatever is written.
            let _ = write!(text, "  {:<10}{rate:>10.0}/s", outcome.peer);
            let scaling = outcome.scaling.map_or(String::new(), |scaling| format!("{scaling:.2} x one"));
            let _ = write!(text, " {scaling:<10}");
            for pair in pairs {
                let spread = format!("({:.2}-{:.2})", pair.min, pair.max);
                let above = pair.above_ns as f64 / 1e3;
                let what = format!("{} / it {:.2} {spread}, {above:+.2} us", pair.other, pair.p50);
                let _ = write!(text, "  {what:<44}");
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
    }
    text
}

/// Nanoseconds as µs with three digits.
fn micros(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    let decimals = if us < 10.0 { 2 } else { usize::from(us < 100.0) };
    format!("{us:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::{QUEUE, QUEUE_ALL, RANGE_ALL};

    fn peer(name: &str, ours: bool, durable: bool) -> Peer {
        Peer { name: name.to_owned(), description: String::new(), ours, durable, trivial: name == "trivial" }
    }

    fn samples(rounds: &[&[u64]]) -> Samples {
        Samples { rounds: rounds.iter().map(|round| round.to_vec()).collect(), ..Samples::default() }
    }

    #[test]
    fn ours_is_compared_with_the_best_that_is_durable() {
        let peers = [
            peer("library", true, true),
            peer("xfs", false, true),
            peer("tmpfs", false, false),
            peer("none", false, true),
        ];
        let failed = Samples { failure: Some("no room".to_owned()), ..Samples::default() };
        let all = [
            samples(&[&[10, 12, 11], &[20, 22, 21]]),
            samples(&[&[110, 100], &[84, 84]]),
            samples(&[&[2], &[2]]),
            failed,
        ];
        let durable = Line::of(Operation::CreateDurable, 1, &peers, &all);
        let [ratio] = &durable.ratios[..] else { panic!("one is ours: {durable:?}") };
        assert_eq!((ratio.best.as_str(), ratio.p50), ("xfs", 84.0 / 21.0));
        assert_eq!((ratio.min, ratio.max), (84.0 / 21.0, 100.0 / 11.0));
        let ours = &durable.results[0];
        assert_eq!(
            (ours.p50_ns, ours.round_p50_min_ns, ours.round_p50_max_ns),
            (Some(12), Some(11), Some(21))
        );
        assert_eq!((ours.samples, durable.results[3].p50_ns), (6, None));
        assert!(durable.text().contains("failed"), "{}", durable.text());
        let volatile = Line::of(Operation::Create, 1, &peers, &all);
        assert_eq!(volatile.ratios[0].best, "tmpfs", "nobody asked for durability");
    }

    #[test]
    fn our_mount_is_compared_with_the_trivial_one_which_is_nobodys_rival() {
        let peers = [
            peer(MOUNTED, true, true),
            peer(RINGS, true, true),
            peer("trivial", false, false),
            peer("tmpfs", false, false),
        ];
        let all = [
            samples(&[&[20], &[40], &[25]]),
            samples(&[&[9], &[10], &[10]]),
            samples(&[&[18], &[20], &[20]]),
            samples(&[&[60], &[60], &[60]]),
        ];
        let line = Line::of(Operation::Create, 1, &peers, &all);
        assert_eq!(line.ratios[0].best, "tmpfs");
        assert_eq!(line.share, Some(Share { p50: 0.8, min: 0.5, max: 0.9 }));
        assert_eq!(line.ring_share, Some(Share { p50: 2.0, min: 2.0, max: 2.0 }));
        assert!(line.text().contains("0.80 (0.50-0.90)"), "{}", line.text());
    }

    #[test]
    fn the_libraries_are_compared_with_each_other() {
        let peers = [peer(LIBRARY, true, true), peer(ROMEFS, true, true), peer("xfs", false, true)];
        let all = [
            samples(&[&[20], &[40], &[20]]),
            samples(&[&[30], &[50], &[24]]),
            samples(&[&[90], &[90], &[90]]),
        ];
        let line = Line::of(Operation::CreateDurable, 1, &peers, &all);
        assert_eq!(line.romefs, Some(Share { p50: 1.25, min: 1.2, max: 1.5 }));
        assert_eq!(line.ratios.len(), 2, "each is compared with the kernel's");
        assert!(line.text().contains("1.25 (1.20-1.50)"), "{}", line.text());
        assert_eq!(Line::of(Operation::Stat, 1, &peers[1..], &all[1..]).romefs, None);
    }

    #[test]
    fn without_a_rival_there_is_no_ratio() {
        let line = Line::of(Operation::Stat, 2, &[peer("library", true, true)], &[samples(&[&[5]])]);
        assert!(line.ratios.is_empty() && line.text().starts_with("stat by path"), "{}", line.text());
    }

    #[test]
    fn a_way_is_held_against_the_library_the_kernel_and_the_queue() {
        let names = [LIBRARY, MOUNTED, QUEUE_ALL, RANGE_ALL];
        let peer = |name: &&str| Peer {
            name: (*name).to_owned(),
            description: String::new(),
            ours: true,
            durable: true,
            trivial: false,
        };
        let peers: Vec<_> = names.iter().map(peer).collect();
        let samples = |rounds: [u64; 3], rate| Samples {
            rounds: rounds.map(|ns| vec![ns]).to_vec(),
            rates: vec![rate; 3],
            failure: None,
        };
        let all = [
            samples([1000, 1000, 2000], 9e5),
            samples([20_000, 30_000, 40_000], 4e4),
            samples([2000, 3000, 4000], 4e5),
            samples([1250, 1500, 2000], 7e5),
        ];
        let one = Line::of(Operation::Create, 1, &peers, &all);
        let pair = |peer: &str, other: &str| {
            let found = one.beside.iter().find(|beside| beside.peer == peer && beside.other == other);
            found.map(|beside| (beside.p50, beside.min, beside.max, beside.above_ns))
        };
        assert_eq!(pair(QUEUE_ALL, MOUNTED), Some((10.0, 10.0, 10.0, -27_000)));
        assert_eq!(pair(RANGE_ALL, LIBRARY), Some((0.8, 1000.0 / 1500.0, 1.0, 250)));
        assert_eq!(pair(RANGE_ALL, QUEUE_ALL), Some((2.0, 1.6, 2.0, -1500)));
        assert_eq!(pair(QUEUE, MOUNTED), None, "it took no part");
        let mut two = Line::of(Operation::Create, 2, &peers, &all);
        two.results[3].per_second = Some(1.19e6);
        two.scale(std::slice::from_ref(&one));
        let printed = ways(&[one, two]);
        assert!(printed.contains("fuse / it 10.00 (10.00-10.00), -27.00 us"), "{printed}");
        assert!(printed.contains("1190000/s 1.70 x one"), "{printed}");
    }
}
