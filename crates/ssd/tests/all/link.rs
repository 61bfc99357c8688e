//! The link, the queues and the firmware's processors in virtual time: what each carries, and what waits when
//! they are shared.

use std::sync::Arc;

use amphi_device::{BlockPort, BytePort, BytePortExt, Completion, Error, Lpa, PAGE_BYTES, Structure};
use amphi_rt::Sim;
use amphi_rt::time::{now_ns, sleep_until_ns};
use amphi_ssd::{CompletionKind, LinkKind, Profile, Ssd};

const TAG: Structure = Structure::Data;

fn named(name: &str) -> Profile {
    Profile::named(name).expect("built in")
}

/// The emulator of table 4 with flash, firmware and block engine that never hold the link back.
fn bound_by_its_link(kind: LinkKind) -> Profile {
    let mut profile = named("mssd-pcie3");
    profile.link.kind = kind;
    (profile.link.read_mb_s, profile.link.write_mb_s, profile.link.command_ns) = (0, 0, 0);
    (profile.flash.read_ns, profile.flash.program_ns, profile.firmware.cores) = (0, 0, 0);
    profile
}

fn near(is: f64, wanted: f64, what: &str) {
    assert!((is / wanted - 1.0).abs() < 0.02, "{what}: {is:.3}, not {wanted:.3}");
}

fn ns(work: impl FnOnce() -> amphi_device::Result<()>) -> u64 {
    let start = now_ns();
    work().expect("the device answers");
    now_ns() - start
}

/// Writes 64 MiB in commands of 128 KiB, eight in flight, over and over the same 16 MiB. Answers bytes a
/// microsecond.
fn write_much(ssd: &Ssd) -> f64 {
    const DEPTH: usize = 8;
    let data = vec![1; 128 << 10];
    let bufs = [&data[..]];
    let start = now_ns();
    let mut flying = std::collections::VecDeque::new();
    for command in 0..512_u64 {
        if flying.len() == DEPTH {
            Completion::wait(flying.pop_front().expect("one")).expect("writes");
        }
        flying.push_back(ssd.submit_write(Lpa(command % 128 * 32), &bufs, TAG).expect("accepted"));
    }
    for ticket in flying {
        ticket.wait().expect("writes");
    }
    f64::from(512 * (128 << 10)) * 1000.0 / (now_ns() - start) as f64
}

#[test]
fn each_link_carries_what_its_generation_can() {
    for (kind, mb_s) in [
        (LinkKind::Pcie3X4, 3601.0),
        (LinkKind::Pcie4X4, 7202.0),
        (LinkKind::Pcie5X4, 14_404.0),
        (LinkKind::CxlX4, 11_862.0),
    ] {
        let is = Sim::new(1).run(|| write_much(&Ssd::in_memory(&bound_by_its_link(kind), 64 << 20)));
        near(is, mb_s, &format!("{kind:?} in MB/s"));
    }
}

