//! Measures the write log in CPU time: index lookup and memory when a 256 MB region is full, and the rates of
//! byte writes and block commands with the `free` profile. `cargo run --release -p amphi-ssd --example
//! log_index [index|bytes|blocks]`
//!
//! ByteFS §4.3 reports 89 ns a lookup and 21 MB of index for a full 256 MB log, on an embedded ARM core.

use std::hint::black_box;

use amphi_device::{BlockPort, BytePort, BytePortExt, Lpa, Structure, WriteLog};
use amphi_ssd::{Profile, Ssd};

/// CPU time of this thread in ns: what the work costs, whoever else uses the machine.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ (z >> 31)) * u128::from(bound)) >> 64) as u64
    }
}

/// A device whose region is large enough to hold 256 MB of entries without cleaning.
fn device(capacity: u64) -> Ssd {
    let mut profile = Profile::named("free").expect("built in");
    profile.log.region_bytes = 320 << 20;
    profile.log.clean_at_percent = 90;
    Ssd::in_memory(&profile, capacity)
}

/// Fills the log with 256 MB of entries for stores of `size` bytes spread over `span` bytes, then looks
/// random ones up.
fn lookup(name: &str, size: usize, span: u64) {
    let ssd = device(32 << 30);
    let entry = (size as u64 + 32).next_multiple_of(64);
    let count = (256 << 20) / entry;
    let slots = span / size as u64;
    // A stride coprime to the slots visits each at most once.
    let stride = (slots as f64 * 0.618) as u64 | 1;
    let data = vec![7; size];
    let at = |i: u64| i.wrapping_mul(stride) % slots * size as u64;
    for i in 0..count {
        ssd.store(at(i), &data, None, Structure::Other).expect("in range");
        ssd.flush_lines(at(i), size);
        if i % 64 == 63 || i + 1 == count {
            ssd.fence();
            ssd.verify_read().expect("room");
        }
    }
    let stats = ssd.stats();
    let mut dice = Dice(1);
    let lookups = 2_000_000_u64;
    let addresses: Vec<u64> = (0..lookups).map(|_| at(dice.below(count))).collect();
    let start = now_ns();
    let found = addresses.iter().filter(|&&at| black_box(ssd.is_logged(at))).count();
    let ns = (now_ns() - start) as f64 / lookups as f64;
    assert_eq!(found as u64, lookups);
    println!(
        "{name:<44} {:>8} entries  lookup {ns:>6.1} ns  index {:>6.1} MB ({:.1} B an entry)",
        stats.log_entries,
        stats.index_bytes as f64 / 1e6,
        stats.index_bytes as f64 / stats.log_entries as f64
    );
}

fn byte_writes() {
    let ssd = device(1 << 30);
    let data = [7; 64];
    let count = 1_500_000_u64;
    for round in 0..3 {
        let start = now_ns();
        for i in 0..count {
            let at = (i * 64) % (64 << 20);
            ssd.persist(at, &data, None, Structure::Other).expect("room");
        }
        let rate = count as f64 * 1e3 / (now_ns() - start) as f64;
        println!("64 B persistent byte writes, round {round}: {rate:.2} M/s");
        ssd.recover().expect("recovers");
    }
    let start = now_ns();
    for i in 0..count {
        let at = (i * 64) % (64 << 20);
        ssd.store(at, &data, None, Structure::Other).expect("in range");
        ssd.flush_lines(at, data.len());
        if i % 16 == 15 {
            ssd.fence();
            ssd.verify_read().expect("room");
        }
    }
    let rate = count as f64 * 1e3 / (now_ns() - start) as f64;
    println!("64 B byte writes, 16 to a write-verify read: {rate:.2} M/s");
    let mut copy = vec![0_u8; 64 << 20];
    let start = now_ns();
    for i in 0..count {
        let at = (i * 64) as usize % copy.len();
        copy[at..at + 64].copy_from_slice(black_box(&data));
        black_box(&mut copy);
    }
    println!("  memcpy of the same bytes alone: {:.2} M/s", count as f64 * 1e3 / (now_ns() - start) as f64);
}

/// Block commands in virtual time, with all that a device with time does for each.
fn block_commands_in_virtual_time() {
    let (write, read) = amphi_rt::Sim::new(1).run(|| {
        let ssd = Ssd::in_memory(&Profile::named("mssd-pcie3").expect("built in"), 1 << 30);
        let mut page = [7; 4096];
        let (span, count) = (16_384_u64, 300_000_u64);
        let mut rates = (0.0, 0.0);
        for _ in 0..3 {
            let start = now_ns();
            for i in 0..count {
                ssd.write(Lpa(i.wrapping_mul(7919) % span), &page, Structure::Other).expect("room");
            }
            rates.0 = count as f64 * 1e3 / (now_ns() - start) as f64;
            let start = now_ns();
            for i in 0..count {
                ssd.read(Lpa(i.wrapping_mul(7919) % span), &mut page, Structure::Other).expect("reads");
            }
            rates.1 = count as f64 * 1e3 / (now_ns() - start) as f64;
        }
        rates
    });
    println!("4 KB block commands in virtual time: write {write:.2} M/s, read {read:.2} M/s");
}

fn block_commands() {
    block_commands_in_virtual_time();
    let ssd = device(1 << 30);
    let mut page = [7; 4096];
    let span = 16_384_u64;
    for round in 0..3 {
        let count = 300_000_u64;
        let start = now_ns();
        for i in 0..count {
            ssd.write(Lpa(i.wrapping_mul(7919) % span), &page, Structure::Other).expect("room");
        }
        let write = count as f64 * 1e3 / (now_ns() - start) as f64;
        let start = now_ns();
        for i in 0..count {
            ssd.read(Lpa(i.wrapping_mul(7919) % span), &mut page, Structure::Other).expect("reads");
        }
        let read = count as f64 * 1e3 / (now_ns() - start) as f64;
        println!("4 KB block commands, round {round}: write {write:.2} M/s, read {read:.2} M/s");
    }
    let mut copy = vec![0_u8; 64 << 20];
    for round in 0..2 {
        let start = now_ns();
        for i in 0..300_000_u64 {
            let at = (i.wrapping_mul(7919) % span) as usize * 4096;
            copy[at..at + 4096].copy_from_slice(black_box(&page));
            black_box(&mut copy);
        }
        println!(
            "  memcpy of the same bytes alone, round {round}: {:.2} M/s",
            3e8 / (now_ns() - start) as f64
        );
    }
}

fn main() {
    let only = std::env::args().nth(1);
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if wanted("index") {
        lookup("64 B stores, pages fully covered", 64, 128 << 20);
        lookup("64 B stores, spread over 1 GB", 64, 1 << 30);
        lookup("64 B stores, spread over 32 GB", 64, 32 << 30);
        lookup("256 B stores, pages fully covered", 256, 208 << 20);
        lookup("256 B stores, spread over 1 GB", 256, 1 << 30);
        lookup("256 B stores, spread over 32 GB", 256, 32 << 30);
    }
    if wanted("bytes") {
        byte_writes();
    }
    if wanted("blocks") {
        block_commands();
    }
}