#[test]
fn bytes_and_blocks_share_the_link() {
    let with_bytes = |threads: u64| {
        Sim::new(1).run(|| {
            let mut profile = bound_by_its_link(LinkKind::Pcie3X4);
            profile.link.line_write_ns = 100;
            let ssd = Arc::new(Ssd::in_memory(&profile, 64 << 20));
            let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let stored = Arc::new(std::sync::atomic::AtomicU64::new(0));
            let tasks: Vec<_> = (0..threads)
                .map(|task| {
                    let (ssd, done, stored) = (Arc::clone(&ssd), Arc::clone(&done), Arc::clone(&stored));
                    amphi_rt::task::spawn("stores", move || {
                        while !done.load(std::sync::atomic::Ordering::Relaxed) {
                            ssd.persist(Lpa(8192 + task).byte(0), &[1; PAGE_BYTES], None, TAG)
                                .expect("stores");
                            stored.fetch_add(PAGE_BYTES as u64, std::sync::atomic::Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            let start = now_ns();
            let blocks = write_much(&ssd);
            let took = now_ns() - start;
            let bytes = stored.load(std::sync::atomic::Ordering::Relaxed) as f64 * 1000.0 / took as f64;
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            for task in tasks {
                task.join();
            }
            (blocks, bytes)
        })
    };
    let (alone, none) = with_bytes(0);
    near(alone, 3601.0, "blocks alone in MB/s");
    assert!(none.abs() < f64::EPSILON);
    let (blocks, bytes) = with_bytes(4);
    // A line of 64 B takes 88 B of the link, 256 B of a block 280 B; what is in flight at the end blurs the
    // sum by a few percent.
    let (raw_blocks, raw_bytes) = (blocks * 280.0 / 256.0, bytes * 88.0 / 64.0);
    println!(
        "{blocks:.0} MB/s of blocks beside {bytes:.0} MB/s of stores: {:.0} MB/s raw",
        raw_blocks + raw_bytes
    );
    assert!((0.95..1.06).contains(&((raw_blocks + raw_bytes) / 3938.0)), "{raw_blocks:.0} + {raw_bytes:.0}");
    assert!((0.4..0.6).contains(&(raw_bytes / 3938.0)), "stores take turns with blocks: {raw_bytes:.0}");
    // And one line is not kept waiting by a megabyte in front of it.
    Sim::new(1).run(|| {
        let ssd = Ssd::in_memory(&named("mssd-pcie3"), 16 << 20);
        let data = vec![1; 1 << 20];
        let bufs = [&data[..]];
        let ticket = ssd.submit_write(Lpa(256), &bufs, TAG).expect("accepted");
        let line = ns(|| ssd.persist(0, &[1; 64], None, TAG));
        assert!((600..700).contains(&line), "a line beside a megabyte took {line} ns");
        ticket.wait().expect("writes");
    });
}

#[test]
fn loads_are_split_as_the_window_is_mapped() {
    Sim::new(1).run(|| {
        let pcie = Ssd::in_memory(&named("mssd-pcie3"), 16 << 20);
        pcie.persist(0, &[1; 4096], None, TAG).expect("stores");
        assert_eq!(ns(|| pcie.load(0, &mut [0; 8], TAG)), 600, "one uncached load");
        assert_eq!(ns(|| pcie.load(0, &mut [0; 64], TAG)), 4800, "a line is eight of them");
        assert_eq!(ns(|| pcie.load(4, &mut [0; 8], TAG)), 1200, "and 8 B across a boundary are two");
        let cxl = Ssd::in_memory(&named("mssd-cxl"), 16 << 20);
        cxl.persist(0, &[1; 4096], None, TAG).expect("stores");
        assert_eq!(ns(|| cxl.load(0, &mut [0; 8], TAG)), 175);
        assert_eq!(ns(|| cxl.load(0, &mut [0; 64], TAG)), 175);
    });
}

#[test]
fn stores_are_posted_and_a_verify_read_waits_for_them() {
    Sim::new(1).run(|| {
        let ssd = Ssd::in_memory(&named("2b-ssd"), 16 << 20);
        let posted = ns(|| {
            ssd.store(0, &[1; 8], None, TAG)?;
            ssd.flush_lines(0, 8);
            ssd.fence();
            Ok(())
        });
        assert_eq!((posted, ns(|| ssd.verify_read())), (630, 94));
        // What follows many posted lines waits until the link has carried them.
        let mut profile = bound_by_its_link(LinkKind::Pcie3X4);
        profile.link.line_write_ns = 600;
        let ssd = Ssd::in_memory(&profile, 16 << 20);
        let persisted = ns(|| ssd.persist(0, &[1; 4096], None, TAG));
        near(persisted as f64, 600.0 + 63.0 * 88.0 / 3.938, "4 KB made durable, in ns");
    });
}

#[test]
fn read_dma_pays_from_about_2_kb() {
    Sim::new(1).run(|| {
        let ssd = Ssd::in_memory(&named("2b-ssd"), 16 << 20);
        ssd.persist(0, &[7; 4096], None, TAG).expect("stores");
        let mut bytes = [0; 4096];
        assert!((57_000..59_000).contains(&ns(|| ssd.load_dma(0, &mut bytes, TAG))));
        assert_eq!(bytes, [7; 4096]);
        for (size, dma_is_faster) in [(1024, false), (2048, true)] {
            let (load, dma) = (
                ns(|| ssd.load(0, &mut bytes[..size], TAG)),
                ns(|| ssd.load_dma(0, &mut bytes[..size], TAG)),
            );
            assert_eq!(dma < load, dma_is_faster, "{size} B: load {load} ns, DMA {dma} ns");
        }
        ssd.store(0, &[8; 64], None, TAG).expect("stores");
        ssd.load_dma(0, &mut bytes, TAG).expect("reads");
        assert_eq!(bytes[0], 7, "what is in the host's caches is not in the device");
        let without = Ssd::in_memory(&named("mssd-pcie3"), 16 << 20);
        let refused = without.load_dma(0, &mut bytes, TAG).expect_err("no engine");
        assert!(matches!(refused, Error::Unsupported(_)), "{refused}");
    });
}

#[test]
fn a_submission_beyond_the_queue_s_depth_waits() {
    Sim::new(1).run(|| {
        let mut profile = bound_by_its_link(LinkKind::Unlimited);
        profile.link.command_ns = 10_000;
        profile.queue.depth = 2;
        let ssd = Ssd::in_memory(&profile, 16 << 20);
        let mut buffers = [[0; PAGE_BYTES]; 3];
        let [one, two, three] = &mut buffers;
        let start = now_ns();
        let first = ssd.submit_read(Lpa(0), one, TAG).expect("accepted");
        sleep_until_ns(start + 3000);
        let second = ssd.submit_read(Lpa(1), two, TAG).expect("accepted");
        assert_eq!(now_ns() - start, 3000, "two fit");
        let third = ssd.submit_read(Lpa(2), three, TAG).expect("accepted");
        assert_eq!(now_ns() - start, 10_000, "the third waits for the first");
        assert_eq!(third.done_at_ns() - start, 20_000);
        for ticket in [first, second, third] {
            ticket.wait().expect("reads");
        }
    });
}

#[test]
fn an_interrupt_costs_what_polling_does_not() {
    let read = |completion| {
        Sim::new(1).run(|| {
            let mut profile = named("mssd-pcie3");
            (profile.queue.completion, profile.queue.interrupt_ns) = (completion, 4000);
            let ssd = Ssd::in_memory(&profile, 16 << 20);
            ns(|| ssd.read(Lpa(0), &mut [0; PAGE_BYTES], TAG))
        })
    };
    assert_eq!(read(CompletionKind::Interrupt) - read(CompletionKind::Polling), 4000);
}

#[test]
fn commands_queue_for_the_firmware_s_processors() {
    let eight_at_once = |cores| {
        Sim::new(1).run(|| {
            let mut profile = bound_by_its_link(LinkKind::Unlimited);
            (profile.firmware.cores, profile.firmware.command_cpu_ns) = (cores, 5000);
            let ssd = Ssd::in_memory(&profile, 16 << 20);
            let mut buffers = [[0; PAGE_BYTES]; 8];
            let start = now_ns();
            let tickets: Vec<_> = buffers
                .iter_mut()
                .map(|buffer| ssd.submit_read(Lpa(0), buffer, TAG).expect("accepted"))
                .collect();
            let last = tickets.iter().map(Completion::done_at_ns).max().expect("some") - start;
            for ticket in tickets {
                ticket.wait().expect("reads");
            }
            last
        })
    };
    assert_eq!([1, 2, 8].map(eight_at_once), [40_000, 20_000, 5_000]);
    // Byte writes need them too: a store waits behind a command that has the only one.
    Sim::new(1).run(|| {
        let mut profile = bound_by_its_link(LinkKind::Unlimited);
        (profile.firmware.cores, profile.firmware.command_cpu_ns, profile.firmware.entry_cpu_ns) =
            (1, 5000, 100);
        let ssd = Ssd::in_memory(&profile, 16 << 20);
        let mut page = [0; PAGE_BYTES];
        let ticket = ssd.submit_read(Lpa(0), &mut page, TAG).expect("accepted");
        assert_eq!(ns(|| ssd.persist(0, &[1; 64], None, TAG)), 5100);
        ticket.wait().expect("reads");
    });
}
